"""Operations that are linear in the scored value: layers with weights, averages, sums."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .._core.cumsum import RunningSum
from .._core.math_functions import affine
from .._core.provenance import RUNNING, record
from .._core.steps import apply_linear
from .._core.value import Scores
from ..errors import UnsupportedOperation
from .arithmetic import add, bilinear_map, multiply
from .conversion import as_dtype
from .registry import TABLE, plain_function, rule


@rule("linear", casts=True, kinds=["units", "biased"])
def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    if isinstance(x, Scores) and not isinstance(weight, Scores) and not isinstance(bias, Scores):
        return x.linear_layer(weight, bias, x.ndim > 1)
    result = bilinear_map(apply_linear, x, weight)
    return result if bias is None else add(result, bias)


@rule("bilinear")
def bilinear(a: Any, b: Any, weight: Any, bias: Any = None) -> Any:
    if sum(isinstance(part, Scores) for part in (a, b, weight, bias)) > 1 or isinstance(weight, Scores):
        raise UnsupportedOperation("more than one of its arguments depends on the input; write it in steps with mul and linear")
    x, constant, equation = (a, b, "oij,...j->...oi") if isinstance(a, Scores) else (b, a, "oij,...i->...oj")
    matrix = torch.einsum(equation, weight, constant)  # the weight that the scored side meets
    result = x.linear(lambda v, m: torch.einsum("...i,...oi->...o", v, m), matrix, aligned=x.ndim > 1)
    return result if bias is None else result.add_constant(bias)


class _Convolve(NamedTuple):
    """A convolution with its settings."""

    function: Callable[..., Tensor]
    units: int  # the dimension of the channels
    args: tuple[Any, ...]
    options: dict[str, Any]

    def __call__(self, value: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return self.function(value, weight, bias, *self.args, **self.options)


def _convolution(function: Callable[..., Tensor], spatial: int) -> Callable[..., Any]:
    def apply(x: Any, weight: Any, bias: Any = None, *args: Any, **options: Any) -> Any:
        if isinstance(bias, Scores):
            raise UnsupportedOperation("its bias depends on the input")
        if isinstance(weight, Scores):
            result = bilinear_map(lambda u, w: function(u, w, None, *args, **options), x, weight)
            return result if bias is None else result.add_constant(bias.view(-1, *(1,) * spatial))
        batched = x.ndim == spatial + 2
        layer = _Convolve(function, -1 - spatial, args, options)
        if bias is None:
            return x.linear(layer, weight, aligned=batched)
        return x.linear(layer, weight, bias=bias, bias_dims=spatial, aligned=batched)

    return apply


def layer_of_call(function: Any, args: Any, options: Any) -> tuple[Tensor, Tensor] | None:
    """The value and the weight of a call of a linear layer or convolution; the first dimension of the weight is its units."""
    if function is torch.addmm and len(args) == 3 and not options:
        return args[1], args[2].t()
    known = TABLE.get(function)
    if known is None or "units" not in known.kinds or len(args) < 2:
        return None
    return args[0], args[1]


for _n in (1, 2, 3):
    rule(f"conv{_n}d", kinds=["units", "biased"])(_convolution(plain_function(f"conv{_n}d"), _n))
    rule(f"conv_transpose{_n}d", kinds=["biased"])(_convolution(plain_function(f"conv_transpose{_n}d"), _n))


@rule("batch_norm", kinds=["biased"])
def batch_norm(
    x: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """In evaluation a scale and a shift: w / sigma and b - mu w / sigma."""
    if training or running_mean is None:
        raise ValueError(
            "explain(...): a batch-norm layer uses the statistics of the batch, so rows would influence each other. "
            "Call model.eval() first; a layer with track_running_stats=False has no other statistics and cannot be explained."
        )
    scale = (running_var + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    shift = -running_mean * scale if bias is None else bias - running_mean * scale
    shape = (-1, *(1,) * (x.ndim - 2))
    return x.linear(affine, scale.view(shape), bias=shift.view(shape), aligned=True)


@rule(torch.batch_norm, name="batch_norm", kinds=["biased"])
def batch_norm_builtin(x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *more: Any) -> Any:
    """torch's own function has its arguments in another order."""
    return batch_norm(x, mean, var, weight, bias, training, *more[:2])


_ROWS_FIRST = ("matmul", "mm", "mv")  # with a matrix on the right, the rows of the left side stay rows


def _product_of(name: str) -> Callable[..., Any]:
    function = plain_function(name)

    def apply(a: Any, b: Any) -> Any:
        rows_first = name in _ROWS_FIRST and isinstance(a, Scores) and a.ndim > 1 and not isinstance(b, Scores)
        if rows_first and b.ndim == 2:
            return a.linear_layer(b.t(), None, True)
        batched = name in ("matmul", "bmm") and a.ndim == b.ndim >= 3
        return bilinear_map(function, a, b, batched or (rows_first and b.ndim == 1))

    return apply


for _name in ("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner", "outer", "ger"):
    rule(_name)(_product_of(_name))


rule("__rmatmul__")(lambda b, a: bilinear_map(torch.matmul, a, b, a.ndim == b.ndim >= 3))


def _add_product(function: Callable[[Any, Any], Tensor]) -> Callable[..., Any]:
    def apply(base: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
        product: Any
        if function is torch.mm and isinstance(a, Scores) and not isinstance(b, Scores):
            if beta == alpha == 1 and isinstance(base, Tensor) and base.shape == b.shape[1:]:  # a linear layer with its bias
                return a.linear_layer(b.t(), base, True)
            product = a.linear_layer(b.t(), None, True)
        else:
            product = bilinear_map(function, a, b)
        return add(multiply(base, beta), product, alpha=alpha)

    return apply


for _name, _product in (("addmm", torch.mm), ("addmv", torch.mv), ("baddbmm", torch.bmm), ("addr", torch.outer)):
    rule(_name)(_add_product(_product))


@rule("addbmm")
def addbmm(base: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    return _add_product(lambda u, v: torch.bmm(u, v).sum(0))(base, a, b, beta=beta, alpha=alpha)


@rule("tensordot")
def tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Any:
    return bilinear_map(lambda u, v: torch.tensordot(u, v, dims), a, b)


rule("kron")(lambda a, b: bilinear_map(torch.kron, a, b))


@rule("einsum")
def einsum(equation: Any, *operands: Any) -> Any:
    if not isinstance(equation, str):
        raise UnsupportedOperation("only the form einsum('ij,jk->ik', a, b) is followed")
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    scored = [i for i, operand in enumerate(operands) if isinstance(operand, Scores)]
    constants = [i for i in range(len(operands)) if i not in scored]
    if len(scored) > 1 and len(operands) > 2:
        return _step_by_step(*_terms(equation, len(operands)), operands)
    if len(scored) == 2:
        return operands[0].product(operands[1], lambda u, v: torch.einsum(equation, u, v), routing=True)
    x = operands[scored[0]]
    terms, result = _terms(equation, len(operands))
    if not constants:
        return x.linear(lambda v: torch.einsum(equation, v), aligned=terms[0][:1] == result[:1] not in ("", "."))
    matrix, kept = operands[constants[0]], terms[constants[0]]
    if len(constants) > 1:  # contract the constants first: the value meets only their product
        kept = "".join(sorted({letter for i in constants for letter in terms[i]} & set(terms[scored[0]] + result)))
        together = ",".join(terms[i] for i in constants)
        matrix = torch.einsum(f"{together}->{kept}", *(operands[i] for i in constants))
    term = terms[scored[0]]
    return x.linear(
        lambda v, m: torch.einsum(f"{term},{kept}->{result}", v, m), matrix, aligned=term[:1] == result[:1] not in ("", ".")
    )


def _step_by_step(terms: list[str], result: str, operands: Sequence[Any]) -> Any:
    """From left to right, two at a time; what no later term has is summed over."""
    value, letters = operands[0], terms[0]
    for i in range(1, len(operands)):
        later = set("".join(terms[i + 1 :]) + result)
        kept = result if i + 1 == len(operands) else "".join(sorted(later & set(letters + terms[i])))
        step = f"{letters},{terms[i]}->{kept}"
        value = bilinear_map(functools.partial(torch.einsum, step), value, operands[i])
        letters = kept
    return value


def _terms(equation: str, count: int) -> tuple[list[str], str]:
    """The letters of each operand and of the result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if "..." in left and count > 2:
        raise UnsupportedOperation("an ellipsis with more than two operands is not followed; name all dimensions")
    if not arrow:
        letters = left.replace(",", "").replace(".", "")
        right = ("..." if "..." in left else "") + "".join(sorted(x for x in set(letters) if letters.count(x) == 1))
    return terms, right


def _average(function: Callable[..., Tensor], spatial: int) -> Callable[..., Any]:
    def apply(x: Scores, *args: Any, **options: Any) -> Any:
        return x.linear(lambda v: function(v, *args, **options), aligned=x.ndim == spatial + 2)

    return apply


for _n in (1, 2, 3):
    for _name in (f"avg_pool{_n}d", f"adaptive_avg_pool{_n}d"):
        rule(_name)(_average(plain_function(_name), _n))
rule("fold")(_average(F.fold, 1))


@rule("interpolate")
def interpolate(
    x: Scores,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Any = None,
    recompute_scale_factor: Any = None,
    antialias: bool = False,
) -> Any:
    if mode == "bicubic" or antialias:
        rows, columns = (
            _resampling(x, side, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias) for side in (0, 1)
        )
        return x.linear(lambda v, r, c: r @ v @ c.mT, rows, columns, aligned=True)
    return x.linear(lambda v: F.interpolate(v, size, scale_factor, mode, align_corners, recompute_scale_factor), aligned=True)


def _resampling(x: Scores, side: int, size: Any, scale: Any, *how: Any) -> Tensor:
    """The weights along one side of images, of which some are negative: what becomes of the image with ones in its diagonal."""
    count = x.shape[2 + side]
    image = torch.eye(count, dtype=x.template.dtype, device=x.template.device)[None, None]

    def alone(given: Any, other: float) -> Any:
        if given is None:
            return None
        own = given if isinstance(given, (int, float)) else given[side]
        return (own, other) if side == 0 else (other, own)

    resized = F.interpolate(image, alone(size, count), alone(scale, 1.0), *how)[0, 0]
    return resized if side == 0 else resized.T


@rule("grid_sample")
def grid_sample(x: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: Any = None) -> Any:
    if isinstance(grid, Scores):  # where to look routes, as attention does
        grid = grid.freeze("grid_sample (places)", lambda v: v, "routing")
    if not isinstance(x, Scores):
        return F.grid_sample(x, grid.to(x.dtype), mode, padding_mode, align_corners)
    if mode == "bicubic":
        raise UnsupportedOperation('mode="bicubic" has negative weights that are not known; use "bilinear"')
    return x.linear(lambda v: F.grid_sample(v, grid.to(v.dtype), mode, padding_mode, align_corners), aligned=True)


def _reduction(name: str) -> Callable[..., Any]:
    function = plain_function(name)

    def apply(x: Scores, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None) -> Any:
        dim = axis if dim is None else dim
        if dim is None or (isinstance(dim, (tuple, list)) and not dim):
            dim = tuple(range(x.ndim))
        dims = [d % x.ndim for d in ((dim,) if isinstance(dim, int) else dim)] if x.ndim else []
        result = x.linear(lambda v: function(v, dim, keepdim=keepdim) if x.ndim else v, aligned=0 not in dims)
        return result if dtype is None else as_dtype(result, dtype)

    return apply


total = rule("sum")(_reduction("sum"))
rule("mean")(_reduction("mean"))


@rule("cumsum")
def cumsum(x: Scores, dim: int, *, dtype: Any = None) -> Any:
    result = x.linear(lambda v: v.cumsum(dim), aligned=dim % max(x.ndim, 1) != 0)
    result = record(result, RUNNING, None, RunningSum.along(x, dim)) if x.ndim else result
    return result if dtype is None else as_dtype(result, dtype)


@rule("diff")
def diff(x: Scores, n: int = 1, dim: int = -1) -> Any:
    for _ in range(n):
        later, earlier = (x.reshape(_part(dim, start, x.shape[dim] - 1)) for start in (1, 0))
        x = later.add(earlier, -1)
    return x


def _part(dim: int, start: int, size: int) -> Callable[[Tensor], Tensor]:
    return lambda v: v.narrow(dim, start, size)


rule("trace")(lambda x: x.linear(torch.trace))
