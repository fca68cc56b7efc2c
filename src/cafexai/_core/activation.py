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

With mean flows k - m is (1 - c) h + c (up + down) / 2 instead, nothing being capped, and k + m its size (``mean_flows.py``).
Where d is within rounding, D / d is the derivative of phi.

In this form no coefficient is a difference of large numbers: the combined scores of a deep net keep their digits in
float32 although its totals are many times its outputs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import kernels
from .flow_rule import FlowRule
from .math_functions import Function, is_plain, over_rows
from .mean_flows import mean_share
from .steps import Pair, Step


def apply_flows(
    delta: Tensor, total: Tensor, points: Sequence[Tensor], phi: Function, rule: FlowRule, reference: Tensor | None = None
) -> tuple[Tensor, ...]:
    """The new delta and total and the multipliers: two for ReLU, else four. ``points``: see ``at_points``."""
    if rule.kind != "mean":
        return apply_peak_flows(delta, total, points, phi, rule.c)
    return _with_total(delta, total, *flows(delta, total, points, phi, rule, reference))


def apply_peak_flows(delta: Tensor, total: Tensor, points: Sequence[Tensor], phi: Function, c: Any) -> tuple[Tensor, ...]:
    """The same for peak flows, with c a number, or a tensor in kernels."""
    if not points and phi is torch.relu:
        return _relu(delta, total, c)
    return _with_total(delta, total, *peak_flows(delta, total, points, phi, c))


def _with_total(
    delta: Tensor, total: Tensor, change: Tensor, along: Tensor, against: Tensor, smaller: Tensor
) -> tuple[Tensor, ...]:
    new_total = torch.sub(along, against).mul_(2).add_(change.abs())
    return change, new_total, *multipliers(delta, total, change, along, against, smaller)


def at_points(
    delta: Tensor, total: Tensor, reference: Tensor | None, at_reference: Tensor | None, phi: Function
) -> tuple[Tensor, ...]:
    """phi at the four points r, r + d, r + p and r - n; nothing for a zero reference, where phi is taken in the formulas.

    Against a reference, small differences of phi at neighbouring points count. So phi itself is left to torch there: a
    kernel's last digit may differ.
    """
    if reference is None:
        return ()
    positive = torch.lerp(total, delta, 0.5)
    negative = torch.sub(positive, total).add_(reference)
    at_reference = phi(reference) if at_reference is None else at_reference
    return at_reference, phi(reference + delta), phi(positive.add_(reference)), phi(negative)


# Comparisons and choices by truth values are many times slower than arithmetic on processors. This one is not.
where_above = torch.ops.aten.threshold_backward  # (value, delta, 0): value where delta > 0, else 0


def changes(delta: Tensor, total: Tensor, points: Sequence[Tensor], phi: Function) -> tuple[Tensor, Tensor, Tensor]:
    """D, up and down of the formulas above."""
    if not points:
        positive = torch.lerp(total, delta, 0.5)
        negative = positive - total  # with its sign
        at_top, at_bottom = phi(positive), phi(negative)
        del positive, negative
        change = phi(delta)
        upper = where_above(change, delta, 0)
        up, down, cancels = at_top.sub_(upper), torch.sub(change, upper, out=upper).sub_(at_bottom), _cancels(delta, total)
        return change, up.mul_(cancels), down.mul_(cancels)
    at_reference, at_value, at_top, at_bottom = points
    upper, lower = where_above(at_value, delta, 0), where_above(at_reference, delta, 0)
    upper, lower = upper + (at_reference - lower), lower + (at_value - upper)  # one term of each is 0: nothing is rounded
    cancels = _cancels(delta, total)
    return at_value - at_reference, (at_top - upper).mul_(cancels), lower.sub_(at_bottom).mul_(cancels)


def _cancels(delta: Tensor, total: Tensor) -> Tensor:
    """0 where nothing is cancelled, as are both changes then; of one row, or of a slice, phi may be rounded otherwise."""
    return torch.sub(total, delta.abs()).clamp_min_(0).sign_()


def flows(
    delta: Tensor, total: Tensor, points: Sequence[Tensor], phi: Function, rule: FlowRule, reference: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """D, k, -m of the formulas above, and 2 min(p, n). ``reference`` is asked for mean flows alone."""
    if rule.kind != "mean":
        return peak_flows(delta, total, points, phi, rule.c)
    change, share = mean_share(delta, total, points, phi, rule.c, reference)
    smaller = torch.sub(total, delta.abs()).clamp_min_(0)
    net = share.mul_(smaller).mul_(0.5)
    return change, net.clamp_min(0), net.clamp_max_(0), smaller


def peak_flows(
    delta: Tensor, total: Tensor, points: Sequence[Tensor], phi: Function, c: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same for peak flows, with c a number, or a tensor in kernels."""
    change, up, down = changes(delta, total, points, phi)
    size, sign = delta.abs(), delta.sign()
    smaller = torch.sub(total, size).clamp_min_(0)
    linear = sign.mul_(change).div_(size.clamp_min_(torch.finfo(delta.dtype).tiny))  # 0 where delta and change are 0
    linear.mul_(smaller).mul_(0.5)
    del size, sign
    peak = torch.maximum(up, down).clamp_min_(0)
    trough = torch.minimum(up, down, out=up).clamp_max_(0)
    along = torch.clamp_min(linear, 0, out=down)
    along = between(torch.minimum(along, peak, out=along), peak, c)
    against = linear.clamp_max_(0)
    against = between(torch.maximum(against, trough, out=against), trough, c)
    return change, along, against, smaller


def between(linear: Tensor, peak: Tensor, c: Any) -> Tensor:
    """(1 - c) linear + c peak; in a kernel, where c is a tensor, written so that nothing need be compared."""
    return linear * (1 - c) + peak * c if isinstance(c, Tensor) else linear.lerp_(peak, c)


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


def _relu(delta: Tensor, total: Tensor, c: Any) -> tuple[Tensor, ...]:
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


# ---- as a step: three ways to keep what the backward pass needs

LARGE = 2**20  # elements from which on multipliers are computed again for each backward pass instead of being kept
BLOCK = 2**18  # elements that are then worked on at a time


def activation(
    delta: Tensor, reference: Tensor | None, phi: Function, keeps_zero: bool, rule: FlowRule
) -> tuple[Step, Tensor | None, Tensor | None, Function]:
    """The step through phi for values like these, with the reference before and behind it; ``keeps_zero``: phi(0) = 0."""
    plain = is_plain(phi)
    if not plain:
        phi = in_its_dtype(phi)
    if reference is None and not keeps_zero:
        reference = delta.new_zeros(()).expand(delta.shape)
    behind = None if reference is None else over_rows(phi, reference)
    pays = plain and rule.kind != "mean" and delta.numel() >= kernels.SMALL and kernels.pays(delta, phi)
    closed = phi is torch.relu and reference is None and rule.kind != "mean"
    if delta.numel() >= LARGE and (pays or not closed):
        return (COMPILED if pays else RECOMPUTED), reference, behind, phi
    return (KEPT_COMPILED if pays else KEPT), reference, behind, phi


def in_its_dtype(phi: Function) -> Function:
    """A function of the user, who may compute in another precision."""
    return lambda value: phi(value).to(value.dtype)


def _pull_back(gradients: Sequence[Tensor | None], maps: Sequence[Tensor]) -> Pair:
    """Through the multipliers, also where only one of the gradients is there; of two maps, each stands for two of the four."""
    from_delta, from_total = gradients
    if len(maps) == 2:
        maps = (*maps, *maps[::-1])
    if from_delta is not None and from_total is not None:
        return _pull_both(from_delta, from_total, *maps)
    if from_delta is None and from_total is None:
        return None, None
    given, to_delta, to_total = (from_delta, *maps[:2]) if from_total is None else (from_total, *maps[2:])
    return given * to_delta, given * to_total  # type: ignore[operator]


def _pull_both(from_delta: Tensor, from_total: Tensor, dd: Tensor, dt: Tensor, td: Tensor, tt: Tensor) -> tuple[Tensor, Tensor]:
    return (from_delta * dd).addcmul_(from_total, td), (from_delta * dt).addcmul_(from_total, tt)


def _keep_multipliers(
    kernel: bool, delta: Tensor, total: Tensor, reference: Any, behind: Any, phi: Function, rule: FlowRule
) -> Any:
    """Multipliers are kept: in the backward pass they are all that is needed."""
    points = at_points(delta, total, reference, behind, phi)
    if kernel:
        made = kernels.run(apply_peak_flows, (delta, total), points, phi, rule.c)
    else:
        made = apply_flows(delta, total, points, phi, rule, reference)
    return *made[:2], made[2:], ()


def pull_kept(gradients: Sequence[Tensor | None], maps: Sequence[Tensor], rest: tuple[Any, ...]) -> Pair:
    return _pull_back(gradients, maps)


def _recompute(delta: Tensor, total: Tensor, reference: Any, behind: Any, phi: Function, rule: FlowRule) -> Any:
    """Nothing is kept but the arguments, and rows are worked on block by block."""
    new_delta, new_total = torch.empty_like(delta), torch.empty_like(total)
    for rows in blocks(delta, phi):
        d, t, r, b = cut(rows, delta, total, reference, behind)
        change, along, against, _ = flows(d, t, at_points(d, t, r, b, phi), phi, rule, r)
        torch.add(along.sub_(against).mul_(2), change.abs(), out=new_total[rows])
        new_delta[rows] = change
    return new_delta, new_total, (delta, total, reference, behind), (phi, rule)


def _pull_recomputed(gradients: Sequence[Tensor | None], tensors: Sequence[Any], rest: tuple[Any, ...]) -> Pair:
    delta, total, reference, behind = tensors
    phi, rule = rest
    if gradients[0] is None and gradients[1] is None:
        return None, None
    to_delta, to_total = torch.empty_like(delta), torch.empty_like(total)
    for rows in blocks(delta, phi):
        d, t, r, b = cut(rows, delta, total, reference, behind)
        maps = multipliers(d, t, *flows(d, t, at_points(d, t, r, b, phi), phi, rule, r))
        to_delta[rows], to_total[rows] = _pull_back(cut(rows, *gradients), maps)  # type: ignore[assignment]
    return to_delta, to_total


def _compile(delta: Tensor, total: Tensor, reference: Any, behind: Any, phi: Function, rule: FlowRule) -> Any:
    """Nothing is kept but the arguments, with one kernel for each direction and no blocks."""
    points = at_points(delta, total, reference, behind, phi)
    new_delta, new_total = kernels.run(_only_scores, (delta, total), points, phi, rule.c)
    return new_delta, new_total, (delta, total, reference, behind), (phi, rule.c)


def _pull_compiled(gradients: Sequence[Tensor | None], tensors: Sequence[Any], rest: tuple[Any, ...]) -> Pair:
    delta, total, reference, behind = tensors
    if gradients[0] is None and gradients[1] is None:
        return None, None
    full = (torch.zeros_like(delta) if gradient is None else gradient for gradient in gradients)
    points = at_points(delta, total, reference, behind, rest[0])
    to_delta, to_total = kernels.run(_only_pulled, (*full, delta, total), points, *rest)
    return to_delta, to_total


def _only_scores(delta: Tensor, total: Tensor, points: Sequence[Tensor], phi: Function, c: Any) -> tuple[Tensor, ...]:
    """The new delta and total; the compiler leaves out what they do not need."""
    return apply_peak_flows(delta, total, points, phi, c)[:2]


def _only_pulled(
    from_delta: Tensor, from_total: Tensor, delta: Tensor, total: Tensor, points: Sequence[Tensor], phi: Function, c: Any
) -> tuple[Tensor, ...]:
    """The gradients at delta and total."""
    _, _, *maps = apply_peak_flows(delta, total, points, phi, c)
    return _pull_both(from_delta, from_total, *maps, *(() if len(maps) == 4 else maps[::-1]))


KEPT = Step(functools.partial(_keep_multipliers, False), pull_kept)
KEPT_COMPILED = Step(functools.partial(_keep_multipliers, True), pull_kept)
RECOMPUTED = Step(_recompute, _pull_recomputed)
COMPILED = Step(_compile, _pull_compiled)


def blocks(delta: Tensor, phi: Function) -> list[slice]:
    """Slices of dimension 0; one for all if phi is not a function of torch alone and may hold constants of that size."""
    if not is_plain(phi) or delta.ndim == 0:
        return [slice(None)]
    step = max(1, BLOCK * len(delta) // delta.numel())
    return [slice(start, start + step) for start in range(0, len(delta), step)]


def cut(rows: slice, *tensors: Any) -> tuple[Any, ...]:
    return tuple(None if tensor is None else tensor[rows] for tensor in tensors)
