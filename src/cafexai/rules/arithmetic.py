"""Sums, differences, products and quotients of scored values and constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._core.provenance import ADDED, FINAL, SUBTRACTED, SUM, TERMS, kind_of, record
from .._core.value import Scores
from ..errors import UnsupportedOperation
from . import recognise
from .elementwise import finite, inverse_root, invert, spread
from .registry import rule
from .softmax import is_open, open_log_softmax


def constant_like(number: Any, scores: Scores) -> Tensor:
    """A number or plain tensor in the precision and on the device of a scored value."""
    return torch.as_tensor(number, dtype=scores.template.dtype, device=scores.template.device)


def bilinear_map(fn: Callable[[Any, Any], Tensor], a: Any, b: Any, aligned: bool = False) -> Any:
    """An operation linear in each of two arguments, of which one or both may be scored (as in attention)."""
    if isinstance(a, Scores) and isinstance(b, Scores):
        return a.product(b, fn, routing=True, aligned=aligned)
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
        if kind_of(result) not in (TERMS, SUM):  # which an epsilon leaves as they are
            record(result, ADDED, a, constant if alpha == 1 else constant * alpha)
        return result
    b = multiply(b, alpha)
    return b.add_constant(constant_like(a, b)) if isinstance(b, Scores) else a + b


@rule("log_softmax", in_place=False, kinds=["final"])
def log_softmax(x: Scores, dim: Any = None, *args: Any, **options: Any) -> Any:
    """x minus its logsumexp, frozen or open; as the output of a model it is dropped and the logit explained."""
    if dim is None:
        raise UnsupportedOperation("it is called without dim")
    if is_open(x, dim):
        return open_log_softmax(x, dim)
    shift = x.freeze("log_softmax", lambda value: torch.logsumexp(value, dim, keepdim=True), "softmax", dim)
    return record(x.add_constant(shift, -1), FINAL, x, "softmax")


@rule("sub", "subtract", kinds=["offset"])
def sub(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    if not isinstance(a, Scores):
        return add(a, b, alpha=-alpha)
    result = None
    if isinstance(b, Scores) and alpha == 1:
        parts = recognise.log_softmax_of_difference(a, b)
        if parts is not None:
            return log_softmax(*parts)
        bound = recognise.other_of_larger(a, b)
        result = recognise.difference_of_running_sums(a, b) if bound is None else _below(a, bound)
    result = add(a, b, alpha=-alpha) if result is None else result
    if kind_of(result) == SUM:
        return result
    return record(result, SUBTRACTED, a, result.made_by.detail if kind_of(result) == ADDED else None)


def _below(a: Scores, bound: Any) -> Any:
    """a - max(a, bound) is min(a - bound, 0), in which a does not push against itself."""
    if isinstance(bound, Scores):
        return sub(a, bound).elementwise(_negative_part, True)
    return spread(a, bound).elementwise(lambda v: _negative_part(v - bound))


def _negative_part(value: Tensor) -> Tensor:
    return value.clamp_max(0)


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
        if a.made_by is None and b.made_by is None:  # nothing to be recognised
            return a.product(b, torch.mul)
        weights = recognise.softmax_of_product(a, b)
        if weights is not None:
            return weights
        for part, scale in ((a, b), (b, a)):
            if (root := recognise.inverse_divisor(scale)) is not None:
                return part.quotient(*root)
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
        weights = recognise.softmax_of_quotient(a, b)
        if weights is not None:
            return weights
        root = recognise.divisor(b) if a.run.settings.norms == "open" else None
        if root is not None:
            return a.quotient(*root)
        b = b.freeze("div (denominator)", lambda value: value)
    aligned = not isinstance(b, Tensor) or b.ndim <= a.ndim
    return a.linear(torch.div, constant_like(b, a) if isinstance(b, Tensor) else b, aligned=aligned)


@rule("reciprocal")
def reciprocal(x: Scores) -> Any:
    square = recognise.root_of(x)
    if square is not None:
        return inverse_root(square)
    return invert(x, x.elementwise(finite(x, "reciprocal", torch.reciprocal), routing=True))


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
