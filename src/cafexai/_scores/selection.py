"""Which elements a maximum takes: the paper's interpolation between the winners at the input and at the reference."""

from __future__ import annotations

import torch
from torch import Tensor


def winners(
    value: Tensor, reference: Tensor | None, dims: tuple[int, ...], valid: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The weight of every element in the maximum over dims, and the maximum at the reference, with dims kept.

    With winner i at the input and j at the reference, tau = (r_j - r_i) / ((r_j - r_i) + (a_i - a_j)); the result
    takes tau of element j and 1 - tau of element i. Ties share equally; where ``valid`` is False nothing wins.
    """
    weights, top = _ties(value, dims, valid)
    if reference is None:
        return weights, None
    at_reference, reference_top = _ties(reference, dims, valid)
    reference_gap = reference_top - (weights * _masked(reference, valid)).sum(dims, keepdim=True)
    value_gap = top - (at_reference * _masked(value, valid)).sum(dims, keepdim=True)
    gap = reference_gap + value_gap
    tau = torch.where(gap > 0, reference_gap / gap, torch.zeros_like(gap))
    return torch.lerp(weights, at_reference, tau), reference_top


def _masked(value: Tensor, valid: Tensor | None) -> Tensor:
    return value if valid is None else torch.where(valid, value, torch.zeros_like(value))


def _ties(value: Tensor, dims: tuple[int, ...], valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """Equal weights on all elements that attain the maximum, and the maximum."""
    if valid is not None:
        value = value.masked_fill(~valid, -torch.inf)
    top = value.amax(dims, keepdim=True)
    wins = (value == top).to(value.dtype)
    return wins / wins.sum(dims, keepdim=True), top
