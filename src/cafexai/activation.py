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

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import fused
from .pointwise import Function, is_plain, over_rows


def activate(
    delta: Tensor, total: Tensor, reference: Tensor | None, phi: Function, c: float, keeps_zero: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Delta, total and reference after phi. ``keeps_zero`` says that phi(0) = 0."""
    phi = phi if is_plain(phi) else _in_its_dtype(phi)
    if reference is None and not keeps_zero:
        reference = delta.new_zeros(()).expand(delta.shape)
    new_reference = None if reference is None else over_rows(phi, reference)
    pays = fused.pays(delta, phi)
    function: Any = _Elementwise
    if delta.numel() >= LARGE and (pays or not _closed(phi, reference)):
        function = _Fused if pays else _LargeElementwise
    new_delta, new_total = function.apply(delta, total, reference, new_reference, phi, c, pays)
    return new_delta, new_total, new_reference


def _in_its_dtype(phi: Function) -> Function:
    """A function of the user, who may compute in another precision."""
    return lambda value: phi(value).to(value.dtype)


def _closed(phi: Function, reference: Tensor | None) -> bool:
    """The rule has the closed form of ReLU."""
    return reference is None and phi is torch.relu


# Comparisons and choices by truth values are many times slower than arithmetic on processors. This one is not.
_where_rising = torch.ops.aten.threshold_backward  # (value, delta, 0): value where delta > 0, else 0


def values(
    delta: Tensor, total: Tensor, reference: Tensor, at_reference: Tensor | None, phi: Function
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """phi at the four points: r, r + d, r + p and r - n."""
    positive = torch.lerp(total, delta, 0.5)
    negative = torch.sub(positive, total).add_(reference)
    at_reference = phi(reference) if at_reference is None else at_reference
    return at_reference, phi(reference + delta), phi(positive.add_(reference)), phi(negative)


def changes(
    delta: Tensor, total: Tensor, reference: Tensor | None, at_reference: Tensor | None, phi: Function
) -> tuple[Tensor, Tensor, Tensor]:
    """D, up and down of the formulas above."""
    if reference is not None:
        return changes_at(delta, total, *values(delta, total, reference, at_reference, phi))
    positive = torch.lerp(total, delta, 0.5)
    negative = positive - total  # with its sign
    at_top, at_bottom = phi(positive), phi(negative)
    del positive, negative
    change = phi(delta)
    upper = _where_rising(change, delta, 0)
    return change, at_top.sub_(upper), torch.sub(change, upper, out=upper).sub_(at_bottom)


def changes_at(
    delta: Tensor, total: Tensor, at_reference: Tensor, at_value: Tensor, at_top: Tensor, at_bottom: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same from the values of phi, which of one row may be rounded otherwise than of many: hence ``cancels``."""
    upper, lower = _where_rising(at_value, delta, 0), _where_rising(at_reference, delta, 0)
    upper, lower = upper + (at_reference - lower), lower + (at_value - upper)  # one term of each is 0: nothing is rounded
    cancels = torch.sub(total, delta.abs()).clamp_min_(0).sign_()  # 0 where nothing is cancelled: so are both changes
    return at_value - at_reference, (at_top - upper).mul_(cancels), lower.sub_(at_bottom).mul_(cancels)


def flows(
    delta: Tensor, total: Tensor, reference: Tensor | None, at_reference: Tensor | None, phi: Function, c: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """D, k, -m of the formulas above, and 2 min(p, n)."""
    return flows_of(delta, total, *changes(delta, total, reference, at_reference, phi), c)


def flows_of(
    delta: Tensor, total: Tensor, change: Tensor, up: Tensor, down: Tensor, c: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same from the changes of phi; ``up`` and ``down`` are used up."""
    size, sign = delta.abs(), delta.sign()
    smaller = torch.sub(total, size).clamp_min_(0)
    linear = sign.mul_(change).div_(size.clamp_min_(torch.finfo(delta.dtype).tiny))  # 0 where delta and change are 0
    linear.mul_(smaller).mul_(0.5)
    del size, sign
    peak = torch.maximum(up, down).clamp_min_(0)
    trough = torch.minimum(up, down, out=up).clamp_max_(0)
    along = torch.clamp_min(linear, 0, out=down)
    along = _between(torch.minimum(along, peak, out=along), peak, c)
    against = linear.clamp_max_(0)
    against = _between(torch.maximum(against, trough, out=against), trough, c)
    return change, along, against, smaller


def _between(linear: Tensor, peak: Tensor, c: Any) -> Tensor:
    """(1 - c) linear + c peak; in a kernel, where c is a tensor, written so that nothing need be compared."""
    return linear * (1 - c) + peak * c if isinstance(c, Tensor) else linear.lerp_(peak, c)


LARGE = 2**20  # elements from which on multipliers are computed again for each backward pass instead of being kept
BLOCK = 2**18  # elements that are then worked on at a time


def multipliers(
    delta: Tensor, total: Tensor, change: Tensor, along: Tensor, against: Tensor, smaller: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """How delta' and total' depend on delta and total; ``along``, ``against`` and ``smaller`` are used up."""
    both = along - against
    net = along.add_(against)
    tiny = torch.finfo(delta.dtype).tiny
    smaller = smaller.mul_(0.5).clamp_min_(tiny)  # where it is 0 the flows are 0 as well: 0 / 0 = 0
    net, both = net.div_(smaller), both.div_(smaller)
    size = torch.abs(change, out=against)
    larger = torch.abs(delta, out=smaller).add_(total).clamp_min_(tiny)
    sign = delta.sign()
    dd = (net * total).addcmul_(sign, change).div_(larger)
    dt = torch.addcmul(change, net, delta, value=-1, out=net).div_(larger)
    td = sign.mul_(size).addcmul_(both, delta, value=-1).div_(larger)
    tt = size.addcmul_(both, total).div_(larger)
    return dd, dt, td, tt


def scores_and_maps(delta: Tensor, total: Tensor, change: Tensor, up: Tensor, down: Tensor, c: Any) -> tuple[Tensor, ...]:
    """The new delta and total, and the four multipliers."""
    change, along, against, smaller = flows_of(delta, total, change, up, down, c)
    new_total = torch.sub(along, against).mul_(2).add_(change.abs())
    return change, new_total, *multipliers(delta, total, change, along, against, smaller)


def relu(delta: Tensor, total: Tensor, c: Any) -> tuple[Tensor, ...]:
    """The rule for ReLU and a zero reference: new delta and total, and the multipliers of a value with itself and the other.

    An active unit passes everything on, an inactive one c times the positive scores, in both directions.
    """
    new_delta = torch.relu(delta)
    active = new_delta.sign()
    passed = active * total
    rest, below = total - passed, delta - new_delta  # what stands before inactive units
    new_total = torch.add(rest, below).relu_().mul_(c).add_(passed)
    larger = torch.sub(rest, below).clamp_min_(torch.finfo(delta.dtype).tiny)
    cross = below.div_(larger).mul_(-c)
    same = rest.div_(larger).mul_(c).add_(active)
    return new_delta, new_total, same, cross


def pull(from_delta: Tensor, from_total: Tensor, dd: Tensor, dt: Tensor, td: Tensor, tt: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the new delta and total, taken back to the old ones."""
    return (from_delta * dd).addcmul_(from_total, td), (from_delta * dt).addcmul_(from_total, tt)


def pulled(gradients: Any, maps: Sequence[Tensor]) -> tuple[Tensor | None, Tensor | None]:
    """pull, also where only one of the two gradients is there; of two maps, each stands for two of the four."""
    from_delta, from_total = gradients
    if len(maps) == 2:
        maps = (*maps, *maps[::-1])
    if from_delta is not None and from_total is not None:
        return pull(from_delta, from_total, *maps)
    if from_delta is None and from_total is None:
        return None, None
    given, to_delta, to_total = (from_delta, *maps[:2]) if from_total is None else (from_total, *maps[2:])
    return given * to_delta, given * to_total


def rule(
    delta: Tensor, total: Tensor, reference: Tensor | None, at_reference: Tensor | None, phi: Function, c: Any
) -> tuple[Tensor, ...]:
    """The new delta and total and the multipliers: two for ReLU, else four."""
    if _closed(phi, reference):
        return relu(delta, total, c)
    return scores_and_maps(delta, total, *changes(delta, total, reference, at_reference, phi), c)


def rule_at(delta: Tensor, total: Tensor, *values_phi_c: Any) -> tuple[Tensor, ...]:
    """The same from the values of phi at the four points."""
    *at, _, c = values_phi_c
    return scores_and_maps(delta, total, *changes_at(delta, total, *at), c)


def _by_kernel(alone: Any, at: Any, given: tuple[Tensor, ...], saved: Any, phi: Function, c: float) -> tuple[Tensor, ...]:
    """A formula of delta and total, or of these and the values of phi, as one kernel.

    Against a reference, small differences of phi at neighbouring points count. So phi itself is left to torch there: a
    kernel's last digit may differ.
    """
    delta, total, reference, at_reference = saved
    if reference is None:
        return fused.run(alone, (*given, delta, total, None, None), phi, c)
    return fused.run(at, (*given, delta, total, *values(delta, total, reference, at_reference, phi)), phi, c)


def applied(
    delta: Tensor, total: Tensor, reference: Tensor | None, at_reference: Tensor | None, phi: Function, c: float, pays: bool
) -> tuple[Tensor, ...]:
    """``rule``, as one kernel if that pays."""
    if pays:
        return _by_kernel(rule, rule_at, (), (delta, total, reference, at_reference), phi, c)
    return rule(delta, total, reference, at_reference, phi, c)


class _Elementwise(torch.autograd.Function):
    """Multipliers are kept: on the way back they are all that is needed."""

    @staticmethod
    def forward(
        ctx: Any,
        delta: Tensor,
        total: Tensor,
        reference: Tensor | None,
        at_reference: Tensor | None,
        phi: Function,
        c: float,
        pays: bool,
    ) -> tuple[Tensor, Tensor]:
        new_delta, new_total, *maps = applied(delta, total, reference, at_reference, phi, c, pays)
        ctx.save_for_backward(*maps)
        ctx.set_materialize_grads(False)
        return new_delta, new_total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        maps = ctx.saved_tensors
        return (*pulled(gradients, maps), None, None, None, None, None)


class _LargeElementwise(torch.autograd.Function):
    """The same with less memory: nothing is kept but the arguments, and rows are worked on block by block."""

    @staticmethod
    def forward(
        ctx: Any,
        delta: Tensor,
        total: Tensor,
        reference: Tensor | None,
        at_reference: Tensor | None,
        phi: Function,
        c: float,
        pays: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(delta, total, reference, at_reference)
        ctx.rule = (phi, c)
        ctx.set_materialize_grads(False)
        new_delta, new_total = torch.empty_like(delta), torch.empty_like(total)
        for rows in _blocks(delta, phi):
            parts = _cut(rows, delta, total, reference, at_reference)
            change, along, against, _ = flows(*parts, phi, c)  # type: ignore[arg-type, call-arg]
            torch.add(along.sub_(against).mul_(2), change.abs(), out=new_total[rows])
            new_delta[rows] = change
        return new_delta, new_total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        delta, total = ctx.saved_tensors[:2]
        if gradients == (None, None):
            return (None,) * 7
        to_delta, to_total = torch.empty_like(delta), torch.empty_like(total)
        for rows in _blocks(delta, ctx.rule[0]):
            parts = _cut(rows, *ctx.saved_tensors)
            maps = multipliers(parts[0], parts[1], *flows(*parts, *ctx.rule))  # type: ignore[arg-type]
            to_delta[rows], to_total[rows] = pulled(_cut(rows, *gradients), maps)  # type: ignore[assignment]
        return to_delta, to_total, None, None, None, None, None


class _Fused(torch.autograd.Function):
    """The same in one kernel for each direction, without blocks."""

    @staticmethod
    def forward(
        ctx: Any,
        delta: Tensor,
        total: Tensor,
        reference: Tensor | None,
        at_reference: Tensor | None,
        phi: Function,
        c: float,
        pays: bool,
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(delta, total, reference, at_reference)
        ctx.rule = (phi, c)
        ctx.set_materialize_grads(False)
        return _by_kernel(_forward, _forward_at, (), (delta, total, reference, at_reference), phi, c)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        if gradients == (None, None):
            return (None,) * 7
        full = tuple(torch.zeros_like(ctx.saved_tensors[0]) if gradient is None else gradient for gradient in gradients)
        return (*_by_kernel(_backward, _backward_at, full, ctx.saved_tensors, *ctx.rule), None, None, None, None, None)


def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    """The new delta and total; the compiler leaves out what they do not need."""
    return rule(*arguments)[:2]


def _forward_at(*arguments: Any) -> tuple[Tensor, ...]:
    return rule_at(*arguments)[:2]


def _backward(from_delta: Tensor, from_total: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    """The gradients at delta and total."""
    _, _, *maps = rule(*arguments)
    return pull(from_delta, from_total, *maps, *(() if len(maps) == 4 else maps[::-1]))


def _backward_at(from_delta: Tensor, from_total: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    _, _, *maps = rule_at(*arguments)
    return pull(from_delta, from_total, *maps)


def _blocks(delta: Tensor, phi: Function) -> list[slice]:
    """Slices of dimension 0; one for all if phi is not a function of torch alone and may hold constants of that size."""
    if not is_plain(phi) or delta.ndim == 0:
        return [slice(None)]
    step = max(1, BLOCK * len(delta) // delta.numel())
    return [slice(start, start + step) for start in range(0, len(delta), step)]


def _cut(rows: slice, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    return tuple(None if tensor is None else tensor[rows] for tensor in tensors)
