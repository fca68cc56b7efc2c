"""What the carriers share that hold delta = positive - negative and total = positive + negative.

A linear layer then is two matrix products, and delta, which an activation sets exactly to phi(a) - phi(r), never is a
difference of large numbers. How a total goes through each operation is said here once. When it restarts is the business of a
carrier: never along a path (``path.py``), before every sum by unit (``unit.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._core.backward import only_net
from .._core.contract import Made
from .._core.flow_rule import FlowRule
from .._core.math_functions import Function, over_rows, slope
from .._core.pending import Pending
from .._core.row_index import behind_map
from .._core.run import Run
from .._core.steps import LINEAR, Added, InGraph, Step, apply_linear
from .._core.tolerance import input_change
from .._core.value import Scores

Activation = Callable[
    [Tensor, Tensor | None, Function, bool, FlowRule], tuple[Step, Tensor | None, Tensor | None, Function]
]  # delta, reference, phi, phi(0) = 0, flow rule -> the step, the reference before and behind it, and phi as the step takes it


class TotalScores(Scores):
    """reference, delta and total >= |delta|; positive = (total + delta) / 2, negative = (total - delta) / 2."""

    total: Tensor
    activation: Activation  # the step through an elementwise function

    def __init__(self, run: Run, reference: Tensor | None, delta: Tensor, total: Any, rows: Any) -> None:
        raise NotImplementedError

    @classmethod
    def of_input(cls, run: Run, x: Tensor, reference: Tensor | None) -> Any:
        delta = (x.detach().clone() if reference is None else input_change(x, reference)).detach().requires_grad_()
        return cls(run, reference, delta, delta.detach().abs().requires_grad_(), None)

    def influence(self) -> Tensor:
        return self.total.detach()

    net = staticmethod(only_net)

    def linear_step(self, weight: Tensor, first: bool) -> Step:
        """A linear layer in a chain of layers that begins with this value; the first of them takes the value itself."""
        raise NotImplementedError

    def _make_result(self, made: Made, total: Callable[[], Tensor]) -> Any:
        """The result of an operation on this value; ``total`` makes the new total."""
        raise NotImplementedError

    # ---- totals behind operations ----------------------------------------------------------------------------------
    def map_total(
        self, fn: Callable[..., Tensor], constants: tuple[Any, ...], bias: tuple[Any, ...], made: Made, amount: Any = None
    ) -> Any:
        """Behind a linear map: total meets the absolute constants; ``amount`` is in the bias already."""
        shape = made[1].shape

        def total() -> Tensor:
            absolute = abs if self.run.cache is None else self.run.absolute
            new = fn(self.total, *(None if constant is None else absolute(constant) for constant in (*constants, *bias)))
            return new if new.shape == shape else new.expand(shape)

        return self._make_result(made, total)

    def add_totals(self, other: Any, alpha: float, made: Made) -> Any:
        """Of a sum or difference."""
        return self._make_result(made, lambda: torch.add(self.total, other.total, alpha=abs(alpha)))

    def mix_total(self, weights: Tensor, dims: tuple[int, ...], made: Made) -> Any:
        """Of a mean with non-negative weights."""
        return self._make_result(made, lambda: (self.total * weights).sum(dims, keepdim=True))

    def multiply_totals(self, other: Any, fn: Callable[..., Tensor], halves: tuple[Tensor, Tensor], made: Made) -> Any:
        """Of a product, as the sum of two linear maps."""
        mine, yours = halves
        return self._make_result(made, lambda: fn(self.total, yours.abs()) + fn(mine.abs(), other.total))

    def activate_total(self, phi: Function, keeps_zero: bool) -> Any:
        """Behind an elementwise function."""
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
        return self._make_result((reference, self.delta * rise, self.rows), lambda: self.total * rise.abs())

    def _halfway(self) -> Tensor:
        return self.value / 2 if self.reference is None else self.reference + self.delta.detach() / 2

    # ---- linear layers ---------------------------------------------------------------------------------------------
    def linear_layer(self, weight: Tensor, bias: Tensor | None, aligned: bool) -> Any:
        """A linear layer as one step.

        Of sequences, scores are made when they are asked for: those of queries and keys never are.
        """
        run, delta, start = self.run, None, None
        bias = None if bias is None else bias.to(self.delta.dtype)
        if run.settings.biases_in_reference:
            bias, start = None, bias
        if run.deltas is not None:
            delta = run.deltas.next(self.delta.detach(), weight.to(self.delta.dtype), bias)
        elif self.delta.ndim > 2 or run.layers is not None:
            delta = self._ahead(weight, bias)
        reference = self.reference
        if reference is None and start is not None:
            reference = self.delta.new_zeros(()).expand(self.delta.shape)
        if reference is not None:
            reference = self._linear_at(reference, weight, start, delta)
        if bias is not None:
            run.biases.note_layer(run.path, self.delta)
        if self.delta.ndim > 2 and delta is not None:
            value = delta.detach()
            return self._layer(weight, bias, aligned, reference, delta, value if reference is None else reference + value)
        return self._through(weight, bias, aligned, reference, delta)

    def _linear_at(self, reference: Tensor, weight: Tensor, bias: Tensor | None, delta: Tensor | None) -> Tensor:
        """What a linear layer gives at the reference."""
        run = self.run
        if run.layers is not None and delta is not None:
            known = run.layers.at_reference(apply_linear, -1, reference, delta, weight, bias)
            if known is not None:
                return known

        def moved(r: Tensor) -> Tensor:
            if run.cache is None:
                return apply_linear(r, weight, bias)
            return run.at_reference("linear", lambda r: apply_linear(r, weight, bias), r, weight, bias)

        return over_rows(moved, reference) if self.delta.ndim > 1 else moved(reference)

    def _ahead(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Delta behind a linear layer, before anybody has asked for scores."""
        return apply_linear(self.delta.detach(), weight, bias)

    def _through(
        self, weight: Tensor, bias: Tensor | None, aligned: bool, reference: Tensor | None, known: Tensor | None
    ) -> Any:
        """The scores behind a linear layer, whose delta may be known."""
        raise NotImplementedError

    def weigh_total(
        self, weight: Tensor, bias: Tensor | None, aligned: bool, reference: Tensor | None, known: Tensor | None
    ) -> Any:
        """Behind a linear layer, delta and total in one node of the graph."""
        run = self.run
        added = None if bias is None else Added(run.biases, bias, run.path)
        delta, total = InGraph.apply(self.delta, self.total, LINEAR, weight, run.magnitudes, added, known)
        rows = behind_map(self, apply_linear, (weight,), bias, aligned, delta)
        if added is not None:
            added.rows = rows
        return type(self)(run, reference, delta, total, rows)

    def _layer(
        self, weight: Tensor, bias: Tensor | None, aligned: bool, reference: Tensor | None, delta: Tensor, value: Tensor
    ) -> Any:
        """A linear layer whose scores are made when they are asked for; also for some columns alone."""
        versions = [part._version for part in (weight, bias) if part is not None]

        def compute() -> Any:
            if versions != [part._version for part in (weight, bias) if part is not None]:
                raise ValueError("explain(...): the model writes to the weights of a linear layer after using them.")
            return self._through(weight, bias, aligned, reference, delta)

        def columns(part: slice) -> Any:
            rest = [None if tensor is None else tensor[..., part] for tensor in (reference, delta, value)]
            return self._layer(weight[part], None if bias is None else bias[part], aligned, *rest)  # type: ignore[arg-type]

        return Pending(self.run, value, compute, True, columns)
