"""Operations that put values into places: where, masks, assignments, scatters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..registry import Rule, UnsupportedOperation, plain_function, rule
from ..registry import add as register
from ..scores import Scores
from .arithmetic import add, constant_like


def _together(parts: Sequence[Any], fn: Callable[[Sequence[Tensor]], Tensor]) -> Any:
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


@rule("where", in_place=False)
def where(condition: Any, a: Any = None, b: Any = None) -> Any:
    if a is None or isinstance(condition, Scores):
        raise UnsupportedOperation("its condition depends on the input; compare first (x > 0), that is frozen")
    scored = a if isinstance(a, Scores) else b
    if torch.broadcast_shapes(*(getattr(part, "shape", ()) for part in (condition, a, b))) != scored.shape:
        return scored.join(scored.run, lambda parts: torch.where(condition, *parts), [_tensor(part, scored) for part in (a, b)])
    if scored is b:
        return _together([b, a], lambda parts: torch.where(condition, parts[1], parts[0]))
    return _together([a, b], lambda parts: torch.where(condition, parts[0], parts[1]))


@rule(torch.Tensor.where, name="where")
def where_method(x: Any, condition: Any, other: Any) -> Any:
    return where(condition, x, other)


@rule("masked_fill")
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return where(mask, value, x)


def setitem(x: Any, index: Any, value: Any) -> Any:
    def put(parts: Sequence[Tensor]) -> Tensor:
        result = parts[0].clone()
        result[index] = parts[1].to(result.dtype)
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
register(torch.Tensor.__setitem__, Rule("__setitem__", setitem, in_place=True))
register(torch.Tensor.copy_, Rule("copy_", copy, in_place=True))


def _scatter_into(function: Callable[..., Tensor]) -> Callable[..., Any]:
    def apply(x: Any, source: Any, *args: Any, **options: Any) -> Any:
        return _together([x, source], lambda parts: function(parts[0], parts[1], *args, **options))

    return apply


for _name in ("select_scatter", "slice_scatter", "diagonal_scatter"):
    rule(_name, in_place=False)(_scatter_into(plain_function(_name)))


@rule("index_put")
def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    if accumulate:
        raise UnsupportedOperation("accumulate=True is not followed; use index_add")
    return setitem(x, tuple(indices), values)


@rule("index_copy")
def index_copy(x: Any, dim: int, index: Tensor, source: Any) -> Any:
    return _together([x, source], lambda parts: parts[0].index_copy(dim, index, parts[1]))


@rule("index_fill")
def index_fill(x: Any, dim: int, index: Tensor, value: Any) -> Any:
    def fill(parts: Sequence[Tensor]) -> Tensor:
        chosen = torch.zeros(parts[0].shape[dim], dtype=torch.bool, device=index.device).index_fill(0, index, True)
        shape = [1] * parts[0].ndim
        shape[dim] = -1
        return torch.where(chosen.view(shape), parts[1], parts[0])

    return _together([x, value], fill)


@rule("masked_scatter")
def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    _constant(mask, "mask")
    return _together([x, source], lambda parts: parts[0].masked_scatter(mask, parts[1]))


@rule("scatter")
def scatter(x: Any, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: Any = None) -> Any:
    if reduce is not None:
        raise UnsupportedOperation("reduce= is not followed; use scatter_add")
    source = value if src is None else src

    def put(parts: Sequence[Tensor]) -> Tensor:
        new = parts[1] if parts[1].ndim else parts[1].expand(index.shape)
        return parts[0].scatter(dim, index, new)

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


rule("index_add")(_accumulate("index_add"))
rule("scatter_add")(_accumulate("scatter_add"))
