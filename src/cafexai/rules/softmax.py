"""Softmax along its log-mean secant: open attention.

P and P_r are the weights at the input and at the reference, dL the change of the logits, and l the logarithmic mean of both,
l = (P - P_r) / (log P - log P_r). As the weights sum to 1 at both ends, with S = sum_j l_j,

    P_i - P_r,i = l_i (dL_i - sum_j l_j dL_j / S)    and    logsumexp(L) - logsumexp(L_r) = sum_j l_j dL_j / S

hold exactly. The map is symmetric in input and reference, ignores a shift of all logits, has no coefficient above 1, and is the
Jacobian of the softmax where P = P_r.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._core.math_functions import diagonal_plus_rank_one
from .._core.provenance import FINAL, WEIGHTS, record
from .._core.value import Scores


def is_open(x: Any, dim: int | None = None) -> bool:
    """Whether the weights of attention depend on the features. Along a dimension that joins rows they stay frozen."""
    if not isinstance(x, Scores) or x.run.settings.attention == "frozen":
        return False
    return dim is None or x.run.batch == 1 or not x.joins_rows(dim % max(x.ndim, 1))


def open_softmax(x: Scores, dim: int, mask: Tensor | None = None) -> Scores:
    """The softmax of scored logits; ``mask`` is added to them at both ends. A row without any key has weights of 0."""
    if x.run.settings.attention == "local":
        return _softmax_by_gradient(x, dim, mask)
    weights, start, mean, _ = _ends(x, dim, mask)
    total = mean.sum(dim, keepdim=True)
    share = mean / torch.where(total > 0, total, torch.ones_like(total))
    constants = (mean * (1 - share), -share, mean)
    result = x.secant(diagonal_plus_rank_one(dim), constants, start, weights - start, aligned=_keeps_rows(x, dim))
    return record(result, WEIGHTS, x, "softmax")


def _softmax_by_gradient(x: Scores, dim: int, mask: Tensor | None) -> Scores:
    """The softmax with its Jacobian, at logits over the temperature, as coefficients; they do not sum to the weights."""
    logits = x.value if mask is None else x.value + mask
    hidden = logits <= torch.finfo(logits.dtype).min / 4
    finite = x
    if bool(hidden.any()):  # a coefficient of 0 would not silence what is infinite
        finite = x.join(x.run, lambda v: torch.where(hidden, 0, v), [x])
    weights = torch.softmax(logits, dim).nan_to_num_(0)
    soft = torch.softmax(logits / x.run.settings.softmax_temperature, dim).nan_to_num_(0)
    constants = (soft * (1 - soft), -soft, soft)
    result = finite.secant(diagonal_plus_rank_one(dim), constants, None, weights, aligned=_keeps_rows(x, dim))
    return record(result, WEIGHTS, x, "softmax")


def dim_of(logits: Scores, logs: Scores) -> int:
    """The dimension along which logs is the log_softmax of logits; at the reference, too, as one end may be symmetric."""
    ends = [(logits.value, logs.value), (logits.start, logs.start)]

    def apart(dim: int) -> float:
        pairs = ((torch.softmax(value, dim), log.exp()) for value, log in ends)  # NaN of both: a row without any key
        return sum(float((found.nan_to_num(2) - weights.nan_to_num(2)).abs().max()) for found, weights in pairs)

    return min(range(logits.ndim), key=apart)


def open_log_softmax(x: Scores, dim: int) -> Scores:
    """The logarithm of the softmax of scored logits."""
    if x.run.settings.attention == "local":
        change = torch.log_softmax(x.value, dim)
        start, share = None, change.exp()
    else:
        _, _, mean, (here, there) = _ends(x, dim, None)
        both = here == there  # what a mask has put to minus infinity at both ends does not change
        start, change, share = there, (here - there).masked_fill_(both, 0), mean / mean.sum(dim, keepdim=True)
    constants = (1 - share, torch.full_like(share, -1.0), share)
    result = x.secant(diagonal_plus_rank_one(dim), constants, start, change, aligned=_keeps_rows(x, dim))
    return record(result, FINAL, x, "softmax")


def _ends(x: Scores, dim: int, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
    """The weights at the input and at the reference, their logarithmic mean, and their logarithms."""
    value, start = (part.detach() if mask is None else part.detach() + mask for part in (x.value, x.start))
    here, there = torch.log_softmax(value, dim), torch.log_softmax(start, dim)
    weights, before = here.exp().nan_to_num_(0), there.exp().nan_to_num_(0)
    return weights, before.expand(weights.shape), log_mean(weights, before, here - there), (here, there.expand(here.shape))


def log_mean(one: Tensor, two: Tensor, difference: Tensor) -> Tensor:
    """The logarithmic mean of two numbers, given the difference of their logarithms; 0 where both are 0."""
    size = difference.abs()
    factor = torch.where(size > 0, -torch.expm1(-size) / size, torch.ones_like(size))
    return (torch.maximum(one, two) * factor).nan_to_num_(0, 0, 0)


def _keeps_rows(x: Scores, dim: int) -> bool:
    return dim % x.ndim != 0
