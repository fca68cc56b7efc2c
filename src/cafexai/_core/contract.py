"""What a carrier of influence declares: all that others may ask of a scored value, and what is its own to implement.

A carrier is one way to carry positive and negative influence through a model. ``Scores`` (``value.py``) does what all have in
common, and calls the methods with an underscore below for the rest; no rule and no part of the engine asks which carrier runs.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from .math_functions import Function
from .provenance import MadeBy
from .row_index import Rows
from .run import Run

if TYPE_CHECKING:
    from .backward import Outcome, Passed
    from .steps import JointStep

S = TypeVar("S", bound="Carrier")
Move = Callable[..., Any]  # of as many tensors as there are parts
Made = tuple[Tensor | None, Tensor, Rows]  # reference, delta and rows of a result


class CarrierState:
    """The state of a carrier during one pass, beside its values: by default none."""

    def release(self) -> None:
        """Release what the backward pass needs, without waiting for the garbage collector."""


class Carrier(abc.ABC):
    """A value with its explanation. ``reference`` is None while it is zero everywhere."""

    run: Run
    reference: Tensor | None
    delta: Tensor  # value - reference
    template: Tensor  # a tensor with the shape, dtype and device of the scores
    parts: tuple[Tensor, ...]  # the tensors that carry gradients: delta, and total where there is one
    rows: Rows
    nominal: torch.dtype | None = None  # the dtype the model sees, where it differs from that of the arguments
    slack = 1.0  # how much more rounding than usual the sums of this carrier have
    made_by: MadeBy | None = None  # how the value was made, if a rule may need it
    pending = False  # the scores are not computed yet
    meaning: str  # what ``netting=`` says of it
    by_feature = False  # contributions of features are kept apart, so that the pass must know which elements are one feature
    forgets = False  # what cancelled at a unit is not carried on, so that the influence at the output says nothing of it
    new_state: Callable[[], Any] = CarrierState  # makes what the carrier remembers of one pass, ``run.state``
    has_ledger = True  # what constants brought is read off the gradient, in the bias ledger

    @classmethod
    @abc.abstractmethod
    def of_input(cls: type[S], run: Run, x: Tensor, reference: Tensor | None) -> S:
        """The input layer rule: positive = max(x - r, 0), negative = max(r - x, 0)."""

    @abc.abstractmethod
    def _make_copy(self: S) -> S:
        """This value as an object of its own."""

    @classmethod
    @abc.abstractmethod
    def _carry_join(
        cls: type[S], run: Run, fn: Move, parts: Sequence[Any], deltas: list[Tensor], references: list[Any], rows: list[Rows]
    ) -> list[S]:
        """The results of a move of elements; among the parts, constants are what they bring to the scores."""

    @abc.abstractmethod
    def _carry_map(
        self: S,
        fn: Callable[..., Tensor],
        constants: tuple[Any, ...],
        bias: tuple[Any, ...],
        made: Made,
        amount: Tensor | None,
    ) -> S:
        """Behind a linear map: ``fn(value, *constants, *bias)``; ``made`` is the reference, delta and rows of the result.

        ``amount`` is what the map adds to the scores, in the shape that meets the result. ``bias`` is () if the map takes none,
        (None,) if its bias belongs to the reference. Constants may be tensors or numbers; what the map makes of one part alone
        may have to be expanded to the shape of delta.
        """

    @abc.abstractmethod
    def _carry_sum(self: S, other: S, alpha: float, made: Made) -> S:
        """self + alpha * other."""

    @abc.abstractmethod
    def _carry_function(self: S, phi: Function, keeps_zero: bool) -> S:
        """Behind an elementwise function."""

    @abc.abstractmethod
    def _carry_mix(self: S, weights: Tensor, dims: tuple[int, ...], made: Made) -> S:
        """A weighted sum over dims with non-negative constant weights."""

    @abc.abstractmethod
    def _carry_product(self: S, other: S, fn: Callable[..., Tensor], halves: tuple[Tensor, Tensor], made: Made) -> S:
        """fn(self, other), as fn(self, halves[1]) + fn(halves[0], other)."""

    def _carry_step(self, parts: Sequence[Any], step: JointStep, composed: Callable[[], Any], rows: Rows) -> Any:
        """Several values through one step; a carrier that has no form of its own takes the operations it is composed of."""
        return composed()

    @classmethod
    @abc.abstractmethod
    def outcome(cls, passed: Passed, keep: bool = False) -> Outcome:
        """The scores of features and biases in the explained output; ``keep`` says that the pass is asked again."""

    @classmethod
    @abc.abstractmethod
    def net(cls, passed: Passed) -> Outcome:
        """The combined scores alone."""

    @abc.abstractmethod
    def influence(self) -> Tensor:
        """All that was added up to delta, without signs and before anything was netted: what rounding can come from."""

    def belongs(self, source: int, places: Tensor) -> None:  # noqa: B027  (only some carriers ask)
        """Say which feature of which input each element is, by its place in a row."""

    def worst_sign(self) -> float:
        """The most negative score, relative to the largest: 0 if the law holds."""
        if len(self.parts) < 2 or not self.delta.numel():
            return 0.0
        total = self.parts[1]
        return max((self.delta.abs() - total).max().item(), 0.0) / max(total.max().item(), 1e-30)
