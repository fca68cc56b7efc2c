"""Complex values: each is a pair of real ones, and what is done to it is done to these by real operations.

A Fourier transform is a linear map with cosines and sines as its weights; over several dimensions it is one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._core.tensors import Complexed, Scored
from ..errors import UnsupportedOperation
from .registry import TABLE, variants

OPERATIONS: dict[Callable[..., Any], Callable[..., Any]] = {}  # written with calls of torch that are followed themselves


def takes(function: Callable[..., Any], args: Sequence[Any]) -> bool:
    """Complex numbers go in or come out."""
    made = function in OPERATIONS and function not in TABLE
    return made or any(_is_complex(part) for group in args for part in (group if isinstance(group, (list, tuple)) else [group]))


def _is_complex(part: Any) -> bool:
    return isinstance(part, complex) or (isinstance(part, Tensor) and part.is_complex())


def follow(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The call by parts."""
    if function not in OPERATIONS:
        raise UnsupportedOperation("of complex values transforms, moves, sums and products are followed; take .real or .abs()")
    return OPERATIONS[function](*args, **kwargs)


def parts(value: Any) -> tuple[Any, Any]:
    """The real and the imaginary part; None if there is none."""
    if isinstance(value, Complexed):
        return value.first, value.second
    if isinstance(value, complex) or (isinstance(value, Tensor) and value.is_complex()):
        return value.real, value.imag
    return value, None


def make_complex(first: Any, second: Any) -> Any:
    """A complex value of two parts; plain ones stay plain."""
    second = torch.zeros_like(first) if second is None else second
    if isinstance(first, Scored) or isinstance(second, Scored):
        return Complexed.of(first, second)
    return torch.complex(first, second)


def operation(*names: str, space: Any = None) -> Callable[[Any], Any]:
    """Register for all functions and operators of these names; who calls writes the result into its place, if it has to."""

    def register(apply: Any) -> Any:
        for name in names:
            found = [function for function, _ in variants(name)] if space is None else [getattr(space, name)]
            OPERATIONS.update(dict.fromkeys(found, apply))
        return apply

    return register


# ---- both parts alike ------------------------------------------------------------------------------------------------
_BOTH_PARTS = """
    view reshape flatten transpose t permute movedim moveaxis swapaxes squeeze unsqueeze expand expand_as select narrow diagonal
    unflatten chunk split unbind broadcast_to __getitem__ flip roll repeat tile repeat_interleave gather index_select contiguous
    clone sum mean cumsum neg negative tril triu
""".split()


def _by_parts(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(x: Any, *args: Any, **options: Any) -> Any:
        first, second = (None if part is None else function(part, *args, **options) for part in parts(x))
        if first is None or second is None or isinstance(first, Tensor):
            return first if second is None else make_complex(first, second)
        return tuple(make_complex(*both) for both in zip(first, second, strict=True))

    return apply


for _name in _BOTH_PARTS:
    for _function, _ in variants(_name):
        OPERATIONS[_function] = _by_parts(_function)


def _join(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(tensors: Any, *args: Any, **options: Any) -> Any:
        known = [parts(tensor) for tensor in tensors]
        seconds = [torch.zeros_like(first) if second is None else second for first, second in known]
        return make_complex(function([first for first, _ in known], *args, **options), function(seconds, *args, **options))

    return apply


operation("cat", "concat", "concatenate")(_join(torch.cat))
operation("stack")(_join(torch.stack))


# ---- pairs made and taken apart --------------------------------------------------------------------------------------
operation("real")(lambda x: parts(x)[0])
operation("imag")(lambda x: parts(x)[1])
operation("view_as_real")(lambda x: torch.stack(parts(x), -1))
operation("view_as_complex")(lambda x: make_complex(*x.unbind(-1)))
operation("complex")(make_complex)
operation("polar")(lambda size, angle: make_complex(size * torch.cos(angle), size * torch.sin(angle)))
operation("resolve_conj")(lambda x: x)
operation("conj", "conj_physical")(lambda x: make_complex(parts(x)[0], -parts(x)[1]))


@operation("abs", "absolute")
def size(x: Any) -> Any:
    return torch.linalg.vector_norm(torch.stack(parts(x), -1), dim=-1)


@operation("to", "type")
def to(x: Any, *args: Any, **options: Any) -> Any:
    """Another precision or device; a real dtype would drop the imaginary part."""
    dtypes = [part for part in (*args, *options.values()) if isinstance(part, torch.dtype)]
    if any(not dtype.is_complex for dtype in dtypes):
        raise UnsupportedOperation("a complex value is cast to a real one; take .real")
    return x


# ---- arithmetic ------------------------------------------------------------------------------------------------------
def _sum(a: Any, b: Any, sign: int = 1) -> Any:
    (first, second), (third, fourth) = parts(a), parts(b)
    if second is None:
        second = torch.zeros_like(first) if isinstance(first, Tensor) else 0.0
    imaginary = second if fourth is None else second + sign * fourth
    real = first + sign * third
    return make_complex(real, imaginary if imaginary.shape == real.shape else imaginary.expand(real.shape))


operation("add", "__radd__")(lambda a, b, alpha=1: _sum(a, b, alpha))
operation("sub", "subtract")(lambda a, b, alpha=1: _sum(a, b, -alpha))
operation("rsub", "__rsub__")(lambda a, b: _sum(_by_parts(torch.neg)(a), b))


def _product(fn: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """(a + bi)(c + di) = ac - bd + (ad + bc)i for anything that is linear in both."""
    (first, second), (third, fourth) = parts(a), parts(b)
    if fourth is None:
        return make_complex(fn(first, third), fn(second, third))
    if second is None:
        return make_complex(fn(first, third), fn(first, fourth))
    return make_complex(fn(first, third) - fn(second, fourth), fn(first, fourth) + fn(second, third))


operation("mul", "multiply", "__rmul__")(lambda a, b: _product(lambda u, v: u * v, a, b))
operation("matmul", "mm", "bmm")(lambda a, b: _product(torch.matmul, a, b))
operation("square")(lambda x: _product(lambda u, v: u * v, x, x))


@operation("div", "divide", "true_divide")
def quotient(a: Any, b: Any) -> Any:
    third, fourth = parts(b)
    if isinstance(b, Complexed):
        raise UnsupportedOperation("a complex value is divided by another that depends on the input; multiply by its conjugate")
    if fourth is None:
        return make_complex(*(part / third for part in parts(a)))
    return _product(lambda u, v: u * v, a, 1 / b)


@operation("einsum")
def einsum(equation: str, *operands: Any) -> Any:
    operands = tuple(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    if len(operands) == 1:
        return _by_parts(lambda part: torch.einsum(equation, part))(operands[0])
    if len(operands) != 2:
        raise UnsupportedOperation("an einsum of more than two complex values is not followed; split it into steps of two")
    return _product(lambda u, v: torch.einsum(equation, u, v), *operands)


# ---- Fourier transforms ----------------------------------------------------------------------------------------------
def _transform(fn: Callable[..., Tensor], x: Any, n: Any, dim: int, norm: Any, real: bool) -> Any:
    """Along one dimension: a linear layer of all real and imaginary parts, whose weights are what becomes of ones."""
    first, second = parts(x)
    first, second = first.movedim(dim, -1), None if second is None else second.movedim(dim, -1)
    count = first.shape[-1]
    ones = torch.eye(count, dtype=first.dtype, device=first.device)
    known = ones if second is None else torch.cat([torch.complex(ones, 0 * ones), torch.complex(0 * ones, ones)])
    made = fn(known, n=n, dim=-1, norm=norm)
    weight = made.T if real else torch.cat([made.real, made.imag], 1).T
    result = F.linear(first if second is None else torch.cat([first, second], -1), weight)
    if real:
        return result.movedim(-1, dim)
    return make_complex(*(part.movedim(-1, dim) for part in result.chunk(2, -1)))


def _one_dimension(name: str) -> Callable[..., Any]:
    def apply(x: Any, n: Any = None, dim: int = -1, norm: Any = None) -> Any:
        return _transform(getattr(torch.fft, name), x, n, dim, norm, name in ("irfft", "hfft"))

    return apply


def _several(name: str, two: bool) -> Callable[..., Any]:
    """The last dimension first, unless it becomes real: then last."""
    inverse, half = name.startswith("i"), "rfft" in name
    others, own = (torch.fft.ifft if inverse else torch.fft.fft), getattr(torch.fft, name)

    def apply(x: Any, s: Any = None, dim: Any = (-2, -1) if two else None, norm: Any = None) -> Any:
        ndim = parts(x)[0].ndim
        if dim is None:
            dim = range(ndim) if s is None else range(ndim - len(s), ndim)
        sizes = [None if n == -1 else n for n in s] if s is not None else [None] * len(dim)
        steps = [(others, n, d, False) for n, d in zip(sizes, dim, strict=True)]
        if half:
            steps[-1] = (own, *steps[-1][1:3], inverse)
        for fn, n, d, real in steps if half and inverse else reversed(steps):
            x = _transform(fn, x, n, d, norm, real)
        return x

    return apply


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    operation(_name, space=torch.fft)(_one_dimension(_name))
for _name in ("fft", "ifft", "rfft", "irfft"):
    operation(f"{_name}2", space=torch.fft)(_several(_name, True))
    operation(f"{_name}n", space=torch.fft)(_several(_name, False))


def _shift(sign: int) -> Callable[..., Any]:
    def apply(x: Any, dim: Any = None) -> Any:
        ndim, shape = parts(x)[0].ndim, parts(x)[0].shape
        dims = list(range(ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
        shifts = [sign * (shape[d] // 2) if sign > 0 else -(shape[d] // 2) for d in dims]
        return torch.roll(x, shifts, dims)

    return apply


operation("fftshift", space=torch.fft)(_shift(1))
operation("ifftshift", space=torch.fft)(_shift(-1))


@operation("__setitem__")
def put(x: Any, index: Any, value: Any) -> Any:
    """Into complex values; a plain tensor becomes another, which the caller has to put in its place."""
    first, second = (part.clone() for part in parts(x))
    third, fourth = parts(value)
    first[index] = third
    second[index] = 0.0 if fourth is None else fourth
    return make_complex(first, second)
