"""What several operations are together: all that is recognised by how a value was made (``_core/provenance.py``).

- A softmax, however it is written: exponentials over, or times the inverse of, a sum of the same ones; exp of a log_softmax;
  exponentials scaled to a 1-norm of 1. Any base, any way to add up. What the numbers are decides, not the spelling. Masked and
  scattered ones, and weights over their sum, are in ``quotients.py``.
- Weights of sparse softmaxes: a ramp behind a sorted sequence, with sums of 1.
- A log_softmax: a value less the log of the sum of its exponentials.
- A norm: a division by a root, and the scale that it multiplies by.
- A difference of two places of one running sum, and a - max(a, b), in which a does not push against itself.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .._core.cumsum import between
from .._core.math_functions import Function
from .._core.provenance import (
    ADDED,
    BOUNDED,
    FINAL,
    INVERSE,
    LARGER,
    LOG_OF_SUM,
    RAMP,
    ROOT,
    SCALE,
    SUBTRACTED,
    SUM,
    TERMS,
    kind_of,
    record,
)
from .._core.tensors import Softmaxed
from .._core.tolerance import gap, tolerance
from .._core.value import Scores
from .quotients import open_quotient, scaled_weights
from .softmax import is_open, open_softmax
from .sparse_softmax import open_sparse_softmax

SORTED = "sort (order)"  # what is frozen of a sort
SPELLED_OUT = "softmax (exp / sum)"

difference_of_running_sums = between


# ---- softmax -----------------------------------------------------------------------------------------------------------


def softmax_of_quotient(a: Scores, b: Scores) -> Any:
    """a / b, if that is a softmax, or weights that are scaled to a sum of 1."""
    if _of_the_same(a, b, SUM):
        return softmax_of(a, a.value / b.value, b.made_by.apply)  # type: ignore[union-attr]
    return scaled_weights(a, b)


def softmax_of_product(a: Scores, b: Scores) -> Any:
    """a * b, if one of them is the inverse of a sum and the product a softmax."""
    for terms, inverse in ((a, b), (b, a)):
        if _of_the_same(terms, inverse, INVERSE):
            weights = softmax_of(terms, terms.value * inverse.value, inverse.made_by.apply)  # type: ignore[union-attr]
            if weights is not None:
                return weights
    return None


def _of_the_same(terms: Scores, others: Scores, kind: str) -> bool:
    """Exponentials stand beside a sum, or its inverse, of the same ones."""
    return (
        kind_of(terms) == TERMS
        and kind_of(others) == kind
        and terms.made_by.of is others.made_by.of  # type: ignore[union-attr]
        and terms.made_by.detail == others.made_by.detail  # type: ignore[union-attr]
    )


def softmax_of(terms: Scores, value: Tensor, whole: Function) -> Any:
    """What was made of exponentials as a softmax, with its logits if these can be told. None if it is none.

    ``whole`` says what the exponentials were divided by.
    """
    if kind_of(terms) != TERMS:
        return None
    assert terms.made_by is not None
    exponent, rate, near = terms.made_by.of, terms.made_by.detail, tolerance(value.dtype)
    before = exponent.made_by.of if kind_of(exponent) == SUBTRACTED else None  # perhaps its maximum
    for logits in filter(None, (before, exponent)):
        exponents = logits.value if rate == 1 else logits.value * rate
        for dim in range(logits.ndim):
            if logits.shape == value.shape and gap(torch.softmax(exponents, dim), value) <= near:
                own = logits if rate == 1 else logits.scale(rate)
                if is_open(own, dim):
                    return open_softmax(own, dim)
                return Softmaxed.of(own.freeze(SPELLED_OUT, lambda _: value, "softmax", dim), own)
    weights = open_quotient(terms.made_by, value, whole)
    if weights is not None:
        return weights
    # masked, or by groups of an index: weights that add up to 1, or to 0 where all is masked, in each group
    sums, every = [value.sum(dim) for dim in range(value.ndim)], value.sum().item()
    in_groups = any(bool((((s - 1).abs() <= near) | (s == 0)).all()) for s in sums)
    in_groups = in_groups or (math.isfinite(every) and abs(every - round(every)) <= near * every)
    if not in_groups or not bool(((value >= 0) & (value <= 1 + near)).all()):
        return None
    terms.run.note_frozen(SPELLED_OUT, "softmax")
    return value


def rate_of(base: Any) -> float | None:
    """base ** v is exp(rate * v); None if the base is no positive number."""
    if isinstance(base, Tensor):
        if base.numel() != 1:
            return None
        base = base.item()
    return math.log(base) if base > 0 and base != 1 else None


def logits_of_log_softmax(x: Scores) -> Any:
    """The logits of which x is the log of the softmax; None if it is not."""
    return x.made_by.of if x.made_by is not None and x.made_by.kind == FINAL and x.made_by.detail == "softmax" else None


def log_softmax_of_difference(a: Any, b: Any) -> tuple[Scores, Any] | None:
    """The value and dims of which a - b is the log_softmax; None if it is not."""
    if not isinstance(b, Scores) or kind_of(b) != LOG_OF_SUM:
        return None
    assert b.made_by is not None
    x, dim = b.made_by.of, b.made_by.detail
    if x is not a:
        return None
    whole = torch.logsumexp(x.value, dim, keepdim=True)  # b may have been moved since
    return (x, dim) if whole.shape == b.shape and torch.equal(whole.nan_to_num(), b.value.nan_to_num()) else None


def log_of_sum(x: Scores) -> tuple[Scores, int, bool] | None:
    """The exponent, dim and keepdim for which log(x) is logsumexp; None if it is not."""
    if kind_of(x) != SUM or x.made_by.detail != 1:  # type: ignore[union-attr]
        return None
    assert x.made_by is not None
    exponent, value, near = x.made_by.of, x.value.log(), tolerance(x.template.dtype)
    for dim in range(exponent.ndim):
        for keepdim in (True, False):
            found = torch.logsumexp(exponent.value, dim, keepdim)
            if found.shape == value.shape and gap(found, value) <= near:
                return exponent, dim, keepdim
    return None


def sparse_softmax(x: Scores, result: Scores) -> Any:
    """Weights that a sorted sequence, a threshold and a ramp have made (sparsemax, entmax): frozen or open, as a softmax is.

    They are told by their sums, which are 1 along one dimension: at another input, their frozen order would give no weights.
    """
    if not any(key.operation == SORTED and key.path == x.run.path for key in x.run.frozen):
        return result
    value, near = result.value, tolerance(result.value.dtype)
    for dim in range(value.ndim):
        if value.shape[dim] > 1 and bool(((value.sum(dim) - 1).abs() <= near).all() and (value >= 0).all()):
            weights = open_sparse_softmax(x, value, dim) if x.run.settings.attention == "open" and is_open(x, dim) else None
            return Softmaxed.of(result.freeze("sparse softmax", lambda v: v, "softmax", dim), x) if weights is None else weights
    return record(result, RAMP, x)


# ---- norms -------------------------------------------------------------------------------------------------------------


def root_of(x: Scores) -> Any:
    """The value that x is the square root of; None if it is not known as one."""
    return x.made_by.of if x.made_by is not None and x.made_by.kind == ROOT else None


def divisor(x: Scores) -> tuple[Scores, Tensor] | None:
    """x as what a norm divides by, along secants, and its value; None if it is no root, alone, bounded or plus a constant."""
    kind = kind_of(x)
    if kind == ROOT:
        return root_along_secant(x.made_by.of)  # type: ignore[union-attr]
    if kind not in (ADDED, BOUNDED) or not isinstance(x.made_by.of, Scores):  # type: ignore[union-attr]
        return None
    assert x.made_by is not None
    inner = divisor(x.made_by.of)
    if inner is None:
        return None
    root, value = inner
    if kind == ADDED:
        return root.add_constant(x.made_by.detail), value + x.made_by.detail
    with x.run.secants():
        return root.elementwise(x.made_by.detail), x.made_by.detail(value)


def inverse_divisor(x: Scores) -> tuple[Scores, Tensor] | None:
    """The root that x is one over, along its secant, and its value; None if x is not known as the scale of a norm."""
    return root_along_secant(x.made_by.of) if kind_of(x) == SCALE else None  # type: ignore[union-attr]


def root_along_secant(square: Scores) -> tuple[Scores, Tensor]:
    """The square root, which changes by that of the square over the sum of both roots; and its value."""
    with square.run.secants():  # scores that have waited, as of squares, are made now
        here, there = square.value.sqrt(), square.start.clamp_min(0).sqrt()
        both = here + there
        return square.scale(1 / torch.where(both == 0, 1, both)).rebase(there), here


# ---- a - max(a, b) -----------------------------------------------------------------------------------------------------


def other_of_larger(a: Any, larger: Any) -> Any:
    """b, if ``larger`` is max(a, b); else None."""
    if not isinstance(a, Scores) or not isinstance(larger, Scores) or kind_of(larger) != LARGER:
        return None
    one, other = larger.made_by.of  # type: ignore[union-attr]
    for mine, yours in ((one, other), (other, one)):
        if isinstance(mine, Scores) and _is_the_same(a, mine):
            return yours
    return None


def _is_the_same(one: Scores, other: Scores) -> bool:
    """One value, or the same constant added to one value twice, as loops do that compute a step anew."""
    if one is other:
        return True
    if kind_of(one) not in (ADDED, SUBTRACTED) or kind_of(other) not in (ADDED, SUBTRACTED):
        return False
    mine, yours = one.made_by, other.made_by
    if mine is None or yours is None or mine.of is not yours.of or mine.detail is None or yours.detail is None:
        return False
    return torch.equal(mine.detail, yours.detail)
