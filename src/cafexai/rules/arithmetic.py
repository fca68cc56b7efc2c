"""Sums, differences, products and quotients of scored values and constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._core.cumsum import between
from .._core.tensors import Softmaxed
from .._core.tolerance import gap, tolerance
from .._core.value import Scores
from ..errors import UnsupportedOperation
from .elementwise import finite, inverse_root, spread
from .registry import rule


def constant_like(number: Any, scores: Scores) -> Tensor:
    """A number or plain tensor in the precision and on the device of a scored value."""
    return torch.as_tensor(number, dtype=scores.template.dtype, device=scores.template.device)


def bilinear_map(fn: Callable[[Any, Any], Tensor], a: Any, b: Any, aligned: bool = False) -> Any:
    """An operation linear in each of two arguments, of which one or both may be scored (as in attention)."""
    if isinstance(a, Scores) and isinstance(b, Scores):
        return a.product(b, fn, routing=True)
    if isinstance(a, Scores):
        return a.linear(fn, b, aligned=aligned)
    return b.linear(lambda value, constant: fn(constant, value), a, aligned=aligned) if isinstance(b, Scores) else fn(a, b)


@rule("__radd__", name="add", kinds=["offset"])
@rule("add", kinds=["offset"])
def add(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    if isinstance(a, Scores) and isinstance(b, Scores):
        return a.add(b, alpha)
    if isinstance(a, Scores):
        constant = constant_like(b, a)
        result = a.add_constant(constant, alpha)
        result.raised = (a, constant if alpha == 1 else constant * alpha)
        return result
    b = multiply(b, alpha)
    return b.add_constant(constant_like(a, b)) if isinstance(b, Scores) else a + b


@rule("log_softmax", in_place=False)
def log_softmax(x: Scores, dim: Any = None, *args: Any, **options: Any) -> Any:
    """x minus a frozen logsumexp; as the output of a model it is dropped and the logit explained."""
    if dim is None:
        raise UnsupportedOperation("it is called without dim")
    shift = x.freeze("log_softmax", lambda value: torch.logsumexp(value, dim, keepdim=True), "softmax", dim)
    result = x.add_constant(shift, -1)
    result.logits, result.final = x, "softmax"
    return result


@rule("sub", "subtract", kinds=["offset"])
def sub(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    if isinstance(b, Scores) and b.log_sum_of is not None and b.log_sum_of[0] is a and alpha == 1:
        return log_softmax(*b.log_sum_of)
    result = None
    if isinstance(a, Scores) and isinstance(b, Scores) and alpha == 1:
        result = _below(a, b) if b.larger_of is not None else between(a, b)
    result = add(a, b, alpha=-alpha) if result is None else result
    if isinstance(a, Scores):
        result.shifted = a  # perhaps by its maximum, before exp
    return result


def _below(a: Scores, larger: Scores) -> Any:
    """a - max(a, b) is min(a - b, 0), in which a does not push against itself; None if a is neither of the two."""
    assert larger.larger_of is not None
    for one, other in (larger.larger_of, larger.larger_of[::-1]):
        if not isinstance(one, Scores) or not _is_the_same(a, one):
            continue
        if isinstance(other, Scores):
            return sub(a, other).elementwise(_negative_part, True)
        return spread(a, other).elementwise(lambda v, bound=other: _negative_part(v - bound))  # type: ignore[misc]
    return None


def _negative_part(value: Tensor) -> Tensor:
    return value.clamp_max(0)


def _is_the_same(one: Scores, other: Scores) -> bool:
    """One value, or the same constant added to one value twice, as loops do that compute a step anew."""
    if one is other:
        return True
    if one.raised is None or other.raised is None or one.raised[0] is not other.raised[0]:
        return False
    return torch.equal(one.raised[1], other.raised[1])


@rule("rsub", "__rsub__", kinds=["offset"])
def rsub(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return add(b, a, alpha=-alpha)


@rule("neg", "negative")
def neg(x: Scores) -> Any:
    return x.scale(-1)


@rule("positive", in_place=False, kinds=["identity"])
def positive(x: Scores) -> Any:
    return x


@rule("__rmul__", name="mul", kinds=["offset"])
@rule("mul", "multiply", kinds=["offset"])
def multiply(a: Any, b: Any) -> Any:
    """The product; of a value with itself it is the square, an elementwise function."""
    if a is b and isinstance(a, Scores):
        return a.elementwise(torch.square, keeps_zero=True, routing=True)
    if not isinstance(a, Scores) and isinstance(b, Scores):
        a, b = b, a
    if not isinstance(a, Scores):
        return a * b
    if isinstance(b, Scores):
        for terms, inverse in ((a, b), (b, a)):
            if _of_the_same(terms, inverse, "over sum"):
                weights = _softmax(terms, terms.value * inverse.value)
                if weights is not None:
                    return weights
        if (a.as_scale is None) != (b.as_scale is None):
            return a.product(b, torch.mul, ends=True) if a.as_scale is None else b.product(a, torch.mul, ends=True)
        return a.product(b, torch.mul)
    if not isinstance(b, Tensor) and b == 1:
        return a
    return a.scale(constant_like(b, a) if isinstance(b, Tensor) else b)


@rule("div", "divide", "true_divide")
def div(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    """The denominator is frozen, unless the numerator is a constant: then it is the elementwise reciprocal."""
    if rounding_mode is not None:
        raise UnsupportedOperation("rounding_mode is not followed; divide, then apply torch.floor or torch.trunc")
    if not isinstance(a, Scores):
        if not isinstance(b, Scores):
            return a / b
        return multiply(reciprocal(b), a)
    if isinstance(b, Scores):
        weights = _softmax(a, a.value / b.value) if _of_the_same(a, b, "sum") else None
        if weights is not None:
            return weights
        if b.root_of is not None and a.run.settings.norms == "open":
            return multiply(a, inverse_root(b.root_of))
        b = b.freeze("div (denominator)", lambda value: value)
    aligned = not isinstance(b, Tensor) or b.ndim <= a.ndim
    return a.linear(torch.div, constant_like(b, a) if isinstance(b, Tensor) else b, aligned=aligned)


@rule("reciprocal")
def reciprocal(x: Scores) -> Any:
    if x.root_of is not None:
        return inverse_root(x.root_of)
    result = x.elementwise(finite(x, "reciprocal", torch.reciprocal), routing=True)
    if x.exponentials is not None and x.exponentials[1] == "sum":
        result.exponentials = (x.exponentials[0], "over sum")
    return result


def _of_the_same(terms: Scores, others: Scores, role: str) -> bool:
    """Exponentials stand over, or beside the inverse of, a sum of the same ones: a softmax, however it is written."""
    if terms.exponentials is None or others.exponentials is None:
        return False
    (exponent, first), (other, second) = terms.exponentials, others.exponentials
    return exponent is other and (first, second) == ("term", role)


def _softmax(terms: Scores, value: Tensor) -> Tensor | None:
    """A softmax spelled out: frozen; it remembers its logits if these can be told. None if it is another quotient."""
    assert terms.exponentials is not None
    exponent, near = terms.exponentials[0], tolerance(value.dtype)
    for logits in filter(None, (exponent.shifted, exponent)):
        for dim in range(logits.ndim):
            if logits.shape == value.shape and gap(torch.softmax(logits.value, dim), value) <= near:
                return Softmaxed.of(logits.freeze("softmax (exp / sum)", lambda _: value, "softmax", dim), logits)
    # masked, or by groups of an index: weights that add up to 1, or to 0 where all is masked, in each group
    sums, whole = [value.sum(dim) for dim in range(value.ndim)], value.sum().item()
    in_groups = any(bool((((s - 1).abs() <= near) | (s == 0)).all()) for s in sums)
    in_groups = in_groups or abs(whole - round(whole)) <= near * whole
    if not in_groups or not bool(((value >= 0) & (value <= 1 + near)).all()):
        return None
    terms.run.note_frozen("softmax (exp / sum)", "softmax")
    return value


@rule("__rtruediv__")
def rdiv(a: Any, b: Any) -> Any:
    return div(b, a)


@rule("addcmul")
def addcmul(base: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return add(base, multiply(a, b), alpha=value)


@rule("addcdiv")
def addcdiv(base: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return add(base, div(a, b), alpha=value)


@rule("lerp")
def lerp(start: Any, end: Any, weight: Any) -> Any:
    """start + weight (end - start)."""
    if isinstance(weight, Scores):
        return add(start, multiply(weight, sub(end, start)))
    return add(multiply(start, 1 - weight), multiply(end, weight))
