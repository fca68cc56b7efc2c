"""Open weights that no softmax along one dimension gives: exponentials over their own sums by groups, and scaled weights.

Let m be a constant mask, S the sum of m exp(x) over the group of an element, plus perhaps a constant. The weights
w = m exp(x) / S change by

    dw_i = m_i l_i (dx_i - sum_j l_j dx_j / (sum_j l_j + l_0)),

j running through the group. This is the formula of the softmax (``softmax.py``), l being the logarithmic mean of exp(x) / S at
both ends. A constant in S is one more logit that does not change; l_0 is the logarithmic mean of its share. The sums are those
of the model: along dimensions, or by an index.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Divisor:
    """What exponentials are divided by: their sums by groups, and a constant."""

    whole: Function  # the affine map that gives it
    offset: Tensor  # the constant, by element
    mask: Tensor  # by which exponentials are multiplied

    @classmethod
    def of(cls, terms: MadeBy, like: Tensor, whole: Function) -> Divisor | None:
        """None if the terms are not the exponentials times a mask, or the sums not those of the elements beside them."""
        one, nothing = torch.ones_like(like), torch.zeros_like(like)
        mask, offset = terms.apply(one), whole(nothing)
        if mask.shape != like.shape or bool((mask < 0).any()) or bool(terms.apply(nothing).any()):
            return None
        try:
            return cls(whole, offset.expand(like.shape), mask)
        except RuntimeError:
            return None

    def without_constant(self) -> Divisor:
        """The sums alone."""
        return Divisor(self.add_up, torch.zeros_like(self.offset), self.mask)

    def add_up(self, v: Tensor) -> Tensor:
        """The sum over the group of each element."""
        return self.whole(v) - self.offset

    def shares(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """exp(logits) over the divisor, the share of the constant in it, and its logarithm."""
        terms = logits.exp()
        terms = terms.masked_fill((self.mask == 0) & terms.isinf(), 0)
        total = self.add_up(terms) + self.offset
        return divide(terms, total), divide(self.offset, total), total.log()

    def is_whole(self, terms: Tensor, rest: Tensor) -> bool:
        """Whether shares sum to 1 in each group, or to 0 where no key is left."""
        sums = self.add_up(terms) + rest
        return bool((((sums - 1).abs() <= tolerance(sums.dtype)) | (sums == 0)).all())

    def along(self, v: Tensor, own: Tensor, beside: Tensor, weights: Tensor) -> Tensor:
        """``own`` on the diagonal, and beside_i weights_j in each group."""
        weighted = weights * v
        return own * v + beside * (self.add_up(weighted) - weighted)


def open_quotient(terms: MadeBy, value: Tensor, whole: Function) -> Any:
    """Exponentials over ``whole``, an affine map of all of them, which gave ``value``; None if the formula does not hold."""
    x: Scores = terms.of
    if x.run.settings.attention != "open" or x.shape != value.shape:
        return None
    divisor, near = Divisor.of(terms, value, whole), tolerance(value.dtype)
    if divisor is None or (x.run.batch > 1 and average_rows(divisor.add_up, x.rows, x.delta, x.run.batch) is MIXED):
        return None
    x = x if terms.detail == 1 else x.scale(terms.detail)
    here, there = x.value, x.start
    now, rest, log_total = divisor.shares(here)
    if bool(((rest <= near) | (rest == 1)).all()):  # an epsilon, which is all there is where no key is left
        divisor = divisor.without_constant()  # then a shift of all logits changes nothing, and keeps exponentials in range
        middle = divisor.add_up(divisor.shares(here)[0] * here.masked_fill(now == 0, 0))
        here, there = here - middle, there - middle
        now, rest, log_total = divisor.shares(here)
    then, rest_then, log_total_then = divisor.shares(there)
    if gap(divisor.mask * now, value) > near or not (divisor.is_whole(now, rest) and divisor.is_whole(then, rest_then)):
        return None
    mean = log_mean(now, then, here - there - (log_total - log_total_then))
    every = divisor.add_up(mean) + log_mean(rest, rest_then, log_total_then - log_total)
    share = divisor.mask * divide(mean, every)
    constants = (mean * (divisor.mask - share), -share, mean)
    return x.secant(divisor.along, constants, divisor.mask * then, divisor.mask * (now - then))


def scaled_weights(a: Scores, b: Scores) -> Any:
    """a / b for weights and their sum, as of the experts that were chosen: a quotient in halves; None if b is no such sum."""
    if a.run.settings.attention != "open" or a.ndim != b.ndim or bool((a.value < 0).any() or (a.start < 0).any()):
        return None
    for dim in range(a.ndim):
        if b.shape[dim] == 1 < a.shape[dim] and gap(a.value.sum(dim, keepdim=True), b.value) <= EPSILON:
            if gap(a.start.sum(dim, keepdim=True), b.start, b.value) <= EPSILON:
                return a.quotient(b, b.value)
    return None
