"""A carrier of one signed change: what DeepLIFT and LRP distribute. They differ in their elementwise functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .._core.backward import Outcome, Passed, only_net
from .._core.contract import Made, Move
from .._core.lazy import OnDemand
from .._core.math_functions import ONE_TO_ONE, Function
from .._core.row_index import Rows
from .._core.run import Run
from .._core.tolerance import input_change
from .._core.value import Scores


class SignedScores(Scores):
    """reference and delta; ``total``, the magnitudes of what was added up to delta, is computed only where it is asked for."""

    def __init__(
        self, run: Run, reference: Tensor | None, delta: Tensor, rows: Rows, total: Callable[[], Tensor] | None = None
    ) -> None:
        self.run = run
        self.reference = reference
        self.delta = self.template = delta
        self.parts = (delta,)
        self.rows = rows
        if total is not None:
            self._make_total = total

    total: Tensor = OnDemand(lambda self: self.delta.abs())  # type: ignore[assignment]  # positive plus negative part of delta

    @classmethod
    def of_input(cls, run: Run, x: Tensor, reference: Tensor | None) -> Any:
        delta = (x.detach().clone() if reference is None else input_change(x, reference)).detach().requires_grad_()
        return cls(run, reference, delta, None)

    def _make_result(self, made: Made, total: Callable[[], Tensor] | None = None) -> Any:
        return type(self)(self.run, *made, total)

    def _make_copy(self) -> Any:
        return self._make_result((self.reference, self.delta, self.rows), lambda: self.total)

    def influence(self) -> Tensor:
        return self.total.detach()

    net = staticmethod(only_net)

    @classmethod
    def outcome(cls, passed: Passed, keep: bool = False) -> Outcome:
        raise NotImplementedError("This carrier has one score for each feature: ask for its net.")

    @classmethod
    def _carry_join(
        cls, run: Run, fn: Move, parts: Sequence[Any], deltas: list[Tensor], references: list[Any], rows: list[Rows]
    ) -> list[Any]:
        def total(place: int) -> Tensor:
            moved = fn(*[part.abs() if isinstance(part, Tensor) else part.total for part in parts])
            return moved if isinstance(moved, Tensor) else moved[place]

        made = enumerate(zip(references, deltas, rows, strict=True))
        return [cls(run, *one, functools.partial(total, place)) for place, one in made]

    def _carry_map(
        self, fn: Callable[..., Tensor], constants: tuple[Any, ...], bias: tuple[Any, ...], made: Made, amount: Tensor | None
    ) -> Any:
        def total() -> Tensor:
            """The linear rule nets the change of each input first; scales and shifts pass its two parts on."""
            influence = self.total if fn in ONE_TO_ONE else self.delta.abs()
            return fn(influence, *(abs(constant) for constant in constants), *(None for _ in bias)).expand(made[1].shape)

        return self._make_result(made, total)

    def _carry_sum(self, other: Any, alpha: float, made: Made) -> Any:
        return self._make_result(made, lambda: torch.add(self.total, other.total, alpha=abs(alpha)))

    def _carry_function(self, phi: Function, keeps_zero: bool) -> Any:
        reference, delta = self._through(phi)
        return self._make_result((reference, delta, self.rows))

    def _through(self, phi: Function) -> tuple[Tensor | None, Tensor]:
        """Reference and change after phi."""
        raise NotImplementedError

    def _carry_mix(self, weights: Tensor, dims: tuple[int, ...], made: Made) -> Any:
        return self._make_result(made, lambda: (self.total * weights).sum(dims, keepdim=True))

    def _carry_product(self, other: Any, fn: Callable[..., Tensor], halves: tuple[Tensor, Tensor], made: Made) -> Any:
        mine, yours = halves
        return self._make_result(made, lambda: fn(self.delta.abs(), yours.abs()) + fn(mine.abs(), other.delta.abs()))


class Multiplied(torch.autograd.Function):
    """A result with given multipliers: exact in its value, linear in its arguments."""

    @staticmethod
    def forward(ctx: Any, result: Tensor, *arguments_and_multipliers: Tensor) -> Tensor:
        ctx.save_for_backward(*arguments_and_multipliers[len(arguments_and_multipliers) // 2 :])
        return result.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        multipliers = ctx.saved_tensors
        return (None, *(gradients[0] * m for m in multipliers), *(None for _ in multipliers))
