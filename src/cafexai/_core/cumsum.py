"""Differences of a running sum: what was added between two places of it.

Models that let the past fade (chunked delta rules, some scans) take exp(s_i - s_j), s being the running sum of logarithms of
decays. As the difference of two large values, each element before both places would push up and down: exp of all that
pushes up is then beyond any number, although the exponent itself is never above 0. It is the sum of the elements between, in
which those before are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .provenance import RUNNING, kind_of
from .row_index import merge_rows


@dataclass(frozen=True)
class RunningSum:
    """Elements of a running sum, wherever they have been moved since."""

    of: Any  # the value that is added up
    dim: int
    places: Tensor  # of every element in the flat running sum, counted from 1; 0 for zeros that a move has put there

    @classmethod
    def along(cls, value: Any, dim: int) -> RunningSum:
        """The running sum of a value itself."""
        places = torch.arange(1, value.template.numel() + 1, device=value.template.device)
        return cls(value, dim % value.ndim, places.view(value.shape))

    def move(self, fn: Callable[[Tensor], Any]) -> list[RunningSum]:
        """Behind a move of elements; one for each of its results."""
        places = fn(self.places)
        return [replace(self, places=part) for part in ([places] if isinstance(places, Tensor) else places)]

    def lines(self, places: Tensor) -> Tensor:
        """Which of the sums an element belongs to."""
        inner, size = self.of.shape[self.dim + 1 :].numel(), self.of.shape[self.dim]
        place = places - 1
        return place // (inner * size) * inner + place % inner


def between(one: Any, other: Any) -> Any:
    """one - other as a linear map of what both are running sums of; None if they are not elements of the same ones."""
    if kind_of(one) != RUNNING or kind_of(other) != RUNNING:
        return None
    mine, yours = one.made_by.detail, other.made_by.detail
    if mine.of is not yours.of or mine.dim != yours.dim:
        return None
    here, there = torch.broadcast_tensors(mine.places, yours.places)
    if not bool(((mine.lines(here) == mine.lines(there)) | (here == 0) | (there == 0)).all()):
        return None
    later, earlier = torch.maximum(here, there), torch.minimum(here, there)  # in one line, by the place in it
    value, dim = mine.of, mine.dim

    def added(v: Tensor, sign: Tensor) -> Tensor:
        sums = torch.cat([v.new_zeros(1), v.cumsum(dim).flatten()])
        return sign * (sums[later] - sums[earlier])

    reference = None if one.reference is None and other.reference is None else one.start - other.start
    delta = one.delta - other.delta
    rows = None if one.run.batch == 1 else merge_rows((one.rows, one.delta), (other.rows, other.delta), one.run.batch)
    value = value.full() if value.pending else value
    return value._carry_map(added, ((here >= there).to(delta.dtype) * 2 - 1,), (), (reference, delta, rows), None)
