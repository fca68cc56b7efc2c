"""Which features cancel which: ``conflict_pairs`` of an explanation with ``netting="feature"``.

*At the output.* All positive scores add up to P and all negative ones to N (features and biases), so min(P, N) is cancelled. It
is split in two steps. The edges into the output meet first where they come from: of a value that the last weighted sum takes
with weight w (all its edges together), and whose contributions k_f push up by p and down by n in all, the pair of f with
k_f > 0 and g with k_g < 0 has |w| min(p, n) (k_f / p) (-k_g / n). What is left of all positive and negative scores meets at the
output, in proportion to them. Both steps together give min(P, N) exactly.

*Inside.* With c < 1 a part of what features cancel at a unit phi(a), a = r + sum of k_f, never reaches the output: the paper's
K - M of c = 1 less k - m of this c (see ``activation.py``; for ReLU against 0, c = 0 and a dead unit that is min(p, n)). It
is shared among pairs in the same way, with w the derivative of the explained output with respect to phi(a), what is frozen, and
the weights by which maxima and products pass on contributions, being held constant: so far the output would move, to first
order, if it were let through.

Where w is negative, the feature that pushes the value down is the one that pushes the output up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._core.backward import Outcome, Passed
from .._core.contract import Move
from .._core.math_functions import ONE_TO_ONE, Function
from .._core.row_index import Rows, spread
from .._core.run import Run
from .._core.value import Scores
from ..errors import RowsMixed
from .feature import FeatureScores, FeatureState


@dataclass(frozen=True)
class Meeting:
    """Values where contributions of several features meet."""

    gate: Tensor  # 0, added to the value: the derivative of the output with respect to it is w
    contributions: Tensor  # (features + 1, *shape)
    positive: Tensor
    negative: Tensor
    cancelled: Tensor
    rows: Rows


class PairedState(FeatureState):
    """Of one pass: also where contributions met, and whether gradients end at the first gate that they come to."""

    def __init__(self) -> None:
        super().__init__()
        self.meetings: list[Meeting] = []
        self.shut = False


class PairedScores(FeatureScores):
    """Contributions by feature that remember where they met; ``delta`` can be differentiated."""

    new_state = PairedState
    ends_in: tuple[Meeting, ...] = ()  # where the edges come from that make up this value; none: it is an edge itself

    def record_meeting(self) -> tuple[Any, tuple[Meeting, ...]]:
        """A copy of the value with a gate, and the meeting behind it."""
        gate, before, state = torch.zeros_like(self.delta).requires_grad_(), self.delta.view_as(self.delta), self.run.state
        if before.requires_grad:
            before.register_hook(lambda gradient: torch.zeros_like(gradient) if state.shut else None)
        copy = self.copy()
        copy.delta = before + gate
        positive, negative = self.sides()
        smaller = torch.minimum(positive, negative)
        return copy, (Meeting(gate, self.contributions, positive, negative, smaller, self.rows),)

    def ends(self) -> tuple[Any, tuple[Meeting, ...]]:
        """The edges that this value is made of, or itself as one. Views share its memory, so that it stays the same value."""
        if not self.ends_in:
            met, self.ends_in = self.record_meeting()
            self.delta = self.template = met.delta
        return self, self.ends_in

    def _make_copy(self) -> Any:
        copy: Any = super()._make_copy()
        copy.ends_in = self.ends_in
        return copy

    @classmethod
    def outcome(cls, passed: Passed, keep: bool = False) -> Outcome:
        pairs = passed.run.state.features.spread_pairs(conflict_pairs(passed))
        return dataclasses.replace(super().outcome(passed, keep), pairs=pairs)

    @classmethod
    def join(cls, run: Run, fn: Move, parts: Sequence[Any], aligned: bool = False) -> Any:
        if all(part.pending for part in parts if isinstance(part, Scores)):
            return super().join(run, fn, parts, aligned)
        known = [(part, ()) if isinstance(part, Tensor) else part.ends() for part in parts]
        result = super().join(run, fn, [part for part, _ in known], aligned)
        for one in result if isinstance(result, tuple) else (result,):
            one.ends_in = tuple(meeting for _, meetings in known for meeting in meetings)
        return result

    def linear(self, fn: Callable[..., Tensor], *constants: Any, **options: Any) -> Any:
        start, meetings = self.ends() if fn in ONE_TO_ONE else self.record_meeting()
        result: Any = FeatureScores.linear(start, fn, *constants, **options)
        result.ends_in = meetings
        return result

    def add(self, other: Any, alpha: float = 1) -> Any:
        (one, mine), (two, yours) = (s.record_meeting() if s.is_sum else s.ends() for s in (self, other))
        result: Any = FeatureScores.add(one, two, alpha)
        result.ends_in = mine + yours
        return result

    def mix(self, weights: Tensor, dims: tuple[int, ...], reference: Tensor | None) -> Any:
        start, meetings = self.ends()
        result: Any = FeatureScores.mix(start, weights, dims, reference)
        result.ends_in = meetings
        return result

    def product(self, other: Any, fn: Callable[[Tensor, Tensor], Tensor], routing: bool = False, aligned: bool = False) -> Any:
        if routing:
            return super().product(other, fn, routing, aligned)
        return self._together(other, FeatureScores.product, fn, False, aligned)

    def _carry_step(self, parts: Sequence[Any], step: Any, composed: Callable[[], Any], rows: Any) -> Any:
        return composed()  # which remembers where contributions met

    def quotient(self, other: Any, value: Tensor) -> Any:
        return self._together(other, FeatureScores.quotient, value)

    def _together(self, other: Any, operation: Callable[..., Any], *arguments: Any) -> Any:
        """An operation of two values, which remembers where the contributions of both met."""
        (one, mine), (two, yours) = self.record_meeting(), other.record_meeting()
        result: Any = operation(one, two, *arguments)
        result.ends_in = mine + yours
        return result

    def _carry_function(self, phi: Function, keeps_zero: bool) -> Any:
        result = super()._carry_function(phi, keeps_zero)
        sides, rule = self.sides(), self.run.flow_rule
        full, passed_on = (self.flows(phi, keeps_zero, each, sides)[2] for each in (rule.at(1.0), rule))
        value, delta = self.value.requires_grad_(), self.delta.detach()
        (slope,) = torch.autograd.grad(phi(value).sum(), value)
        gate = torch.zeros_like(delta).requires_grad_()
        result.delta = result.delta + slope * (self.delta - delta) + gate
        self.run.state.meetings.append(Meeting(gate, self.contributions, *sides, full - passed_on, self.rows))
        return result


def conflict_pairs(passed: Passed) -> Tensor:
    """How much two features, or a feature and the biases, cancelled of each other. (rows, pushed up, pushed down)"""
    last: Any = passed.chosen
    chosen, edges = last.ends()
    run = passed.run
    run.state.shut = True  # edges that come from further back are others
    first = _at_all({id(meeting.gate): meeting for meeting in edges}.values(), chosen, run.batch)
    run.state.shut = False
    up, down = ((chosen.edges + sign * chosen.contributions).mT / 2 for sign in (1, -1))  # (rows, features + 1)
    up, down = (up - first.sum(2)).clamp_min(0), (down - first.sum(1)).clamp_min(0)
    larger = torch.maximum(up.sum(1), down.sum(1))[:, None, None]
    left = up[:, :, None] * down[:, None] / torch.where(larger == 0, torch.ones_like(larger), larger)
    return first + left + _at_all(run.state.meetings, chosen, run.batch)


def _at_all(meetings: Iterable[Meeting], chosen: Any, batch: int) -> Tensor:
    """The pairs at all values of these meetings."""
    known, count = list(meetings), len(chosen.contributions)
    gates = [meeting.gate for meeting in known]
    weights = torch.autograd.grad(chosen.delta.sum(), gates, retain_graph=True, allow_unused=True) if gates else ()
    found = (_at(meeting, w, batch) for meeting, w in zip(known, weights, strict=True) if w is not None)
    return sum(found, chosen.contributions.new_zeros(batch, count, count))


def _at(meeting: Meeting, weight: Tensor, batch: int) -> Tensor:
    """The pairs at all values of a meeting."""
    effect = weight * meeting.cancelled
    effect = torch.where(effect == 0, effect, effect / (meeting.positive * meeting.negative))  # of which one may be 0
    if meeting.rows is None:
        return _sum_pairs(meeting.contributions.reshape(len(meeting.contributions), batch, -1), effect.reshape(batch, -1))
    index = spread(meeting.rows, effect.shape, batch, effect.device)
    if bool(((index == 0) & (effect != 0)).any()):
        raise RowsMixed(
            "explain(..., pairs=True): inside the model values of several rows depend on each other, so that conflicts cannot "
            "be told row by row. Explain one row at a time: batch_size=1."
        )
    rows = [index == row for row in range(1, batch + 1)]
    return torch.cat([_sum_pairs(meeting.contributions[:, own][:, None], effect[own][None]) for own in rows])


def _sum_pairs(contributions: Tensor, effect: Tensor) -> Tensor:
    """(features, rows, values) and (rows, values): the sum over the values for every pair, as (rows, features, features)."""
    ups, downs = contributions.clamp_min(0).movedim(0, 1), -contributions.clamp_max(0).movedim(0, 1)
    along, against = effect.clamp_min(0)[:, None], -effect.clamp_max(0)[:, None]
    return (ups * along) @ downs.mT + (downs * against) @ ups.mT
