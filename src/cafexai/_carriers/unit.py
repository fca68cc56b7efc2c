"""A carrier in which only the direct inputs of a unit are in conflict, with their net values (``netting="unit"``).

As for paths, but total restarts at |delta| before every map that sums over elements (weights, convolutions, attention, means,
products, maxima) and behind every elementwise function: what cancelled before a unit does not come back. So nothing grows with
depth, and the combined scores follow from delta alone. A total is asked for by the elementwise function that follows a sum, and
made then; most never are.

Positive and negative of a feature are its net shares along its first edges, split by sign there. With w the weight of an
edge from an element with value d to a unit, and g, h the gradients at delta and total there, the share is w d (g + h sgn(w d)).
Over all units its size is |d| times

    |W|' (a + b) / 2 + sgn(d) W' (a - b) / 2,    a = |g + h|, b = |g - h|,

one more product with the weights and their absolute values at the inputs. What came straight from an input to such a map, by
moves, scales and sums, is its part in ``first``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._core.activation import LARGE
from .._core.backward import Outcome, Passed, at_features, distribute, find_cut_off, split
from .._core.completeness import check_range
from .._core.contract import Made, Move
from .._core.lazy import OnDemand
from .._core.math_functions import ONE_TO_ONE, Function
from .._core.row_index import Rows, behind_map
from .._core.run import Run
from .._core.steps import (
    LINEAR,
    Added,
    JointlyInGraph,
    JointStep,
    Magnitudes,
    Pair,
    Step,
    apply_linear,
    back_through_absolute,
    half_sizes,
    through_absolute,
)
from .totals import TotalScores
from .unit_activation import net_activation

Shares = tuple[Tensor, Tensor]  # of delta and of total
Sizes = Callable[[Tensor, Tensor], tuple[Tensor | None, Tensor]]  # of the gradients behind, what sizes have at ``first``


class Seen(torch.autograd.Function):
    """Delta and total as they are; what flows back to both is shown to ``see``."""

    @staticmethod
    def forward(ctx: Any, delta: Tensor, total: Tensor, see: Callable[[Tensor | None, Tensor | None], None]) -> Shares:
        ctx.see = see
        ctx.set_materialize_grads(False)
        return delta.view_as(delta), total.view_as(total)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        ctx.see(*gradients)
        return (*gradients, None)


class TotalThrough(torch.autograd.Function):
    """The total behind a linear layer."""

    @staticmethod
    def forward(ctx: Any, total: Tensor, weight: Tensor, magnitudes: Magnitudes) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.magnitude = magnitudes.find_kept(weight, total)
        return through_absolute(total, weight) if ctx.magnitude is None else F.linear(total, ctx.magnitude)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (weight,) = ctx.saved_tensors
        return back_through_absolute(gradient, weight) if ctx.magnitude is None else gradient @ ctx.magnitude, None, None


class UnitState:
    """Of one pass: the first edges, from inputs to units, with what flowed back along them."""

    def __init__(self) -> None:
        self.edges: list[Any] = []

    def release(self) -> None:
        """Release what the backward pass needs."""
        self.edges.clear()


class UnitScores(TotalScores):
    """delta and total, the sum of the sizes of the direct inputs."""

    meaning = "in which only the direct inputs of a unit are in conflict"
    forgets = True
    new_state = UnitState
    netted = False  # total is |delta|
    waits = False  # total is made on demand, however large it is, as far as values are only moved
    first: Shares | None = None  # of delta and total, what came from the inputs through no unit yet
    total: Tensor = OnDemand()  # type: ignore[assignment]
    parts: tuple[Tensor, ...] = OnDemand(lambda self: (self.delta, self.total))  # type: ignore[assignment]

    def __init__(
        self, run: Run, reference: Tensor | None, delta: Tensor, total: Tensor | Callable[[], Tensor], rows: Rows
    ) -> None:
        self.run = run
        self.reference = reference
        self.delta = self.template = delta
        self.rows = rows
        if isinstance(total, Tensor):
            self.total = total
        elif delta.numel() >= LARGE:  # what it is made of would be kept until then
            self.total = total()
        else:
            self._make_total = total

    def _make_result(self, made: Made, total: Callable[[], Tensor]) -> Any:
        reference, delta, rows = made
        return type(self)(self.run, reference, delta, total, rows)

    def _later_total(self, made: Made, total: Callable[[], Tensor]) -> Any:
        """The same, whose total is made on demand at any size: it is rarely asked for."""
        reference, delta, rows = made
        return type(self)(self.run, reference, delta, delta, rows)._wait(total)

    def _wait(self, total: Callable[[], Tensor]) -> Any:
        """Make the total on demand."""
        del self.total
        self._make_total, self.waits = total, True
        return self

    @classmethod
    def of_input(cls, run: Run, x: Tensor, reference: Tensor | None) -> Any:
        scores: Any = super().of_input(run, x, reference)
        scores.first, scores.netted = None if run.only_net else scores.parts, True
        return scores

    def begin(self) -> Any:
        scores: Any = self.copy()
        scores.total = self.delta.abs()  # which is no function of the delta that scores are about:
        scores.delta = scores.template = self.delta.view_as(self.delta)
        scores.first, scores.netted = scores.parts, True
        return scores

    def _make_copy(self) -> Any:
        total = vars(self).get("total", lambda: self.total)
        copy: Any = type(self)(self.run, self.reference, self.delta, total, self.rows)
        copy.first, copy.netted = self.first, self.netted
        return copy

    def _alone(self) -> Any:
        """As a direct input of what follows: with its net value alone."""
        if self.netted:
            return self._make_copy()
        alone: Any = type(self)(self.run, self.reference, self.delta, self.delta.abs, self.rows)
        alone.first, alone.netted = self.first, True
        return alone

    def _see(self, see: Callable[[Tensor | None, Tensor | None], None]) -> None:
        """Register a gradient hook on this value; call it before the value is used."""
        self.delta, self.total = self.parts = Seen.apply(self.delta, self.total, see)
        self.template = self.delta

    activation = staticmethod(net_activation)

    def linear_step(self, weight: Tensor, first: bool) -> Step:
        if not first:
            return NET_LINEAR
        sizes = self._along(lambda v: F.linear(v, weight), lambda v: F.linear(v, weight.abs()))

        def pull(gradients: Sequence[Tensor | None], tensors: Sequence[Tensor], rest: tuple[Any, ...]) -> Pair:
            self.run.state.edges.append((self.parts, sizes, gradients))
            return LINEAR.pull(gradients, tensors, rest)

        return Step(LINEAR.apply, pull)

    def watch(self, constant: Any, rows: Rows, path: str) -> None:
        added = Added(self.run.biases, constant, path)
        added.rows = rows
        self.run.biases.note_layer(path, self.delta)
        self._see(added.enter)

    def _edges(self, behind: Any, first: Shares, sizes: Sizes) -> None:
        """Note the edges from ``first`` to a new value."""
        state = self.run.state
        behind._see(lambda *gradients: state.edges.append((first, sizes, gradients)))

    def _along(self, of_delta: Function, of_total: Function) -> Sizes:
        """The sizes along the edges of a map of this value, which has its net value; given as it acts on delta and on total."""
        value = self.delta.detach()

        def sizes(half_difference: Tensor, half_sum: Tensor) -> tuple[None, Tensor]:
            pulled = []
            for fn, gradient in ((of_delta, half_difference), (of_total, half_sum)):
                with torch.enable_grad():
                    start = torch.zeros_like(value).requires_grad_()
                    pulled.append(torch.autograd.grad(fn(start).expand(gradient.shape), start, gradient)[0])
            return None, torch.addcmul(pulled[1], value.sign(), pulled[0])

        return sizes

    @classmethod
    def _carry_join(
        cls, run: Run, fn: Move, parts: Sequence[Any], deltas: list[Tensor], references: list[Any], rows: list[Rows]
    ) -> list[Any]:
        netted = all(isinstance(part, Tensor) or part.netted for part in parts)
        waits = any(isinstance(part, UnitScores) and part.waits for part in parts)

        @functools.cache
        def totals() -> Any:
            moved = fn(*[part.abs() if isinstance(part, Tensor) else part.total for part in parts])
            return [moved] if isinstance(moved, Tensor) else moved

        results: list[Any] = []
        for place, (reference, delta, where) in enumerate(zip(references, deltas, rows, strict=True)):
            total = delta.abs if netted else functools.partial(lambda place: totals()[place], place)
            made = cls(run, reference, delta, delta if waits else total, where)
            results.append(made._wait(total) if waits else made)
        firsts = None
        if any(isinstance(part, UnitScores) and part.first is not None for part in parts):
            moved = [fn(*[_first(part)[side] for part in parts]) for side in (0, 1)]
            firsts = [tuple(moved)] if isinstance(moved[0], Tensor) else list(zip(*moved, strict=True))
        for place, result in enumerate(results):
            result.netted, result.first = netted, None if firsts is None else firsts[place]
        return results

    def _carry_map(
        self, fn: Callable[..., Tensor], constants: tuple[Any, ...], bias: tuple[Any, ...], made: Made, amount: Tensor | None
    ) -> Any:
        if self.first is not None:
            sizes, nothing = tuple(None if one is None else abs(one) for one in constants), (None,) * len(bias)
        if fn in ONE_TO_ONE:
            result: Any = self.map_total(fn, constants, bias, made)
            result.netted = self.netted and amount is None
            if self.first is not None:
                delta, total = self.first
                shape = result.delta.shape
                result.first = (fn(delta, *constants, *nothing).expand(shape), fn(total, *sizes, *nothing).expand(shape))
            return result
        alone = self._alone()
        result = alone.map_total(fn, constants, bias, made)
        if self.first is not None:
            along = alone._along(lambda v: fn(v, *constants, *nothing), lambda v: fn(v, *sizes, *nothing))
            self._edges(result, self.first, along)
        return result

    def _ahead(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        return apply_linear(self.delta if self._native(weight, bias) else self.delta.detach(), weight, bias)

    def _native(self, weight: Tensor, bias: Tensor | None) -> bool:
        """A linear layer whose delta torch computes itself: no entry in the bias ledger, no other precision."""
        return bias is None and self.first is None and weight.dtype is self.delta.dtype

    def _through(
        self, weight: Tensor, bias: Tensor | None, aligned: bool, reference: Tensor | None, known: Tensor | None
    ) -> Any:
        alone = self._alone()
        if self._native(weight, bias) and (known is None or known.requires_grad):
            delta = F.linear(self.delta, weight) if known is None else known
            rows, magnitudes = behind_map(self, apply_linear, (weight,), bias, aligned, delta), self.run.magnitudes
            return self._later_total((reference, delta, rows), lambda: TotalThrough.apply(alone.total, weight, magnitudes))
        result: Any = alone.weigh_total(weight, bias, aligned, reference, known)
        if self.first is not None:
            wide = weight.to(self.delta.dtype)
            self._edges(result, self.first, alone._along(lambda v: F.linear(v, wide), lambda v: F.linear(v, wide.abs())))
        return result

    def _carry_sum(self, other: Any, alpha: float, made: Made) -> Any:
        result: Any = self.add_totals(other, alpha, made)
        if self.first is not None or other.first is not None:
            (delta, total), (yours, size) = _first(self), _first(other)
            shape = result.delta.shape
            result.first = (
                torch.add(delta, yours, alpha=alpha).expand(shape),
                torch.add(total, size, alpha=abs(alpha)).expand(shape),
            )
        return result

    def _carry_function(self, phi: Function, keeps_zero: bool) -> Any:
        entering: Any = self
        if self.first is not None:
            entering = self._make_copy()
            self._edges(entering, self.first, lambda half_difference, half_sum: (half_difference, half_sum))
        result: Any = entering.activate_total(phi, keeps_zero)
        if self.run.along_secants:
            result = entering._make_result((result.reference, result.delta, result.rows), result.delta.abs)
        result.netted = True
        return result

    def _carry_mix(self, weights: Tensor, dims: tuple[int, ...], made: Made) -> Any:
        def mixed(value: Tensor) -> Tensor:
            return (value * weights).sum(dims, keepdim=True)

        alone = self._alone()
        result: Any = alone.mix_total(weights, dims, made)
        if self.first is not None:
            self._edges(result, self.first, alone._along(mixed, mixed))
        return result

    def _carry_product(self, other: Any, fn: Callable[..., Tensor], halves: tuple[Tensor, Tensor], made: Made) -> Any:
        mine, yours = halves
        one, two = self._alone(), other._alone()
        result: Any = one.multiply_totals(two, fn, halves, made)
        if self.first is not None:
            self._edges(result, self.first, one._along(lambda v: fn(v, yours), lambda v: fn(v, yours.abs())))
        if other.first is not None:
            self._edges(result, other.first, two._along(lambda v: fn(mine, v), lambda v: fn(mine.abs(), v)))
        return result

    def _carry_step(self, parts: Sequence[Any], step: JointStep, composed: Callable[[], Any], rows: Rows) -> Any:
        if any(isinstance(part, UnitScores) and part.first is not None for part in parts):
            return composed()
        reference, change = step.outputs()
        delta = JointlyInGraph.apply(step, change, *(None if isinstance(part, Tensor) else part.delta for part in parts))
        return self._later_total((reference, delta, rows), lambda: composed().total)  # a linear layer follows

    @classmethod
    def outcome(cls, passed: Passed, keep: bool = False) -> Outcome:
        check_range(passed)
        run, chosen = passed.run, passed.chosen
        cut = find_cut_off(passed)
        run.state.edges, run.biases.sizes = [], []
        net = distribute(passed, 0, keep=True)
        biases = run.biases.take_sizes()
        entries = [(first, *_pull_sizes(sizes, *gradients)) for first, sizes, gradients in run.state.edges]
        straight: Any = chosen.first  # type: ignore[attr-defined]
        if run.steps is not None:  # a chain, of which the first edges are those of its first layer
            (((_, total), _, of_total),) = entries
            sizes = [total if of_total is None else total * of_total]
        else:
            if straight is not None:  # to the output without any map
                entries.append((straight, None, torch.ones_like(straight[1])))
            sizes = _at_inputs(passed, entries, keep)
        run.state.edges, run.biases.sizes = [], None
        return split(passed, net, sizes, biases, cut)


def _net_through_weights(delta: Tensor, total: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Sequence[Any], Any]:
    """A linear layer of net values."""
    new_delta, new_total, tensors, rest = LINEAR.apply(delta, delta.abs(), *arguments)
    return new_delta, new_total, (delta, *tensors), rest


def _pull_net_weights(gradients: Sequence[Tensor | None], tensors: Sequence[Tensor], rest: tuple[Any, ...]) -> Pair:
    """What flows back to the size of a value flows back to the value, with its sign."""
    delta, *others = tensors
    to_delta, to_total = LINEAR.pull(gradients, others, rest)
    if to_total is not None:
        to_total = to_total.mul_(delta.sign())
        to_delta = to_total if to_delta is None else to_total.add_(to_delta)
    return to_delta, None


NET_LINEAR = Step(_net_through_weights, _pull_net_weights)


def _first(part: Any) -> Shares:
    if isinstance(part, Tensor):
        return torch.zeros_like(part), torch.zeros_like(part)
    return part.first if part.first is not None else (torch.zeros_like(part.delta), torch.zeros_like(part.delta))


def _pull_sizes(sizes: Sizes, from_delta: Tensor | None, from_total: Tensor | None) -> Pair:
    """The gradients that sizes have at ``first``, of those of a value behind."""
    halves = half_sizes(from_delta, from_total)
    return (None, None) if halves is None else sizes(*halves)


def _at_inputs(passed: Passed, entries: list[Any], keep: bool) -> list[Tensor]:
    """The sizes of the features, from the gradients that these have along their first edges."""
    ends = [(leaf, tensor) for leaf in passed.run.leaves for tensor in leaf.scores.parts]
    sizes = [torch.zeros(x.shape, dtype=passed.chosen.delta.dtype, device=x.device) for x in passed.inputs]
    starts = [(part, g) for first, *pair in entries for part, g in zip(first, pair, strict=True) if g is not None]
    starts = [(part, g.expand(part.shape)) for part, g in starts if part.requires_grad]
    if not starts:
        return sizes
    gradients = torch.autograd.grad(
        [part for part, _ in starts],
        [tensor for _, tensor in ends],
        [g for _, g in starts],
        retain_graph=keep,
        allow_unused=True,
    )
    for (leaf, tensor), gradient in zip(ends, gradients, strict=True):
        if gradient is not None:
            shape = passed.inputs[leaf.source].shape
            sizes[leaf.source] = sizes[leaf.source] + at_features(tensor.detach() * gradient, leaf, shape)
    return sizes
