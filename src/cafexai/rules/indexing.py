"""Operations that put values into places: where, masks, assignments, scatters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .._core.value import Scores
from ..errors import UnsupportedOperation
from .arithmetic import add, constant_like, div, multiply
from .registry import Rule, plain_function, rule
from .registry import add as register
from .shape import move


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


@rule("where", in_place=False, kinds=["padding"])
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


@rule(torch.Tensor.where, name="where", kinds=["padding"])
def where_method(x: Any, condition: Any, other: Any) -> Any:
    return where(condition, x, other)


@rule("masked_fill", kinds=["padding"])
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


register(torch.Tensor.fill_, Rule("fill_", fill, in_place=True, kinds=frozenset({"write"})))
register(torch.Tensor.zero_, Rule("zero_", fill, in_place=True))
register(torch.Tensor.__setitem__, Rule("__setitem__", setitem, in_place=True, kinds=frozenset({"index", "write"})))
register(torch.Tensor.copy_, Rule("copy_", copy, in_place=True, kinds=frozenset({"write"})))


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


@rule("index_copy", kinds=["index", "write"])
def index_copy(x: Any, dim: int, index: Tensor, source: Any) -> Any:
    return _together([x, source], lambda old, new: old.index_copy(dim, index, new))


@rule("index_fill", kinds=["index", "write"])
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
        if reduce not in ("add", "multiply") or src is None:
            raise UnsupportedOperation("reduce= is followed with src= only; use scatter_reduce")
        return scatter_reduce(x, dim, index, src, "sum" if reduce == "add" else "prod")
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


@rule("scatter_reduce")
def scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    """Of all elements that go to one place, and of the one there: their sum, mean, largest, smallest or product."""
    shape, like = x.shape, x if isinstance(x, Scores) else src
    source = move(src, lambda v: v[tuple(slice(n) for n in index.shape)])
    counts = torch.zeros(shape, device=index.device).scatter_add(dim, index, torch.ones(index.shape, device=index.device))
    own = torch.ones_like(counts) if include_self else (counts == 0).to(counts.dtype)  # whether what is there counts
    if reduce in ("sum", "mean"):
        whole = _accumulate("scatter_add")(multiply(x, constant_like(own, like)), dim, index, source)
        return whole if reduce == "sum" else div(whole, constant_like((counts + own).clamp_min(1), like))
    members = _members(shape, dim, index, own)
    windows = like.join(
        like.run,
        lambda *all_: torch.cat([one.flatten() for one in all_])[members],
        [_tensor(part, like) for part in (x, source)],
    )
    valid = members.diff(dim=-1, prepend=members[..., :1] - 1) != 0  # the last one is repeated
    if reduce != "prod":
        sign = 1 if reduce == "amax" else -1
        return windows.scale(sign).largest((-1,), valid=valid).scale(sign)
    product, *factors = windows.reshape(lambda v: v.unbind(-1))
    for factor, there in zip(factors, valid.unbind(-1)[1:], strict=True):
        product = where(there, multiply(product, factor), product)
    return product


def _members(shape: Any, dim: int, index: Tensor, own: Tensor) -> Tensor:
    """For each place what goes there, of the elements there and those of the source; the last of them is repeated."""
    size, count = own.numel(), index.numel()
    places = torch.arange(size, device=index.device).view(shape)
    target = torch.cat([places.flatten(), _targets(places, dim, index)])
    counted = torch.cat([own.flatten().bool(), torch.ones(count, dtype=torch.bool, device=index.device)]).nonzero()[:, 0]
    order = counted[target[counted].argsort(stable=True)]
    target = target[order]
    rank = torch.arange(len(order), device=index.device) - torch.searchsorted(target, target)
    members = torch.zeros(size, int(rank.max()) + 1, dtype=torch.long, device=index.device)
    members[target, rank] = order
    return members.cummax(1).values.view(*shape, -1)


def _targets(places: Tensor, dim: int, index: Tensor) -> Tensor:
    """The place where each element of a source goes."""
    corner = places[tuple(slice(n) if d != dim % places.ndim else slice(0, 1) for d, n in enumerate(index.shape))]
    return (corner + index * places.stride(dim)).flatten()


rule("index_add", kinds=["index"])(_accumulate("index_add"))
rule("scatter_add")(_accumulate("scatter_add"))
