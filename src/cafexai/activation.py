"""The activation rule of the paper on delta and total, for any elementwise function.

Write p, n for the positive and negative scores, r for the reference, a = r + d for the value, D = phi(a) - phi(r), and
up = phi(r + p) - phi(max(a, r)), down = phi(min(a, r)) - phi(r - n) for the cancelled changes. The eight flows are

    peak  ++ = [d >= 0] max(D, 0)  + K    linear ++ = [d >= 0] max(D, 0)  + min(max(h, 0), K)     K = max(up, down, 0)
    peak  -- = [d < 0]  max(-D, 0) + K    linear -- = [d < 0]  max(-D, 0) + min(max(h, 0), K)     M = max(-up, -down, 0)
    peak  +- = [d >= 0] max(-D, 0) + M    linear +- = [d >= 0] max(-D, 0) + min(max(-h, 0), M)    h = min(p, n) D / d
    peak  -+ = [d < 0]  max(D, 0)  + M    linear -+ = [d < 0]  max(D, 0)  + min(max(-h, 0), M)

(the linear flows because p D / d = D + n D / d for d >= 0, and likewise for d < 0). With the constant c,
k = c K + (1 - c) min(max(h, 0), K) and m = c M + (1 - c) min(max(-h, 0), M), the new scores are

    delta' = D        total' = |D| + 2 (k + m).

The multipliers are constants of the backward pass. As a map of (delta, total) they are, with e = (k - m) / min(p, n),
s = (k + m) / min(p, n), t = p + n and 2 max(p, n) = t + |d|,

    delta' = [(e t + sgn(d) D) delta + (D - e d) total] / (t + |d|)
    total' = [(sgn(d) |D| - s d) delta + (s t + |D|) total] / (t + |d|).

In this form no coefficient is a difference of large numbers: the combined scores of a deep net keep their digits in
float32 although its totals are many times its outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor


def activate(
    delta: Tensor, total: Tensor, reference: Tensor | None, phi: Callable[[Tensor], Tensor], c: float, keeps_zero: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Delta, total and reference after phi. ``keeps_zero`` says that phi(0) = 0."""
    if reference is None and phi is torch.relu:
        new_delta, new_total = _Relu.apply(delta, total, c)
        return new_delta, new_total, None
    if reference is None and not keeps_zero:
        reference = torch.zeros_like(delta)
    new_reference = None if reference is None else phi(reference)
    function = _LargeElementwise if delta.numel() >= LARGE else _Elementwise
    new_delta, new_total = function.apply(delta, total, reference, new_reference, phi, c)
    return new_delta, new_total, new_reference


def flows(
    delta: Tensor,
    total: Tensor,
    reference: Tensor | None,
    at_reference: Tensor | None,
    phi: Callable[[Tensor], Tensor],
    c: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """D, k, -m of the formulas above, and 2 min(p, n)."""
    positive = torch.lerp(total, delta, 0.5)
    negative = positive - total  # with its sign
    if reference is None:
        change = phi(delta)
        upper = change.where(delta >= 0, 0)
        lower = change - upper
    else:
        assert at_reference is not None
        positive.add_(reference)
        negative.add_(reference)
        at_value = phi(reference + delta)
        change = at_value - at_reference
        rising = delta >= 0
        upper, lower = at_value.where(rising, at_reference), at_reference.where(rising, at_value)
    up, down = phi(positive).sub_(upper), lower.sub_(phi(negative))
    smaller = torch.sub(total, delta.abs()).clamp_min_(0)
    linear = torch.div(change, delta).nan_to_num_(0).mul_(smaller).mul_(0.5)
    peak = torch.maximum(up, down).clamp_min_(0)
    along = torch.minimum(linear.clamp_min(0), peak).lerp_(peak, c)
    peak = torch.minimum(up, down).clamp_max_(0)
    against = torch.maximum(linear.clamp_max_(0), peak).lerp_(peak, c)
    return change, along, against, smaller


LARGE = 2**20  # elements from which on multipliers are computed again for each backward pass instead of being kept
BLOCK = 2**18  # elements that are then worked on at a time


def multipliers(
    delta: Tensor, total: Tensor, change: Tensor, along: Tensor, against: Tensor, smaller: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """How delta' and total' depend on delta and total; ``along``, ``against`` and ``smaller`` are used up."""
    both = along - against
    net = along.add_(against)
    size = change.abs()
    tiny = torch.finfo(delta.dtype).tiny
    smaller.mul_(0.5).clamp_min_(tiny)  # where it is 0 the flows are 0 as well: 0 / 0 = 0
    net.div_(smaller)
    both.div_(smaller)
    larger = total.add(delta.abs()).clamp_min_(tiny)
    sign = delta.sign()
    dd = (net * total).addcmul_(sign, change).div_(larger)
    dt = torch.addcmul(change, net, delta, value=-1).div_(larger)
    td = sign.mul_(size).addcmul_(both, delta, value=-1).div_(larger)
    tt = size.addcmul_(both, total).div_(larger)
    return dd, dt, td, tt


class _Elementwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        delta: Tensor,
        total: Tensor,
        reference: Tensor | None,
        at_reference: Tensor | None,
        phi: Callable[[Tensor], Tensor],
        c: float,
    ) -> tuple[Tensor, Tensor]:
        change, along, against, smaller = flows(delta, total, reference, at_reference, phi, c)
        new_total = torch.sub(along, against).mul_(2).add_(change.abs())
        ctx.save_for_backward(*multipliers(delta, total, change, along, against, smaller))
        ctx.set_materialize_grads(False)
        return change, new_total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        return (*_pull(gradients, *ctx.saved_tensors), None, None, None, None)


class _LargeElementwise(torch.autograd.Function):
    """The same with less memory: nothing is kept but the arguments, and rows are worked on block by block."""

    @staticmethod
    def forward(
        ctx: Any,
        delta: Tensor,
        total: Tensor,
        reference: Tensor | None,
        at_reference: Tensor | None,
        phi: Callable[[Tensor], Tensor],
        c: float,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(delta, total, reference, at_reference)
        ctx.rule = (phi, c)
        ctx.set_materialize_grads(False)
        new_delta, new_total = torch.empty_like(delta), torch.empty_like(total)
        for rows in _blocks(delta, phi):
            parts = _cut(rows, delta, total, reference, at_reference)
            change, along, against, _ = flows(*parts, phi, c)  # type: ignore[arg-type, call-arg]
            new_total[rows] = along.sub_(against).mul_(2).add_(change.abs())
            new_delta[rows] = change
        return new_delta, new_total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        delta, total = ctx.saved_tensors[:2]
        if gradients == (None, None):
            return (None,) * 6
        to_delta, to_total = torch.empty_like(delta), torch.empty_like(total)
        for rows in _blocks(delta, ctx.rule[0]):
            parts = _cut(rows, *ctx.saved_tensors)
            maps = multipliers(parts[0], parts[1], *flows(*parts, *ctx.rule))  # type: ignore[arg-type]
            to_delta[rows], to_total[rows] = _pull(_cut(rows, *gradients), *maps)
        return to_delta, to_total, None, None, None, None


def _blocks(delta: Tensor, phi: Callable[[Tensor], Tensor]) -> list[slice]:
    """Slices of dimension 0; one for all if phi is not a function of torch alone and may hold constants of that size."""
    plain = isinstance(phi, (BuiltinFunctionType, FunctionType)) and getattr(phi, "__closure__", None) is None
    if not plain or not str(getattr(phi, "__module__", "")).startswith("torch") or delta.ndim == 0:
        return [slice(None)]
    step = max(1, BLOCK * len(delta) // delta.numel())
    return [slice(start, start + step) for start in range(0, len(delta), step)]


def _cut(rows: slice, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    return tuple(None if tensor is None else tensor[rows] for tensor in tensors)


class _Relu(torch.autograd.Function):
    """The same for ReLU and a zero reference: an active unit passes everything on, an inactive one c times the positive
    scores, in both directions."""

    @staticmethod
    def forward(ctx: Any, delta: Tensor, total: Tensor, c: float) -> tuple[Tensor, Tensor]:
        active = delta > 0
        larger = (total - delta).clamp_min_(torch.finfo(delta.dtype).tiny)
        same = torch.div(total, larger).mul_(c).masked_fill_(active, 1)
        cross = torch.div(delta, larger).mul_(-c).masked_fill_(active, 0)
        ctx.save_for_backward(same, cross)
        ctx.set_materialize_grads(False)
        return torch.relu(delta), torch.where(active, total, (total + delta).mul_(c).clamp_min_(0))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        same, cross = ctx.saved_tensors
        return (*_pull(gradients, same, cross, cross, same), None)


def _pull(gradients: tuple[Tensor | None, ...], dd: Tensor, dt: Tensor, td: Tensor, tt: Tensor) -> Any:
    """Gradients of the new delta and total, taken back to the old ones."""
    from_delta, from_total = gradients
    if from_delta is None:
        return (None, None) if from_total is None else (from_total * td, from_total * tt)
    to_delta, to_total = from_delta * dd, from_delta * dt
    if from_total is not None:
        to_delta.addcmul_(from_total, td)
        to_total.addcmul_(from_total, tt)
    return to_delta, to_total
