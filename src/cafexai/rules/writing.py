"""Operations that put values into places: where, masks, assignments, scatters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .._scores.value import Scores
from ..errors import UnsupportedOperation
from .arithmetic import add, constant_like
from .table import Rule, plain_function, rule
from .table import add as register


def _together(parts: Sequence[Any], fn: Callable[..., Tensor]) -> Any:
    """Join values and constants, at least one of them scored. If one value alone is written to, its rows stay its own."""
    first = next(part for part in parts if isinstance(part, Scores))
    alone = isinstance(parts[0], Scores) and not any(isinstance(part, Scores) for part in parts[1:])
    joined = [_tensor(part, first) for part in parts]
    return first.join(first.run, fn, joined, aligned=alone)


def _tensor(part: Any, like: Scores) -> Any:
    return part if isinstance(part, Scores) else constant_like(part, like)


def _constant(part: Any, what: str) -> None:
    if isinstance(part, Scores):
        raise UnsupportedOperation(f"its {what} depends on the input")


@rule("where", in_place=False, kinds=["offset"])
def where(condition: Any, a: Any = None, b: Any = None) -> Any:
    if a is None or isinstance(condition, Scores):
        raise UnsupportedOperation("its condition depends on the input; compare first (x > 0), that is frozen")
    scored = a if isinstance(a, Scores) else b
    if torch.broadcast_shapes(*(getattr(part, "shape", ()) for part in (condition, a, b))) != scored.shape:
        return scored.join(
            scored.run, lambda *parts: torch.where(condition, *parts), [_tensor(part, scored) for part in (a, b)]
        )
    if scored is b:
        return _together([b, a], lambda x, new: torch.where(condition, new, x))
    return _together([a, b], lambda x, other: torch.where(condition, x, other))


@rule(torch.Tensor.where, name="where", kinds=["offset"])
def where_method(x: Any, condition: Any, other: Any) -> Any:
    return where(condition, x, other)


@rule("masked_fill", kinds=["offset"])
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return where(mask, value, x)


def setitem(x: Any, index: Any, value: Any) -> Any:
    def put(old: Tensor, new: Tensor) -> Tensor:
        result = old.clone()
        result[index] = new.to(result.dtype)
        return result

    return _together([x, value], put)


def copy(x: Any, source: Any, non_blocking: bool = False) -> Any:
    if not isinstance(source, Scores):
        return fill(x, source)
    shape = x.shape
    return source.reshape(lambda v: v.expand(shape))


def fill(x: Scores, value: Any = 0) -> Any:
    """The value is overwritten by a constant."""
    return x.scale(0).add_constant(constant_like(value, x).expand(x.shape))


register(torch.Tensor.fill_, Rule("fill_", fill, in_place=True))
register(torch.Tensor.zero_, Rule("zero_", fill, in_place=True))
register(torch.Tensor.__setitem__, Rule("__setitem__", setitem, in_place=True, kinds=frozenset({"index"})))
register(torch.Tensor.copy_, Rule("copy_", copy, in_place=True))


def _scatter_into(function: Callable[..., Tensor]) -> Callable[..., Any]:
    def apply(x: Any, source: Any, *args: Any, **options: Any) -> Any:
        return _together([x, source], lambda old, new: function(old, new, *args, **options))

    return apply


for _name in ("select_scatter", "slice_scatter", "diagonal_scatter"):
    rule(_name, in_place=False)(_scatter_into(plain_function(_name)))


@rule("index_put")
def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    if accumulate:
        raise UnsupportedOperation("accumulate=True is not followed; use index_add")
    return setitem(x, tuple(indices), values)


@rule("index_copy", kinds=["index"])
def index_copy(x: Any, dim: int, index: Tensor, source: Any) -> Any:
    return _together([x, source], lambda old, new: old.index_copy(dim, index, new))


@rule("index_fill", kinds=["index"])
def index_fill(x: Any, dim: int, index: Tensor, value: Any) -> Any:
    def fill(old: Tensor, new: Tensor) -> Tensor:
        chosen = torch.zeros(old.shape[dim], dtype=torch.bool, device=index.device).index_fill(0, index, True)
        shape = [1] * old.ndim
        shape[dim] = -1
        return torch.where(chosen.view(shape), new, old)

    return _together([x, value], fill)


@rule("masked_scatter")
def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    _constant(mask, "mask")
    return _together([x, source], lambda old, new: old.masked_scatter(mask, new))


@rule("scatter", kinds=["index"])
def scatter(x: Any, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: Any = None) -> Any:
    if reduce is not None:
        raise UnsupportedOperation("reduce= is not followed; use scatter_add")
    source = value if src is None else src

    def put(old: Tensor, new: Tensor) -> Tensor:
        return old.scatter(dim, index, new if new.ndim else new.expand(index.shape))

    return _together([x, source], put)


def _accumulate(name: str) -> Any:
    def apply(x: Any, dim: int, index: Tensor, source: Any = None, *, src: Any = None, alpha: float = 1) -> Any:
        source = src if source is None else source
        shape = x.shape
        if not isinstance(source, Scores):
            return add(x, getattr(torch.zeros_like(x.template), name)(dim, index, source), alpha=alpha)
        spread = source.linear(lambda v: getattr(v.new_zeros(shape), name)(dim, index, v), aligned=dim % len(shape) != 0)
        return add(x, spread, alpha=alpha)

    return apply


rule("index_add", kinds=["index"])(_accumulate("index_add"))
rule("scatter_add")(_accumulate("scatter_add"))
