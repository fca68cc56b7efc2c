"""The lazy scored value: its value is known, and its scores are computed on first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .contract import Move
from .lazy import OnDemand
from .math_functions import ONE_TO_ONE, Function
from .provenance import SUM, add_up
from .run import Run
from .steps import apply_linear
from .value import Scores


class Pending(Scores):
    """A scored value that computes its scores on first use.

    Attention scores feed a softmax, which takes the value alone: their scores are never needed, nor are those of queries and
    keys. ``firm``: the value is that of a layer, or of some of its columns, and what follows needs its scores.
    """

    def __init__(
        self,
        run: Run,
        value: Tensor,
        compute: Callable[[], Any],
        firm: bool = False,
        columns: Callable[[slice], Pending] | None = None,
    ) -> None:
        self.run = run
        self.firm = firm
        self.columns = columns  # for the output of a linear layer: some of its columns, as a layer
        self.template = value.detach()
        self._make_scores = compute
        self._path = run.path

    scores: Any = OnDemand()

    def full(self) -> Any:
        """The value with its scores, made as if where it first stood."""
        here, self.run.path = self.run.path, self._path
        scores = self.scores
        self.run.path = here
        return scores

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_path" not in vars(self):
            raise AttributeError(name)
        return getattr(self.full(), name)  # reference, delta, rows and what is the carrier's own

    value = property(lambda self: self.template)
    slack = property(lambda self: self.full().slack)
    has_ledger = property(lambda self: self.full().has_ledger)
    pending = property(lambda self: "scores" not in vars(self))

    @classmethod
    def of_input(cls, run: Run, x: Tensor, reference: Tensor | None) -> Any:
        return run.settings.carrier.of_input(run, x, reference)

    @classmethod
    def join(cls, run: Run, fn: Move, parts: Sequence[Any], aligned: bool = False) -> Any:
        return run.settings.carrier.join(run, fn, parts, aligned)

    def _make_copy(self) -> Any:
        return Pending(self.run, self.template, self.full)

    def linear(self, fn: Callable[..., Tensor], *constants: Any, **options: Any) -> Any:
        if self.firm:
            return self.full().linear(fn, *constants, **options)
        bias = options.get("bias")
        last = () if bias is None else (bias() if callable(bias) else bias,)
        value = fn(self.template, *constants, *last)
        result = Pending(self.run, value, lambda: self.full().linear(fn, *constants, **options))
        return self._behind_map(result, lambda v: fn(v, *constants, *last), fn in ONE_TO_ONE)

    def _behind_map(self, result: Pending, fn: Callable[[Tensor], Tensor], one_to_one: bool) -> Pending:
        """The result of an affine map, with the record of what it is made of."""
        result.made_by = None if self.made_by is None else self.made_by.through_map(fn, one_to_one)
        return result

    def elementwise(self, phi: Function, keeps_zero: bool = False, routing: bool = False) -> Any:
        if self.made_by is None or self.made_by.kind != SUM:
            return super().elementwise(phi, keeps_zero, routing)
        result = super().elementwise(phi, keeps_zero, True)  # as in exp / (sum of exp).clamp_min(eps)
        result.made_by = self.made_by
        return result

    def linear_layer(self, weight: Tensor, bias: Tensor | None, aligned: bool) -> Any:
        if self.firm:
            return self.full().linear_layer(weight, bias, aligned)
        value = apply_linear(self.template, weight, bias)
        result = Pending(self.run, value, lambda: self.full().linear_layer(weight, bias, aligned))
        return self._behind_map(result, lambda v: apply_linear(v, weight, bias), False)

    def product(self, other: Any, fn: Callable[[Tensor, Tensor], Tensor], routing: bool = False, aligned: bool = False) -> Any:
        return super().product(other, fn, True, aligned) if routing else self.full().product(other, fn, False, aligned)

    def quotient(self, other: Any, value: Tensor) -> Any:
        return self.full().quotient(other, value)

    def take_step(self, parts: Sequence[Any], step: Any, composed: Callable[[], Any]) -> Any:
        return self.full().take_step(parts, step, composed)

    def add(self, other: Any, alpha: float = 1) -> Any:
        made_by = add_up(self.made_by, other.made_by, alpha) if self.pending and other.pending else None
        if made_by is None:
            return self.full().add(other, alpha)
        value = torch.add(self.template, other.template, alpha=alpha)  # a sum of exponentials, written out
        result = Pending(self.run, value, lambda: self.full().add(other.full(), alpha))
        result.made_by = made_by
        return result

    def mix(self, weights: Tensor, dims: tuple[int, ...], reference: Tensor | None) -> Any:
        return self.full().mix(weights, dims, reference)

    def secant(self, fn: Callable[..., Tensor], *arguments: Any, **options: Any) -> Any:
        return self.full().secant(fn, *arguments, **options)

    def rebase(self, reference: Tensor) -> Any:
        return self.full().rebase(reference)

    def influence(self) -> Tensor:
        return self.full().influence()

    def worst_sign(self) -> float:
        return 0.0 if self.pending else self.full().worst_sign()

    def _halfway(self) -> Tensor:
        return self.template / 2 if self.reference is None else self.full()._halfway()

    def _carry_function(self, phi: Function, keeps_zero: bool) -> Any:
        return self.full()._carry_function(phi, keeps_zero)

    def _not_asked(self, *arguments: Any) -> Any:
        raise AssertionError("This is asked of the value with its scores.")

    _carry_sum = _carry_map = _carry_mix = _carry_product = _carry_join = _carry_step = outcome = net = _not_asked  # type: ignore[assignment]
