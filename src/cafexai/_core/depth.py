"""A carrier that counts: how many nonlinear operations have followed one another on the way to a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._carriers.path import PathScores
from .contract import Made, Move
from .functions import Function
from .row_index import Rows
from .run import Run


class DepthScores(PathScores):
    """``depth`` elementwise functions, maxima and products in a row, at most, lead from the inputs to this value."""

    meaning = "which counts nonlinear operations"
    depth = 0

    def _copied(self) -> Any:
        return _at(self.depth, super()._copied())

    @classmethod
    def _joined(
        cls, run: Run, fn: Move, parts: Sequence[Any], deltas: list[Tensor], references: list[Any], rows: list[Rows]
    ) -> list[Any]:
        depth = max(0 if isinstance(part, Tensor) else part.depth for part in parts)
        return [_at(depth, result) for result in super()._joined(run, fn, parts, deltas, references, rows)]

    def _mapped(self, *arguments: Any) -> Any:
        return _at(self.depth, super()._mapped(*arguments))

    def _through(self, *arguments: Any) -> Any:
        return _at(self.depth, super()._through(*arguments))

    def _added(self, other: Any, alpha: float, made: Made) -> Any:
        return _at(max(self.depth, other.depth), super()._added(other, alpha, made))

    def _activated(self, phi: Function, keeps_zero: bool) -> Any:
        reference = None if self.reference is None and keeps_zero else phi(self.start)
        change = phi(self.value) if reference is None else phi(self.value) - reference
        return _at(self.depth + 1, type(self)(self.run, reference, change, torch.zeros_like(change), self.rows))

    def _mixed(self, weights: Tensor, dims: tuple[int, ...], made: Made) -> Any:
        return _at(self.depth + 1, super()._mixed(weights, dims, made))

    def _multiplied(self, other: Any, *arguments: Any) -> Any:
        return _at(max(self.depth, other.depth) + 1, super()._multiplied(other, *arguments))


def _at(depth: int, value: Any) -> Any:
    value.depth = depth
    return value
