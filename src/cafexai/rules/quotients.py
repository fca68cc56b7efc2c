"""Open weights that no softmax along one dimension gives: exponentials over their own sums by groups, and scaled weights.

Of exponentials that are masked by constants m, with S the sum over the group of an element, plus perhaps a constant, the weights
w = m exp(x) / S change by

    dw_i = m_i l_i (dx_i - sum_j l_j dx_j / (sum_j l_j + l_0)),

j running through the group: the formula of the softmax (``softmax.py``), l being the logarithmic mean of exp(x) / S at the input
and at the reference. A constant in S is one more logit that does not change; l_0 is the logarithmic mean of its share. The sums
are those of the model: along dimensions, or by an index.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._core.math_functions import Function, divide
from .._core.provenance import MadeBy
from .._core.row_index import MIXED, average_rows
from .._core.tolerance import gap, tolerance
from .._core.value import Scores
from .softmax import log_mean

EPSILON = 1e-3  # how far a divisor may be from the sum of weights: the quotient is exact with any

def open_quotient(terms: MadeBy, value: Tensor, whole: Function) -> Any:
    """Exponentials over ``whole``, an affine map of all of them, which gave ``value``; None if the formula does not hold."""
    x: Scores = terms.of
    if x.run.settings.attention != "open" or x.shape != value.shape:
        return None
    near = tolerance(value.dtype)
    x = x if terms.detail == 1 else x.scale(terms.detail)
    one, nothing = torch.ones_like(value), torch.zeros_like(value)
    mask, offset = terms.apply(one), whole(nothing)
    if mask.shape != value.shape or bool((mask < 0).any()) or bool(terms.apply(nothing).any()):
        return None
    try:
        offset = offset.expand(value.shape)
    except RuntimeError:  # the sums are not those of the elements beside them
        return None

    def add_up(v: Tensor) -> Tensor:
        """The sum over the group of each element."""
        return whole(v) - offset

    def shares(logits: Tensor, offset: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """exp(logits) / S, the share of the constant in S, and the logarithm of S."""
        terms = logits.exp()
        terms = terms.masked_fill((mask == 0) & terms.isinf(), 0)
        total = add_up(terms) + offset
        return divide(terms, total), divide(offset, total), total.log()

    start, (now, rest, log_total) = x.start, shares(x.value, offset)
    if bool((rest <= near).all()):  # nothing but an epsilon: a shift of all logits changes nothing
        offset_kept = nothing
        start = start - add_up(now * x.value.masked_fill(now == 0, 0))
        now, rest, log_total = shares(x.value, offset_kept)
    else:
        offset_kept = offset
    then, rest_then, log_total_then = shares(start, offset_kept)
    whole_now, whole_then = add_up(now) + rest, add_up(then) + rest_then
    fits = all(bool((((sums - 1).abs() <= near) | (sums == 0)).all()) for sums in (whole_now, whole_then))
    if not fits or gap(mask * now, value) > near:
        return None
    if x.run.batch > 1 and average_rows(add_up, x.rows, x.delta, x.run.batch) is MIXED:
        return None
    mean = log_mean(now, then, x.value - start - (log_total - log_total_then))
    every = add_up(mean) + log_mean(rest, rest_then, log_total_then - log_total)
    share = mask * divide(mean, every)

    def along(v: Tensor, own: Tensor, beside: Tensor, weights: Tensor) -> Tensor:
        weighted = weights * v
        return own * v + beside * (add_up(weighted) - weighted)

    constants = (mean * (mask - share), -share, mean)
    return x.secant(along, constants, mask * then, mask * (now - then))


def scaled_weights(a: Scores, b: Scores) -> Any:
    """a / b for weights and their sum, as of the experts that were chosen: a quotient in halves; None if b is no such sum."""
    if a.run.settings.attention != "open" or a.ndim != b.ndim or bool((a.value < 0).any()):
        return None
    for dim in range(a.ndim):
        if b.shape[dim] == 1 < a.shape[dim] and gap(a.value.sum(dim, keepdim=True), b.value) <= EPSILON:
            if gap(a.start.sum(dim, keepdim=True), b.start, b.value) <= EPSILON:
                return a.quotient(b, b.value)
    return None
