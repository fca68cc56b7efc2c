"""The paper's carrier: positive and negative influence are kept apart along every path (``netting="path"``).

Held as delta = positive - negative and total = positive + negative. A linear layer then is two matrix products, and
delta, which an activation sets exactly to phi(a) - phi(r), never is a difference of large numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .._core.activation import activation
from .._core.backward import both_signs, only_net
from .._core.contract import Made, Move
from .._core.functions import Function, over_rows, slope
from .._core.row_index import Rows, behind_map
from .._core.run import Run
from .._core.steps import LINEAR, Added, InGraph, Step, weighted
from .._core.value import Pending, Scores


class PathScores(Scores):
    """reference, delta and total >= |delta|; positive = (total + delta) / 2, negative = (total - delta) / 2."""

    meaning = "the method as published"

    def __init__(self, run: Run, reference: Tensor | None, delta: Tensor, total: Tensor, rows: Rows) -> None:
        self.run = run
        self.reference = reference
        self.delta = self.template = delta
        self.total = total
        self.parts = delta, total
        self.rows = rows

    @classmethod
    def of_input(cls, run: Run, x: Tensor, reference: Tensor | None) -> PathScores:
        delta = (x.detach().clone() if reference is None else x - reference).detach().requires_grad_()
        return cls(run, reference, delta, delta.detach().abs().requires_grad_(), None)

    def _copied(self) -> PathScores:
        return type(self)(self.run, self.reference, self.delta, self.total, self.rows)

    def _made(self, made: Made, total: Callable[[], Tensor]) -> Any:
        """The result of an operation on this value; ``total`` makes the new total."""
        reference, delta, rows = made
        return type(self)(self.run, reference, delta, total(), rows)

    def linear_step(self, weight: Tensor, first: bool) -> Step:
        """A linear layer in a chain of layers that begins with this value; the first of them takes the value itself."""
        return LINEAR

    activation = staticmethod(activation)  # the step through an elementwise function

    def influence(self) -> Tensor:
        return self.total.detach()

    outcome = staticmethod(both_signs)
    net = staticmethod(only_net)

    @classmethod
    def _joined(
        cls, run: Run, fn: Move, parts: Sequence[Any], deltas: list[Tensor], references: list[Any], rows: list[Rows]
    ) -> list[PathScores]:
        moved = fn(*[part.abs() if isinstance(part, Tensor) else part.total for part in parts])
        totals = [moved] if isinstance(moved, Tensor) else moved
        return [cls(run, *made) for made in zip(references, deltas, totals, rows, strict=True)]

    def _mapped(
        self, fn: Callable[..., Tensor], constants: tuple[Any, ...], bias: tuple[Any, ...], made: Made, amount: Tensor | None
    ) -> PathScores:
        shape = made[1].shape

        def total() -> Tensor:
            new = fn(self.total, *(None if constant is None else abs(constant) for constant in (*constants, *bias)))
            return new if new.shape == shape else new.expand(shape)

        return self._made(made, total)

    def weighted(self, weight: Tensor, bias: Tensor | None, aligned: bool) -> PathScores:
        """A linear layer as one step.

        Of sequences, scores are made when they are asked for: those of queries and keys never are.
        """
        run, delta, start = self.run, None, None
        bias = None if bias is None else bias.to(self.delta.dtype)
        if run.settings.biases_in_reference:
            bias, start = None, bias
        if run.deltas is not None:
            delta = run.deltas.next(self.delta.detach(), weight.to(self.delta.dtype), bias)
        elif self.delta.ndim > 2:
            delta = self._ahead(weight, bias)
        reference = self.reference
        if reference is None and start is not None:
            reference = self.delta.new_zeros(()).expand(self.delta.shape)
        if reference is not None:

            def moved(r: Tensor) -> Tensor:
                return weighted(r, weight, start)

            reference = over_rows(moved, reference) if self.delta.ndim > 1 else moved(reference)
        if bias is not None:
            run.biases.note_layer(run.path, self.delta)
        if self.delta.ndim > 2 and delta is not None:
            value = delta.detach()
            return self._layer(weight, bias, aligned, reference, delta, value if reference is None else reference + value)
        return self._through(weight, bias, aligned, reference, delta)

    def _ahead(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Delta behind a linear layer, before anybody has asked for scores."""
        return weighted(self.delta.detach(), weight, bias)

    def _through(
        self, weight: Tensor, bias: Tensor | None, aligned: bool, reference: Tensor | None, known: Tensor | None
    ) -> PathScores:
        """The scores behind a linear layer, whose delta may be known."""
        run = self.run
        added = None if bias is None else Added(run.biases, bias, run.path)
        delta, total = InGraph.apply(self.delta, self.total, LINEAR, weight, run.magnitudes, added, known)
        rows = behind_map(self, weighted, (weight,), bias, aligned, delta)
        if added is not None:
            added.rows = rows
        return type(self)(run, reference, delta, total, rows)

    def _layer(
        self, weight: Tensor, bias: Tensor | None, aligned: bool, reference: Tensor | None, delta: Tensor, value: Tensor
    ) -> Any:
        """A linear layer whose scores are made when they are asked for; also for some columns alone."""
        versions = [part._version for part in (weight, bias) if part is not None]

        def compute() -> PathScores:
            if versions != [part._version for part in (weight, bias) if part is not None]:
                raise ValueError("explain(...): the model writes to the weights of a linear layer after using them.")
            return self._through(weight, bias, aligned, reference, delta)

        def columns(part: slice) -> Any:
            rest = [None if tensor is None else tensor[..., part] for tensor in (reference, delta, value)]
            return self._layer(weight[part], None if bias is None else bias[part], aligned, *rest)  # type: ignore[arg-type]

        return Pending(self.run, value, compute, True, columns)

    def _added(self, other: PathScores, alpha: float, made: Made) -> Any:
        return self._made(made, lambda: torch.add(self.total, other.total, alpha=abs(alpha)))

    def _activated(self, phi: Function, keeps_zero: bool) -> Any:
        if self.run.along_secants:
            return self._along_secant(phi, keeps_zero)
        rule = self.run.flow_rule
        step, reference, behind, phi = self.activation(self.delta, self.reference, phi, keeps_zero, rule)
        delta, total = InGraph.apply(self.delta, self.total, step, reference, behind, phi, rule)
        return type(self)(self.run, behind, delta, total, self.rows)

    def _along_secant(self, phi: Function, keeps_zero: bool) -> Any:
        """Behind a function that is taken as the line between reference and value: the activation rule at c = 0."""
        start, value, delta = self.start, self.value, self.delta.detach()
        reference = None if self.reference is None and keeps_zero else phi(start)
        rise = slope(phi, start, value, delta, phi(value) if reference is None else phi(value) - reference)
        return self._made((reference, self.delta * rise, self.rows), lambda: self.total * rise.abs())

    def _mixed(self, weights: Tensor, dims: tuple[int, ...], made: Made) -> PathScores:
        return self._made(made, lambda: (self.total * weights).sum(dims, keepdim=True))

    def _halfway(self) -> Tensor:
        return self.value / 2 if self.reference is None else self.reference + self.delta.detach() / 2

    def _multiplied(
        self, other: PathScores, fn: Callable[..., Tensor], halves: tuple[Tensor, Tensor], made: Made
    ) -> PathScores:
        mine, yours = halves
        return self._made(made, lambda: fn(self.total, yours.abs()) + fn(mine.abs(), other.total))
