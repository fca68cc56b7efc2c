"""Functions of plain values: elementwise ones with their settings, maps of one to one, and which elements a maximum takes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor

Function = Callable[[Tensor], Tensor]


class Pointwise:
    """A function of torch with plain numbers as its further arguments."""

    def __init__(self, function: Callable[..., Tensor], args: tuple[Any, ...], options: tuple[tuple[str, Any], ...]) -> None:
        self.function = function
        self.args = args
        self.options = dict(options)

    def __call__(self, value: Tensor) -> Tensor:
        return self.function(value, *self.args, **self.options)


_made = functools.lru_cache(maxsize=1024, typed=True)(Pointwise)


def pointwise(function: Callable[..., Tensor], args: tuple[Any, ...], options: dict[str, Any]) -> Function:
    """The function with these settings; the same object for the same settings, unless they hold tensors."""
    if not args and not options:
        return function
    if all(isinstance(part, (int, float, str, bool, type(None))) for part in (*args, *options.values())):
        return _made(function, args, tuple(sorted(options.items())))
    return lambda value: function(value, *args, **options)


def is_plain(phi: Function) -> bool:
    """The function is torch's or ours alone: it holds no tensor and gives the same for each element, wherever that stands."""
    if isinstance(phi, Pointwise):
        phi = phi.function
    plain = isinstance(phi, (BuiltinFunctionType, FunctionType)) and getattr(phi, "__closure__", None) is None
    return plain and str(getattr(phi, "__module__", "")).startswith(("torch", __package__))


def over_rows(fn: Function, reference: Tensor) -> Tensor:
    """fn, which treats all rows alike, of a reference; computed once if that is one row for all."""
    if reference.ndim and reference.shape[0] > 1 and reference.stride(0) == 0:
        one = fn(reference[:1])
        return one.expand(reference.shape[0], *(-1,) * (one.ndim - 1))
    return fn(reference)


def add_references(first: Tensor, second: Tensor, alpha: float) -> Tensor:
    """first + alpha * second; computed once if both are one row for all, and still one row for all."""
    rows = first.shape[0] if first.ndim and first.shape == second.shape else 0
    if rows > 1 and first.stride(0) == 0 and second.stride(0) == 0:
        one = torch.add(first[:1], second[:1], alpha=alpha)
        return one.expand(rows, *(-1,) * (one.ndim - 1))
    return torch.add(first, second, alpha=alpha)


def plus(value: Tensor, bias: Tensor | None) -> Tensor:
    """A constant added."""
    return value if bias is None else value + bias


def affine(value: Tensor, *factors_and_bias: Any) -> Tensor:
    """Scaled by one or more factors, with a constant added."""
    *factors, bias = factors_and_bias
    for factor in factors[:-1]:
        value = value * factor
    return value * factors[-1] if bias is None else torch.addcmul(bias, value, factors[-1])


ROUNDING = 16  # how far r + d may be off, in units in the last place of |r| + |r + d|: enough behind a few layers
ONE_TO_ONE = (plus, affine, torch.mul, torch.div)  # linear maps that do not sum over elements


def winners(
    value: Tensor, reference: Tensor | None, dims: tuple[int, ...], valid: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The weight of every element in the maximum over dims, and the maximum at the reference, with dims kept.

    With winner i at the input and j at the reference, tau = (r_j - r_i) / ((r_j - r_i) + (a_i - a_j)); the result
    takes tau of element j and 1 - tau of element i. Ties share equally; where ``valid`` is False nothing wins. A value that
    was added to a reference other than 0 is known up to rounding, so that all that may be the largest are (``ROUNDING``).
    """
    if reference is None:
        value = _possible(value, valid)
        wins = (value == value.amax(dims, keepdim=True)).to(value.dtype)
        return wins / wins.sum(dims, keepdim=True), None
    rows = reference.shape[:1]
    if 0 not in dims and rows and rows[0] > 1 and reference.stride(0) == 0:  # one row for all
        reference = reference[:1]
    now, then = _possible(value, valid), _possible(reference, valid)
    top, reference_top = now.amax(dims, keepdim=True), then.amax(dims, keepdim=True)
    doubt = value.abs().add_(reference.abs()).mul_(reference.sign().abs_())
    ulps = ROUNDING * torch.finfo(value.dtype).eps
    surely = torch.sub(now, doubt, alpha=ulps).amax(dims, keepdim=True)
    wins = (torch.add(now, doubt, alpha=ulps, out=doubt) >= surely).to(value.dtype)
    won = (then == reference_top).to(value.dtype)
    count, count_won = wins.sum(dims, keepdim=True), won.sum(dims, keepdim=True)
    reference_gap = torch.mul(reference_top - reference, wins, out=doubt).sum(dims, keepdim=True) / count
    only_won = torch.sub(1, wins, out=doubt).mul_(won)
    value_gap = (top - value).mul_(only_won).sum(dims, keepdim=True) / count_won
    gap = reference_gap + value_gap
    tau = torch.where(gap > 0, reference_gap / gap, torch.zeros_like(gap))
    weights = wins.mul_((1 - tau) / count).addcmul_(won, tau / count_won)
    return weights, reference_top if 0 in dims else reference_top.expand(*rows, *reference_top.shape[1:])


def without_residue(delta: Tensor, size: Tensor, reference: Tensor) -> Tensor:
    """A sum of parts with this ``size`` in all, with 0 for what rounding has left of it; gradients flow as before.

    The largest of saturated values is the same at the input and at the reference. Flows through a unit jump where its change is
    0 (``activation.py``), so that a residue of 1e-17 would give other scores.
    """
    limit = reference.abs().mul_(2).add_(size).mul_(ROUNDING * torch.finfo(delta.dtype).eps)
    residue = delta.detach() * (delta.detach().abs() <= limit)
    return delta - residue if bool(residue.any()) else delta


def soft_winners(value: Tensor, reference: Tensor | None, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The weight of every element in the logarithm of the sum of exponentials over dims, and that at the reference.

    As for the largest, the weights lie between those at the reference and at the input, here both a softmax: the function is
    convex, so that what it changes by lies between the changes that these two would give. What is minus infinity is not there.
    """
    start = torch.zeros_like(value) if reference is None else reference
    there = value > -torch.inf
    change = torch.where(there, value - start, 0)
    value, start = (part.masked_fill(~there, -torch.inf) for part in (value, start))
    top, reference_top = value.logsumexp(dims, keepdim=True), start.logsumexp(dims, keepdim=True)
    now, then = (value - top).exp().nan_to_num(0), (start - reference_top).exp().nan_to_num(0)
    most, least = (now * change).sum(dims, keepdim=True), (then * change).sum(dims, keepdim=True)
    tau = divide(most - (top - reference_top), most - least).clamp(0, 1)
    return now * (1 - tau) + then * tau, reference_top


def find_masked_out(value: Tensor, dims: tuple[int, ...]) -> Tensor | None:
    """Where a mask of minus infinity, or of the least number there is, lets nothing win that stands beside others; or None."""
    limit = torch.finfo(value.dtype).min / 4
    if not value.numel() or bool(value.amin() > limit):
        return None
    out = value <= limit
    return out & ~out.all(dims, keepdim=True) if bool(out.any()) else None


def _possible(value: Tensor, valid: Tensor | None) -> Tensor:
    """Where nothing can win, less than anything."""
    return value if valid is None else value.masked_fill(~valid, -torch.inf)


def divide(amount: Tensor, by: Tensor) -> Tensor:
    """amount / by, with 0 where ``by`` is 0."""
    return torch.where(by == 0, torch.zeros_like(amount), amount / torch.where(by == 0, torch.ones_like(by), by))


CLOSED_SLOPES: dict[Any, Callable[[Tensor, Tensor], Tensor]] = {torch.square: lambda start, value: start + value}


def slope(phi: Function, start: Tensor, value: Tensor, delta: Tensor, change: Tensor) -> Tensor:
    """change / delta, the change of phi from start to value by that of its argument.

    Of a small delta the quotient loses its digits, of one within rounding it means nothing: take the derivative, where there is
    one between the two points.
    """
    if phi in CLOSED_SLOPES:
        return CLOSED_SLOPES[phi](start, value)
    eps = torch.finfo(delta.dtype).eps
    size = start.abs() + value.abs()
    quotient = divide(change, delta)
    small = delta.abs() <= eps**0.5 * size
    if bool(small.any()):
        if is_plain(phi):
            slopes = derivative(phi, torch.stack([value, start])).unbind()
        else:  # it may hold a number for each place
            slopes = derivative(phi, value), derivative(phi, start)
        smooth = (slopes[0] - slopes[1]).abs() <= eps**0.5 * (slopes[0].abs() + slopes[1].abs())
        small &= smooth | (delta.abs() <= 8 * eps * size)
        middle = (slopes[0] + slopes[1]) / 2
        quotient = torch.where(small & middle.isfinite(), middle, quotient)  # a root at 0, behind a closed unit, has none
    return quotient


def derivative(phi: Function, at: Tensor) -> Tensor:
    """The slope of an elementwise function."""
    with torch.enable_grad():
        point = at.detach().requires_grad_()
        result = phi(point)
        if not result.requires_grad:
            return torch.zeros_like(at)
        (slope,) = torch.autograd.grad(result.sum(), point, allow_unused=True)
    return torch.zeros_like(at) if slope is None else slope


@functools.cache
def diagonal_plus_rank_one(dim: int | tuple[int, ...]) -> Callable[..., Tensor]:
    """The map v -> own v + a (sum_j b_j v_j - b v) along dims: ``own`` on the diagonal and a_i b_j beside it."""

    def apply(v: Tensor, own: Tensor, a: Tensor, b: Tensor) -> Tensor:
        weighted = b * v
        return own * v + a * (weighted.sum(dim, keepdim=True) - weighted)

    return apply
