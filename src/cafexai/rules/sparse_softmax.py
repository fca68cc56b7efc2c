"""Sparse softmaxes along their secant: sparsemax and entmax with alpha = 1.5.

The weights are p = max(u, 0) ** k with u = z - tau(z), tau being chosen such that they sum to 1; k is 1 for sparsemax and 2 for
entmax. Let s be the change of p over that of u. As the changes of p sum to 0,

    dp_i = s_i (dz_i - sum_j s_j dz_j / sum_j s_j)

holds exactly, as for the softmax (``softmax.py``), whose logarithmic mean s stands for.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._core.math_functions import diagonal_plus_rank_one
from .._core.provenance import RAMP, SUBTRACTED, WEIGHTS, kind_of, record
from .._core.tolerance import gap, tolerance
from .._core.value import Scores


def open_sparse_softmax(x: Scores, weights: Tensor, dim: int) -> Scores | None:
    """The weights that a ramp of x, or the square of x, a ramp, has given; None if they are no sparse softmax that is known."""
    power, above = (2, x.made_by.of) if kind_of(x) == RAMP else (1, x)  # type: ignore[union-attr]
    if above.made_by is None or kind_of(above) != SUBTRACTED:
        return None
    less = above.made_by.of
    before = less.made_by.of if kind_of(less) == SUBTRACTED else None  # perhaps its maximum
    for logits in filter(None, (before, less)):
        if logits.shape != weights.shape or not bool(logits.delta.isfinite().all()):
            continue
        here, there = (above_threshold(v, dim, power) for v in (logits.value.detach(), logits.start.detach()))
        if gap(here.clamp_min(0) ** power, weights) <= tolerance(weights.dtype):
            return record(_along_secant(logits, weights.detach(), here, there, dim, power), WEIGHTS, above, "softmax")
    return None


def _along_secant(logits: Scores, weights: Tensor, here: Tensor, there: Tensor, dim: int, power: int) -> Scores:
    start = (there.clamp_min(0) ** power).expand(weights.shape)
    slope = slopes(here, there, power)
    share = slope / slope.sum(dim, keepdim=True)
    constants = (slope * (1 - share), -share, slope)
    return logits.secant(diagonal_plus_rank_one(dim), constants, start, weights - start, aligned=dim % logits.ndim != 0)


def above_threshold(z: Tensor, dim: int, power: int) -> Tensor:
    """z less the number for which max(z, 0) ** power sums to 1 along a dimension."""
    z = z - z.amax(dim, keepdim=True)
    ordered = z.clamp_min(-2).sort(dim, descending=True).values  # what is 1 below the largest has no weight
    places = torch.arange(1, z.shape[dim] + 1, dtype=z.dtype, device=z.device).view(-1, *(1,) * (z.ndim - 1 - dim % z.ndim))
    mean = ordered.cumsum(dim) / places
    if power == 1:
        thresholds = mean - 1 / places
    else:
        spread = ordered.square().cumsum(dim) - places * mean.square()
        thresholds = mean - ((1 - spread) / places).clamp_min(0).sqrt()
    count = (thresholds <= ordered).sum(dim, keepdim=True)
    return z - thresholds.gather(dim, (count - 1).clamp_min(0))


def slopes(one: Tensor, two: Tensor, power: int) -> Tensor:
    """The change of max(u, 0) ** power over that of u; 0 where it is 0 at both ends."""
    high, low = torch.maximum(one, two).clamp_min(0), torch.minimum(one, two)
    ramp = torch.where(low < 0, high / (high - low), (high > 0).to(high.dtype))
    return ramp if power == 1 else ramp * (one.clamp_min(0) + two.clamp_min(0))
