"""Steps on delta and total at once, and back; the linear step; the bias ledger.

A step is a pair of pure functions: ``apply(delta, total, *arguments)`` gives the new delta and total and what the backward pass
needs, tensors and the rest; ``pull(gradients, tensors, rest)`` takes gradients of the new delta and total back to the old ones.
A chain of layers calls them in a loop; elsewhere ``InGraph`` makes them a part of torch's graph. The other step, an activation,
is in ``activation.py``.

A bias enters a sum as delta += b, total += |b|. Its share of the output is then read off the gradient at that sum during the
backward pass, by layer and row. It is never taken as "what the features leave over": that would always come out right, also
when a path was lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import RowsMixed
from .row_index import MIXED, Rows, spread
from .session_cache import SessionCache

Pair = tuple[Tensor | None, Tensor | None]


class Step(NamedTuple):
    """Forward and back."""

    apply: Callable[..., tuple[Tensor, Tensor, Sequence[Tensor | None], tuple[Any, ...]]]
    pull: Callable[[Sequence[Tensor | None], Sequence[Any], tuple[Any, ...]], Pair]


class InGraph(torch.autograd.Function):
    """A step as one node of torch's graph."""

    @staticmethod
    def forward(ctx: Any, delta: Tensor, total: Tensor, step: Step, *arguments: Any) -> tuple[Tensor, Tensor]:
        new_delta, new_total, tensors, ctx.rest = step.apply(delta, total, *arguments)
        ctx.save_for_backward(*tensors)
        ctx.pull, ctx.unused = step.pull, (None,) * (1 + len(arguments))
        ctx.set_materialize_grads(False)
        return new_delta, new_total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        return (*ctx.pull(gradients, ctx.saved_tensors, ctx.rest), *ctx.unused)


class JointStep(Protocol):
    """A step on several values, whose change is a linear map of theirs; it computes its constants where it needs them."""

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """What it keeps."""

    def outputs(self) -> tuple[Tensor, Tensor]:
        """The result at the reference, and its change."""

    def push(self, *changes: Tensor | None) -> Tensor:
        """What other changes of the values bring about; dimensions may stand in front. None: a constant."""

    def pull(self, gradient: Tensor, wanted: Sequence[bool]) -> Sequence[Tensor | None]:
        """What flows back to the values that are wanted."""


class JointlyInGraph(torch.autograd.Function):
    """The change of a joint step as one node of torch's graph."""

    @staticmethod
    def forward(ctx: Any, step: JointStep, change: Tensor, *deltas: Tensor | None) -> Tensor:
        ctx.step = step
        ctx.save_for_backward(*step.tensors)
        return change.view_as(change)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        ctx.saved_tensors  # noqa: B018  (torch checks that they are unchanged)
        return None, None, *ctx.step.pull(gradient, ctx.needs_input_grad[2:])


def per_row(gradient: Tensor, constant: Tensor, rows: Rows, batch: int) -> Tensor:
    """Sum of gradient * constant over the elements of each row. Shape (batch,)."""
    if rows is None and constant.ndim == 1 and gradient.ndim > 1 and gradient.shape[0] == batch:
        if gradient.shape[-1] == constant.shape[0]:  # the bias of a linear layer
            shares = gradient @ constant
            return shares if shares.ndim == 1 else shares.reshape(batch, -1).sum(1)
    constant = constant.view((1,) * (gradient.ndim - constant.ndim) + constant.shape)
    if batch == 1:
        return (gradient * constant).sum().view(1) if constant.numel() > 1 else (gradient.sum() * constant.view(()))[None]
    if rows is MIXED:
        raise RowsMixed(
            "explain(...): a bias is added to a value that joins several rows of the batch (such as a mean over the "
            "batch), so it belongs to no single row. Explain one row at a time: batch_size=1."
        )
    if rows is not None:
        index, shares = (
            spread(rows, gradient.shape, batch, gradient.device).flatten().long() - 1,
            (gradient * constant).flatten(),
        )
        if bool(((index < 0) & (shares != 0)).any()):
            raise RowsMixed(
                "explain(...): a bias is added to elements whose row of the batch is unknown, because the model mixes "
                "constants and rows in one dimension. Explain one row at a time: batch_size=1."
            )
        return gradient.new_zeros(batch).index_add_(0, index.clamp_min_(0), shares)
    same = [dim for dim in range(1, gradient.ndim) if constant.shape[dim] == 1]
    if same:
        gradient = gradient.sum(same, keepdim=True)
    if constant.shape[0] == 1:
        return gradient.reshape(batch, -1) @ constant.flatten()
    return (gradient * constant).reshape(batch, -1).sum(1)


def half_sizes(from_delta: Tensor | None, from_total: Tensor | None) -> tuple[Tensor, Tensor] | None:
    """(a - b) / 2 and (a + b) / 2 with a = |g + h|, b = |g - h|: what d and |d| have in the size of g d + h |d|."""
    known = from_delta if from_delta is not None else from_total
    if known is None:
        return None
    g, h = (torch.zeros_like(known) if one is None else one for one in (from_delta, from_total))
    rising, falling = (g + h).abs(), (g - h).abs()
    return (rising - falling) / 2, (rising + falling) / 2


class Added:
    """A constant that was added to a value of these rows, with the path of the module that did it."""

    def __init__(self, book: Biases, constant: Tensor | Callable[[], Tensor], path: str, masks: bool = True) -> None:
        self.book = book
        self.path = path
        self.rows: Rows = None
        self.constant = constant
        self.masks = masks  # it may have infinite elements, as in a mask
        self._amount: tuple[Tensor, Tensor] | None = None

    @property
    def amount(self) -> tuple[Tensor, Tensor]:
        """A small constant and its absolute value."""
        if self._amount is None:
            assert isinstance(self.constant, Tensor)
            self._amount = self.constant, self.constant.abs()
        return self._amount

    def enter(self, from_delta: Tensor | None, from_total: Tensor | None) -> None:
        """Write down what flows back to delta and total through the constant."""
        for gradient, absolute in ((from_delta, False), (from_total, True)):
            if gradient is None:
                continue
            if callable(self.constant):
                amount = self.constant().abs() if absolute else self.constant()
            else:
                amount = self.amount[absolute]
            self.book.page.append((self.path, self._share(gradient, amount)))
        if self.book.sizes is not None:
            self._enter_size(from_delta, from_total)

    def _enter_size(self, from_delta: Tensor | None, from_total: Tensor | None) -> None:
        """Write down the size of what flows back, |g b + h |b|| element by element."""
        assert self.book.sizes is not None
        halves = half_sizes(from_delta, from_total)
        if halves is not None:
            amount = self.constant() if callable(self.constant) else self.constant
            self.book.sizes.append((self.path, self._share(halves[0], amount) + self._share(halves[1], amount.abs())))

    def _share(self, gradient: Tensor, amount: Tensor) -> Tensor:
        share = per_row(gradient, amount, self.rows, self.book.batch)
        if self.masks and not math.isfinite(share.sum().item()):
            return self._without_infinity(gradient, amount)
        return share

    def _without_infinity(self, gradient: Tensor, amount: Tensor) -> Tensor:
        """The share of a constant with infinite elements, as in a mask; nothing may flow back to these."""
        finite = amount.isfinite()
        share = per_row(gradient, amount.where(finite, 0), self.rows, self.book.batch)
        return share.where((gradient == 0).logical_or(finite).all(), torch.nan)


class Biases:
    """Collects what the biases brought, one page per backward pass."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.layers: dict[str, tuple[torch.dtype, torch.device]] = {}  # in order, with what its scores are held in
        self.page: list[tuple[str, Tensor]] = []
        self.sizes: list[tuple[str, Tensor]] | None = None  # the same without signs, where that is asked for

    def note_layer(self, path: str, like: Tensor) -> None:
        """The layer is listed, also if nothing flows back to it."""
        if path not in self.layers:
            self.layers[path] = like.dtype, like.device

    def watch(self, parts: Sequence[Tensor], constant: Tensor | Callable[[], Tensor], rows: Rows, path: str) -> None:
        """From now on, enter what flows back to ``parts``, delta and perhaps total, through the constant added to them."""
        self.note_layer(path, parts[0])
        added = Added(self, constant, path)
        added.rows = rows
        parts[0].register_hook(lambda gradient: added.enter(gradient, None))
        if len(parts) > 1:
            parts[1].register_hook(lambda gradient: added.enter(None, gradient))

    def take(self) -> dict[str, Tensor]:
        """The finished page, one sum for each layer; a new page is begun."""
        page, self.page = self.page, []
        return self._by_layer(page)

    def take_sizes(self) -> dict[str, Tensor]:
        """The same for what was entered without signs."""
        return self._by_layer(self.sizes or [])

    def _by_layer(self, page: list[tuple[str, Tensor]]) -> dict[str, Tensor]:
        sums: dict[str, Tensor] = {}
        for path, share in page:
            sums[path] = sums[path] + share if path in sums else share
        return {
            path: sums[path] if path in sums else torch.zeros(self.batch, dtype=dtype, device=device)
            for path, (dtype, device) in self.layers.items()
        }


def apply_linear(value: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear in the precision of the value."""
    return F.linear(value, weight.to(value.dtype), None if bias is None else bias.to(value.dtype))


SMALL = 2**16  # elements of a weight that are kept in any case


class Magnitudes:
    """The absolute weights of one call: computed once, also where a layer is used many times, and again in the next call.

    They are not kept between calls: a write to ``weight.data`` leaves no trace by which a stale copy could be told, short of
    reading the whole weight, which takes as long as computing it anew. Where a weight is larger than the value that it meets,
    its absolute value is not even kept for the backward passes: it would need more memory than all else. In a session,
    those of parameters and buffers come from its ``cache``.
    """

    def __init__(self, cache: SessionCache | None = None) -> None:
        self._cache = cache
        self._kept: dict[Any, tuple[Tensor, Tensor]] = {}

    def of(self, weight: Tensor, value: Tensor) -> tuple[Tensor, bool]:
        """The absolute weight in the precision of the value, and whether it may be kept."""
        kept = self.find_kept(weight, value)
        return (weight.to(value.dtype).abs(), False) if kept is None else (kept, True)

    def find_kept(self, weight: Tensor, value: Tensor) -> Tensor | None:
        """The absolute weight in the precision of the value, if it may be kept."""
        if self._cache is not None and self._cache.owns(weight):
            return self._cache.absolute(weight, value.dtype)
        if weight.layout is not torch.strided or weight.numel() > max(value.numel(), SMALL):
            return None
        key = (weight.data_ptr(), weight.shape, weight.stride(), weight.dtype, value.dtype, weight._version)
        known = self._kept.get(key)
        if known is None:  # with the weight itself, so that no other tensor can take its place in memory
            known = self._kept[key] = (weight, weight.to(value.dtype).abs())
        return known[1]


BLOCK = 2**18  # elements of an absolute weight that is not kept which are made at a time, so that little memory is asked for


def through_absolute(value: Tensor, weight: Tensor) -> Tensor:
    """F.linear(value, weight.abs()), some units at a time."""
    result = value.new_empty(*value.shape[:-1], len(weight))
    rows, flat = value.reshape(-1, value.shape[-1]), result.view(-1, len(weight))
    for units, part in _absolute_parts(weight, value.dtype):
        torch.mm(rows, part.t(), out=flat[:, units])
    return result


def back_through_absolute(gradient: Tensor, weight: Tensor) -> Tensor:
    """gradient @ weight.abs(), some units at a time."""
    rows = gradient.reshape(-1, len(weight))
    result = gradient.new_zeros(len(rows), weight.shape[1])
    for units, part in _absolute_parts(weight, gradient.dtype):
        torch.addmm(result, rows[:, units], part, out=result)
    return result.view(*gradient.shape[:-1], weight.shape[1])


def _absolute_parts(weight: Tensor, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
    """Some units and their absolute weights, in memory that the next ones take."""
    step = max(1, BLOCK // max(1, weight.shape[1]))
    memory = torch.empty(min(step, len(weight)), weight.shape[1], dtype=dtype, device=weight.device)
    for first in range(0, len(weight), step):
        part = weight[first : first + step]
        yield slice(first, first + len(part)), torch.abs(part.to(dtype), out=memory[: len(part)])


class Deltas:
    """The results of linear layers for delta, in order: they do not depend on c, so that passes for further c reuse them."""

    def __init__(self) -> None:
        self._known: list[tuple[Any, Tensor]] = []
        self._place = 0

    def rewind(self) -> None:
        """A new pass begins."""
        self._place = 0

    def next(self, delta: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The result of this layer, as computed now or in the first pass."""
        layer = (weight.data_ptr(), delta.shape, delta.dtype)
        if self._place < len(self._known) and self._known[self._place][0] == layer:
            result = self._known[self._place][1].detach()
        else:
            result = F.linear(delta, weight, bias)
            del self._known[self._place :]
            self._known.append((layer, result.detach()))
        self._place += 1
        return result


def _through_weights(
    delta: Tensor, total: Tensor, weight: Tensor, magnitudes: Magnitudes, added: Added | None, known: Tensor | None
) -> tuple[Tensor, Tensor, Sequence[Tensor], tuple[Any, ...]]:
    """Delta meets the weight, total its absolute value; ``known`` is the new delta where that was computed before."""
    magnitude, keep = magnitudes.of(weight, total)
    bias, size = (None, None) if added is None else added.amount
    new_delta = F.linear(delta, _like(weight, delta), bias) if known is None else known.detach()
    return new_delta, F.linear(total, magnitude, size), (weight,), (magnitude if keep else None, added)


def _pull_weights(gradients: Sequence[Tensor | None], tensors: Sequence[Tensor], rest: tuple[Any, ...]) -> Pair:
    """What flows back to delta and total; what came through the bias is entered in the bias ledger."""
    (weight,), (magnitude, added), (from_delta, from_total) = tensors, rest, gradients
    if added is not None:
        added.enter(from_delta, from_total)
    to_delta = None if from_delta is None else from_delta @ _like(weight, from_delta)
    if from_total is None:
        return to_delta, None
    return to_delta, from_total @ (_like(weight, from_total).abs() if magnitude is None else magnitude)


def _like(weight: Tensor, value: Tensor) -> Tensor:
    """The weight in the precision of the value; asked first, as the answer nearly always is that it has it."""
    return weight if weight.dtype is value.dtype else weight.to(value.dtype)


LINEAR = Step(_through_weights, _pull_weights)
