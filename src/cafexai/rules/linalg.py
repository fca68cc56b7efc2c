"""Triangular systems of equations, as chunked delta rules solve them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._core.value import Scores
from ..errors import UnsupportedOperation
from .arithmetic import add
from .registry import rule
from .shape import move


@rule("solve_triangular", in_place=False)
def solve_triangular(a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    """X with A X = B. As for a product, the change is split in halves:

    A (X - X0) + (A - A0) X = B - B0 with both A and X halfway between reference and value, which are frozen.
    """
    if not left:
        turned = [move(part, lambda v: v.mT) for part in (a, b)]
        result = solve_triangular(*turned, upper=not upper, unitriangular=unitriangular)
        return move(result, lambda v: v.mT)
    side = int(unitriangular) if upper else -int(unitriangular)
    a = move(a, lambda v: v.triu(side) if upper else v.tril(side))

    def solved(matrix: Tensor, right: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(matrix, right, upper=upper, unitriangular=unitriangular)

    def ends(part: Any) -> tuple[Tensor, Tensor]:
        return (part.start, part.value) if isinstance(part, Scores) else (part, part)

    (a_start, a_end), (b_start, b_end) = ends(a), ends(b)
    start, halfway = solved(a_start, b_start), (a_start + a_end) / 2
    inverse = solved(halfway, torch.eye(halfway.shape[-1], dtype=halfway.dtype, device=halfway.device).expand_as(halfway))
    if not bool(start.isfinite().all() and inverse.isfinite().all()):
        raise UnsupportedOperation(
            "its matrix has no inverse at the baseline or halfway; freeze it (.detach()), or choose baselines"
        )
    change = b if isinstance(b, Scores) else None
    if isinstance(a, Scores):
        middle = (start + solved(a_end, b_end)) / 2
        effect = a.linear(torch.matmul, middle)
        change = effect.scale(-1) if change is None else add(change, effect, alpha=-1)
    assert change is not None
    return change.linear(lambda v, m: m @ v, inverse).rebase(start)
