"""The paper's carrier: positive and negative influence are kept apart along every path (``netting="path"``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from .._core.backward import both_signs
from .._core.contract import Made, Move
from .._core.extrema import path_activation
from .._core.row_index import Rows
from .._core.run import Run
from .._core.steps import LINEAR, Step
from .totals import TotalScores


class PathScores(TotalScores):
    """delta and total, which never restarts."""

    meaning = "the method as published"

    def __init__(self, run: Run, reference: Tensor | None, delta: Tensor, total: Tensor, rows: Rows) -> None:
        self.run = run
        self.reference = reference
        self.delta = self.template = delta
        self.total = total
        self.parts = delta, total
        self.rows = rows

    def _make_copy(self) -> Any:
        return type(self)(self.run, self.reference, self.delta, self.total, self.rows)

    def _make_result(self, made: Made, total: Callable[[], Tensor]) -> Any:
        reference, delta, rows = made
        return type(self)(self.run, reference, delta, total(), rows)

    activation = staticmethod(path_activation)
    outcome = staticmethod(both_signs)

    def linear_step(self, weight: Tensor, first: bool) -> Step:
        return LINEAR

    @classmethod
    def _carry_join(
        cls, run: Run, fn: Move, parts: Sequence[Any], deltas: list[Tensor], references: list[Any], rows: list[Rows]
    ) -> list[Any]:
        moved = fn(*[part.abs() if isinstance(part, Tensor) else part.total for part in parts])
        totals = [moved] if isinstance(moved, Tensor) else moved
        return [cls(run, *made) for made in zip(references, deltas, totals, rows, strict=True)]

    _carry_map = TotalScores.map_total
    _through = TotalScores.weigh_total
    _carry_sum = TotalScores.add_totals
    _carry_function = TotalScores.activate_total
    _carry_mix = TotalScores.mix_total
    _carry_product = TotalScores.multiply_totals
