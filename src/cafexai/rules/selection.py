"""Selection between scored values: maxima, minima, max pools, sorting."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._core.math_functions import over_rows
from .._core.provenance import LARGER, record
from .._core.value import Scores
from .arithmetic import constant_like
from .elementwise import spread
from .recognise import SORTED
from .registry import find, plain_function, rule


def over(x: Scores, dim: Any, keepdim: bool, sign: int) -> Any:
    """The largest over dims, or with sign -1 the smallest."""
    dims = tuple(range(x.ndim)) if dim is None or dim == () else (dim,) if isinstance(dim, int) else tuple(dim)
    if not x.ndim:
        return x
    return x.largest(dims, keepdim) if sign > 0 else x.scale(-1).largest(dims, keepdim).scale(-1)


rule("amax", in_place=False)(lambda x, dim=None, keepdim=False: over(x, dim, keepdim, 1))
rule("amin", in_place=False)(lambda x, dim=None, keepdim=False: over(x, dim, keepdim, -1))


def _extreme(sign: int) -> Callable[..., Any]:
    structure = torch.return_types.max if sign > 0 else torch.return_types.min

    def apply(x: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None, axis: Any = None) -> Any:
        other = dim if isinstance(dim, (Tensor, Scores)) else other
        if other is not None:
            return _of_two(x, other, sign)
        dim = axis if dim is None else dim
        if dim is None:
            return over(x, None, False, sign)
        find = torch.argmax if sign > 0 else torch.argmin
        index = x.freeze("max (index)" if sign > 0 else "min (index)", lambda value: find(value, dim, keepdim=keepdim), "index")
        return structure((over(x, dim, keepdim, sign), index))

    return apply


rule("max", in_place=False)(_extreme(1))
rule("min", in_place=False)(_extreme(-1))


def _of_two(a: Any, b: Any, sign: int) -> Any:
    """With a constant side an elementwise function, else a selection between two."""
    function = torch.maximum if sign > 0 else torch.minimum
    if not isinstance(a, Scores):
        a, b = b, a
    if not isinstance(b, Scores):
        b = constant_like(b, a)
        result = spread(a, b).elementwise(lambda v: function(v, b))
    else:
        shape = torch.broadcast_shapes(a.shape, b.shape)
        both = a.join(a.run, lambda *parts: torch.stack([part.expand(shape) for part in parts]).movedim(0, -1), [a, b])
        result = over(both, -1, False, sign)
    return record(result, LARGER, (a, b)) if sign > 0 else result


rule("maximum", "fmax", in_place=False)(lambda a, b: _of_two(a, b, 1))
rule("minimum", "fmin", in_place=False)(lambda a, b: _of_two(a, b, -1))


def _bound(name: str) -> None:
    """A bound that depends on the input, too, is a selection between two."""
    elementwise = find(plain_function(name))
    assert elementwise is not None

    @rule(name)
    def apply(x: Any, *bounds: Any, **named: Any) -> Any:
        if isinstance(x, Scores) and not any(isinstance(bound, Scores) for bound in (*bounds, *named.values())):
            return elementwise.apply(x, *bounds, **named)
        low, high = (*bounds, None, None)[:2] if name != "clamp_max" else (None, (*bounds, None)[0])
        for bound, sign in ((named.get("min", low), 1), (named.get("max", high), -1)):
            if bound is not None:
                x = (
                    _of_two(x, bound, sign)
                    if isinstance(x, Scores) or isinstance(bound, Scores)
                    else torch.clamp(x, **{"min" if sign > 0 else "max": bound})
                )
        return x


for _name in ("clamp", "clip", "clamp_min", "clamp_max"):
    _bound(_name)


def _tuple(value: Any, count: int) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,) * count
    return tuple(value) * (count if len(value) == 1 else 1)


class _Windows:
    """Cuts the last dimensions into windows, of which each becomes the new last dimension; zeros stand outside.

    Elements of a window lie far apart in memory, those of neighbouring windows beside each other: so windows add up fast.
    """

    def __init__(self, size: Sequence[int], out: Sequence[int], kernel: Any, stride: Any, padding: Any, dilation: Any) -> None:
        self.pads: list[int] = []
        ranges = []
        for length, count, k, s, p, d in zip(size, out, kernel, stride, padding, dilation, strict=True):
            needed = (count - 1) * s + (k - 1) * d + 1
            self.pads = [p, max(0, needed - length - p), *self.pads]
            ranges.append([slice(i * d, i * d + (count - 1) * s + 1, s) for i in range(k)])
        self.parts: list[Any] = [
            (..., *part) for part in itertools.product(*ranges)
        ]  # where each element of a window is taken from
        self.spatial = len(size)

    def __call__(self, value: Tensor) -> Tensor:
        """The windows; of a value that is one row for all, those of one row."""
        if value.requires_grad and torch.is_grad_enabled():
            windows: Tensor = _Cut.apply(value, self)
            return windows
        return self.cut(value) if value.ndim == self.spatial else over_rows(self.cut, value)

    def cut(self, value: Tensor) -> Tensor:
        """The windows."""
        value = F.pad(value, self.pads) if any(self.pads) else value
        return torch.stack([value[part] for part in self.parts]).movedim(0, -1)

    def put_back(self, windows: Tensor, shape: torch.Size) -> Tensor:
        """The sum of what lies at each element of a value of this shape; the transpose of ``cut``."""
        padded = [*shape[: len(shape) - self.spatial]]
        for i, length in enumerate(shape[len(shape) - self.spatial :]):
            padded.append(length + sum(self.pads[2 * (self.spatial - i) - 2 : 2 * (self.spatial - i)]))
        value = windows.new_zeros(padded)
        for part, window in zip(self.parts, windows.unbind(-1), strict=True):
            value[part] += window
        return F.pad(value, [-pad for pad in self.pads]) if any(self.pads) else value


class _Cut(torch.autograd.Function):
    """Windows as one node of torch's graph, which writes all of them back into one value."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, windows: _Windows) -> Tensor:
        ctx.windows, ctx.shape = windows, value.shape
        return windows.cut(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return ctx.windows.put_back(gradient, ctx.shape), None


def _max_pool(spatial: int, with_indices: bool) -> Callable[..., Any]:
    plain: Any = getattr(F, f"max_pool{spatial}d")

    def apply(
        x: Scores,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        with_places = return_indices or with_indices
        size = x.shape[-spatial:]
        value = x.value if with_places else x.template.new_empty((1, *size))  # else only the shape of the result is asked for
        pooled, indices = plain(value, kernel_size, stride, padding, dilation, ceil_mode, return_indices=True)
        kernel = _tuple(kernel_size, spatial)
        steps = kernel if stride is None or stride == [] else _tuple(stride, spatial)
        cut = _Windows(size, pooled.shape[-spatial:], kernel, steps, _tuple(padding, spatial), _tuple(dilation, spatial))
        valid = cut(value.new_ones(size)).bool() if any(cut.pads) else None
        result = x.reshape(cut, aligned=x.ndim == spatial + 2).largest((-1,), valid=valid)
        return (result, indices) if with_places else result

    return apply


def _adaptive_max_pool(spatial: int, with_indices: bool) -> Callable[..., Any]:
    plain: Any = getattr(F, f"adaptive_max_pool{spatial}d")

    def apply(x: Scores, output_size: Any, return_indices: bool = False) -> Any:
        value = x.value
        pooled, indices = plain(value, output_size, return_indices=True)
        places, valid = [], torch.ones((), dtype=torch.bool, device=value.device)
        for i in range(spatial):
            place, inside = _bins(value.shape[i - spatial], pooled.shape[i - spatial], value.device)
            places.append(place)
            shape = [1] * 2 * spatial
            shape[i], shape[spatial + i] = inside.shape
            valid = valid & inside.view(shape)

        first = x.ndim - spatial

        def cut(v: Tensor) -> Tensor:
            for dim, place in enumerate(places, first):
                v = v.index_select(dim, place.flatten()).unflatten(dim, place.shape).movedim(dim + 1, -1)
            return v

        windows = x.reshape(cut, aligned=x.ndim == spatial + 2)
        result = windows.largest(tuple(range(-spatial, 0)), valid=valid)
        return (result, indices) if return_indices or with_indices else result

    return apply


def _bins(length: int, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The elements of each bin of an adaptive pool, padded to equal length, and which of them are real."""
    edges = torch.arange(count, device=device)
    start, end = edges * length // count, -(-(edges + 1) * length // count)
    place = start[:, None] + torch.arange(int((end - start).max()), device=device)
    return place.clamp_max(length - 1), place < end[:, None]


for _n in (1, 2, 3):
    # The functions that torch.nn.functional calls itself always return the indices as well.
    rule(f"adaptive_max_pool{_n}d")(_adaptive_max_pool(_n, True))
    rule(getattr(F, f"adaptive_max_pool{_n}d"), name=f"adaptive_max_pool{_n}d")(_adaptive_max_pool(_n, False))
    rule(f"max_pool{_n}d")(_max_pool(_n, False))
    rule(f"max_pool{_n}d_with_indices")(_max_pool(_n, True))
    rule(f"adaptive_max_pool{_n}d_with_indices")(_adaptive_max_pool(_n, True))


def _in_order(x: Scores, name: str, order: Callable[[Tensor], Tensor], dim: int) -> tuple[Any, Tensor]:
    """The elements in an order that is frozen at the current value."""
    index = x.freeze(name, order)
    return x.reshape(lambda v: v.gather(dim, index)), index


@rule("msort", in_place=False)
def msort(x: Scores) -> Any:
    return sort(x, 0).values


@rule("sort", in_place=False)
def sort(x: Scores, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    return torch.return_types.sort(
        _in_order(x, SORTED, lambda v: torch.sort(v, dim=dim, descending=descending, stable=True).indices, dim)
    )


@rule("topk", in_place=False)
def topk(x: Scores, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return torch.return_types.topk(_in_order(x, "topk (order)", lambda v: torch.topk(v, k, dim, largest, sorted).indices, dim))
