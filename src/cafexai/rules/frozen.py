"""What is taken from a scored value as a plain constant, or does not look at its numbers at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._core.row_index import MIXED
from .._core.tensors import Softmaxed
from .._core.value import Scores
from ..errors import UnsupportedOperation
from .conversion import as_dtype
from .registry import Rule, add, functions_named, plain_function, rule
from .softmax import is_open, open_softmax

_METADATA = """
    shape size dim ndim ndimension numel nelement dtype device layout is_cuda is_cpu is_mps is_xpu is_meta is_sparse
    is_sparse_csr is_quantized is_nested is_mkldnn is_floating_point is_complex is_signed is_conj is_neg is_inference
    requires_grad is_leaf grad grad_fn is_contiguous stride storage_offset element_size itemsize nbytes get_device
    __len__ __hash__ __dir__ is_same_size result_type is_tensor names has_names is_pinned dim_order
""".split()
for _name in _METADATA:
    for _function in functions_named(_name):
        add(_function, Rule("metadata", lambda *args: None, kinds=frozenset({"metadata"})))

_SHAPED_LIKE = """
    zeros_like ones_like full_like empty_like rand_like randn_like new_zeros new_ones new_full new_empty new_tensor
    __repr__ __format__
""".split()
_OPERATORS = ("eq", "ne", "lt", "le", "gt", "ge")
_COMPARED = """
    eq ne lt le gt ge equal not_equal less less_equal greater greater_equal isnan isinf isfinite isclose allclose
    argmax argmin argsort any all nonzero count_nonzero bucketize searchsorted logical_not logical_and logical_or logical_xor
    isposinf isneginf isreal signbit item tolist __bool__ __nonzero__ __float__ __int__ __index__ __contains__ histc
""".split()


def _values(parts: Any) -> Any:
    return [part.value if isinstance(part, Scores) else part for part in parts]


def _like(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*args: Any, **options: Any) -> Any:
        for part in (*args[1:], *options.values()):
            if isinstance(part, Scores):  # the number to fill with
                part.run.note_frozen(name, "choice")
        return function(*_values(args), **dict(zip(options, _values(options.values()), strict=True)))

    return apply


_TO_PYTHON = ("item", "tolist", "__float__", "__int__", "__index__")


def _frozen(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*args: Any, **options: Any) -> Any:
        first = next(part for part in (*args, *options.values()) if isinstance(part, Scores))
        if name in _TO_PYTHON:
            first.run.cuts.append(first)
        first.run.note_frozen(name, "comparison")
        if any(isinstance(part, Scores) and not part.pending and part.rows is MIXED for part in (*args, *options.values())):
            first.run.note_mixed_rows(name)
        return function(*_values(args), **dict(zip(options, _values(options.values()), strict=True)))

    return apply


for _name in _SHAPED_LIKE:
    for _function in functions_named(_name):
        add(
            _function,
            Rule(_name, _like(_name, _function), kinds=frozenset({"shaped", "draws"} if "rand" in _name else {"shaped"})),
        )
for _name in _COMPARED:
    for _function in functions_named(_name) + functions_named(f"__{_name}__") * (_name in _OPERATORS):
        add(_function, Rule(_name, _frozen(_name, _function), kinds=frozenset({"comparison"})))


def _detach(name: str) -> Callable[[Scores], Any]:
    def apply(x: Scores) -> Any:
        x.run.cuts.append(x)
        return x.freeze(name, torch.clone)

    return apply


for _name in ("data", "detach"):
    rule(_name, in_place=False)(_detach(_name))


@rule("_nested_tensor_from_mask_left_aligned", in_place=False)
def left_aligned(x: Scores, mask: Any) -> bool:
    """nn.TransformerEncoder asks whether it may take its fast path: not while it is explained."""
    return False


@rule(torch.as_tensor, name="as_tensor")
def as_tensor(x: Scores, dtype: Any = None, device: Any = None) -> Any:
    return x if dtype is None else as_dtype(x, dtype)


@rule("numpy", "__array__", in_place=False)
def numpy(x: Scores, *args: Any, **options: Any) -> Any:
    raise UnsupportedOperation("forward leaves torch here, and what numpy does cannot be followed; write it with torch")


def _routing(name: str) -> Callable[..., Any]:
    function = plain_function(name)

    def apply(x: Scores, dim: Any = None, *args: Any, **options: Any) -> Any:
        options = {key: option for key, option in options.items() if key != "_stacklevel"}
        if dim is None:
            raise UnsupportedOperation("it is called without dim")
        if options.get("dtype") is not None:
            x.run.note_dtype(options["dtype"])
        if is_open(x, dim):
            return open_softmax(x, dim)
        return Softmaxed.of(x.freeze(name, lambda value: function(value, dim, **options), "softmax", dim), x)

    return apply


rule("softmax", in_place=False, kinds=["final"])(_routing("softmax"))


@rule("softmin", in_place=False)
def softmin(x: Scores, dim: Any = None, **options: Any) -> Any:
    return _routing("softmax")(x.scale(-1), dim)


@rule("local_response_norm", in_place=False)
def local_response_norm(x: Scores, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    """x divided by a frozen norm of its neighbours."""

    def denominator(value: Tensor) -> Tensor:
        ones = torch.ones_like(value)
        return torch.where(value == 0, ones, value / F.local_response_norm(value, size, alpha, beta, k))

    return x.linear(torch.div, x.freeze("local_response_norm", denominator, "routing"), aligned=True)
