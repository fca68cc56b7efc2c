"""The activation rule of units that hand on their net value alone (``netting="unit"``): two multipliers, in few passes.

In the words of ``activation.py``, with q = min(p, n) and e = (k - m) / q, which is what the smaller side is multiplied by (0
where it is empty), the multipliers of delta' = dd delta + dt total are

    dt = (D - e d) / (t + |d|)    and    dd = e + sgn(d) dt,

which add up to D whatever e is. For ReLU, with h = max(r, a), m = r + d / 2 the middle between r and a, and [x] for x held
between -1/2 and 1/2,

    D / d = 1/2 + [m / |d|]
    mean flows: (up + down) / 2 q = 1/2 + [(m - |d| [m / |d|]) / 2 q]
    peak flows: max(up, down) / q = 1 + min(max(h / q, -1), 0)

and the linear flow never needs its cap. Without a reference these are 1 where the unit is active and else 0, 1/2, and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._core import kernels
from .._core.activation import BLOCK, LARGE, at_points, between, blocks, cut, in_its_dtype, peak_flows, where_above
from .._core.flow_rule import FlowRule
from .._core.math_functions import CLOSED_SLOPES, Function, is_plain, over_rows
from .._core.mean_flows import mean_flows, mean_share, small_changes
from .._core.steps import Pair, Step


def net_activation(
    delta: Tensor, reference: Tensor | None, phi: Function, keeps_zero: bool, rule: FlowRule
) -> tuple[Step, Tensor | None, Tensor | None, Function]:
    """The step through phi, with the reference before and behind it, as ``activation`` gives it."""
    if not is_plain(phi):
        phi = in_its_dtype(phi)
    if reference is None and not keeps_zero:
        reference = delta.new_zeros(()).expand(delta.shape)
    return NETTED, reference, None if reference is None else over_rows(phi, reference), phi


def _apply(delta: Tensor, total: Tensor, reference: Any, behind: Any, phi: Function, rule: FlowRule) -> Any:
    """The new delta and its size; kept are two multipliers and the new delta, for its sign."""
    in_place = phi is torch.relu and reference is not None and rule.kind == "mean"  # no results of blocks to be copied
    if is_plain(phi) and delta.numel() >= kernels.SMALL and kernels.pays(delta, phi):
        change, *maps = _by_kernel(delta, total, reference, behind, phi, rule)
    elif delta.numel() > CACHED and _takes_pieces(delta, total, reference, behind, phi, rule):
        change, *maps = _by_pieces(delta, total, reference, behind, phi, rule)
    elif delta.numel() <= (BLOCK if in_place else LARGE - 1):
        change, *maps = _rule(delta, total, reference, behind, phi, rule)
    else:
        change, *maps = whole = tuple(torch.empty_like(delta) for _ in range(3))
        for rows in blocks(delta, phi):
            d, t, r, b = cut(rows, delta, total, reference, behind)
            places = cut(rows, *whole)
            if in_place:
                _relu_by_mean(d, t, (r, b), phi, rule.c, places)
            else:
                for place, part in zip(places, _rule(d, t, r, b, phi, rule), strict=True):
                    place.copy_(part)
    return change, change.abs(), (change, *maps), ()


def _pull(gradients: Sequence[Tensor | None], tensors: Sequence[Any], rest: tuple[Any, ...]) -> Pair:
    """What flows back to the size of the new delta flows back to it, with its sign."""
    (change, dd, dt), (given, from_total) = tensors, gradients
    several = [one for one in (given, from_total) if one is not None]
    if change.numel() > 2 * CACHED and several and all(one.is_contiguous() for one in (*several, *tensors)):
        return _pull_pieces(given, from_total, change, dd, dt)
    if from_total is not None:
        signed = change.sign().mul_(from_total)
        given = signed if given is None else signed.add_(given)
    return (None, None) if given is None else (given * dd, given * dt)


def _pull_pieces(given: Tensor | None, from_total: Tensor | None, change: Tensor, dd: Tensor, dt: Tensor) -> Pair:
    """The same, some elements at a time."""
    whole = torch.empty_like(change), torch.empty_like(change)
    flat = [None if one is None else one.view(-1) for one in (given, from_total, change, dd, dt, *whole)]
    for first in range(0, change.numel(), CACHED):
        g, h, *maps, to_delta, to_total = cut(slice(first, first + CACHED), *flat)
        for place, part in zip((to_delta, to_total), _pull((g, h), maps, ()), strict=True):
            place.copy_(part)
    return whole


NETTED = Step(_apply, _pull)


def _rule(delta: Tensor, total: Tensor, reference: Any, behind: Any, phi: Function, rule: FlowRule) -> tuple[Tensor, ...]:
    """The new delta and both multipliers."""
    if phi is torch.relu:
        formula = _relu_by_mean if rule.kind == "mean" else _relu_by_peak
        return formula(delta, total, () if reference is None else (reference, behind), phi, rule.c)
    points = at_points(delta, total, reference, behind, phi)
    if rule.kind == "peak":
        return _any_by_peak(delta, total, points, phi, rule.c)
    change, share = mean_share(delta, total, points, phi, rule.c, reference)
    return change, *_multipliers(delta, total, change, share)


def _by_kernel(delta: Tensor, total: Tensor, reference: Any, behind: Any, phi: Function, rule: FlowRule) -> tuple[Tensor, ...]:
    """The same; what a kernel cannot look at again is put in its place behind it."""
    if phi is torch.relu:
        start = () if reference is None else (reference, behind)
        return kernels.run(_relu_by_mean if rule.kind == "mean" else _relu_by_peak, (delta, total), start, phi, rule.c)
    points = at_points(delta, total, reference, behind, phi)
    if rule.kind == "peak":
        return kernels.run(_any_by_peak, (delta, total), points, phi, rule.c)
    made = kernels.run(_any_by_mean, (delta, total), points, phi, rule.c)
    _look_again(made, _small(delta, total, reference), delta, total, reference, behind, phi, rule)
    return made


def _small(delta: Tensor, total: Tensor, reference: Any) -> tuple[Tensor, ...]:
    """The places whose quotient has lost digits."""
    return small_changes(delta, reference, torch.sub(total, delta.abs()).clamp_min_(0).sign_())


def _look_again(
    made: Sequence[Tensor], small: tuple[Tensor, ...], delta: Tensor, total: Tensor, reference: Any, behind: Any, *how: Any
) -> None:
    """Put in their place what the formula without a closer look has given at few places."""
    if len(small[0]):
        r, b = (None if tensor is None else tensor[small] for tensor in (reference, behind))
        for whole, part in zip(made, _rule(delta[small], total[small], r, b, *how), strict=True):
            whole[small] = part


CACHED = 2**16  # elements of which all that a formula works with stays in the cache


def _takes_pieces(delta: Tensor, total: Tensor, reference: Any, behind: Any, phi: Function, rule: FlowRule) -> bool:
    """Whether every element can be computed by itself: mean flows of a function of torch, one reference for each."""
    if rule.kind != "mean" or reference is None or phi in CLOSED_SLOPES or not is_plain(phi):
        return False
    return all(one.is_contiguous() and one.shape == delta.shape for one in (delta, total, reference, behind))


def _by_pieces(delta: Tensor, total: Tensor, reference: Any, behind: Any, phi: Function, rule: FlowRule) -> tuple[Tensor, ...]:
    """The rule for some elements at a time, however they lie in rows; the few small changes all at once."""
    whole = tuple(torch.empty_like(delta) for _ in range(3))
    flat, places = [one.view(-1) for one in (delta, total, reference, behind)], [one.view(-1) for one in whole]
    small = []
    for first in range(0, delta.numel(), CACHED):
        piece = slice(first, first + CACHED)
        (d, t, r, b), into = cut(piece, *flat), cut(piece, *places)
        if phi is torch.relu:
            _relu_by_mean(d, t, (r, b), phi, rule.c, into)
            continue
        for place, part in zip(into, _any_by_mean(d, t, at_points(d, t, r, b, phi), phi, rule.c), strict=True):
            place.copy_(part)
        small.append(_small(d, t, r)[0].add_(first))
    if small:
        _look_again(places, (torch.cat(small),), *flat, phi, rule)
    return whole


# ---- formulas as kernels take them


def _multipliers(delta: Tensor, total: Tensor, change: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """dd and dt from e; ``share``, which is e, is used up."""
    larger = delta.abs().add_(total).clamp_min_(torch.finfo(delta.dtype).tiny)
    dt = torch.addcmul(change, share, delta, value=-1).div_(larger)
    return share.addcmul_(torch.sign(delta, out=larger), dt), dt


def _any_by_peak(delta: Tensor, total: Tensor, points: Sequence[Tensor], phi: Function, c: Any) -> tuple[Tensor, ...]:
    change, along, against, smaller = peak_flows(delta, total, points, phi, c)
    share = along.add_(against).div_(smaller.mul_(0.5).clamp_min_(torch.finfo(delta.dtype).tiny))
    return change, *_multipliers(delta, total, change, share)


def _any_by_mean(delta: Tensor, total: Tensor, points: Sequence[Tensor], phi: Function, c: Any) -> tuple[Tensor, ...]:
    change, linear, mean, cancels = mean_flows(delta, total, points, phi)
    return change, *_multipliers(delta, total, change, between(linear, mean, c).mul_(cancels))


def _relu_by_mean(
    delta: Tensor,
    total: Tensor,
    points: Sequence[Tensor],
    phi: Function,
    c: Any,
    places: Sequence[Tensor | None] = (None, None, None),
) -> tuple[Tensor, ...]:
    """The results are written to ``places`` if these are given; every pass over the elements that can be spared is."""
    if not points:
        return _relu_from_zero(delta, total, c, c / 2)
    (reference, behind), tiny = points, torch.finfo(delta.dtype).tiny
    size = delta.abs().clamp_min_(tiny)
    doubled, larger = torch.sub(total, size).clamp_min_(tiny), torch.add(total, size)
    middle = torch.add(reference, delta, alpha=0.5, out=places[0])
    linear = torch.div(middle, size, out=places[1]).clamp_(-0.5, 0.5)
    mean = middle.addcmul_(linear, size, value=-1).div_(doubled).clamp_(-0.5, 0.5)
    share = where_above(between(linear, mean, c).add_(0.5), doubled, tiny)  # 0 where nothing cancels
    change = torch.add(reference, delta, out=middle).relu_().sub_(behind)
    dt = torch.addcmul(change, share, delta, value=-1, out=places[2]).div_(larger)
    return change, torch.addcmul(share, torch.sign(delta, out=larger), dt, out=places[1]), dt


def _relu_by_peak(delta: Tensor, total: Tensor, points: Sequence[Tensor], phi: Function, c: Any) -> tuple[Tensor, ...]:
    if not points:
        return _relu_from_zero(delta, total, c, c)
    reference, behind = points
    size, doubled, cancels = _sizes(delta, total)
    value = reference + delta
    change = torch.relu(value).sub_(behind)
    linear = torch.add(reference, delta, alpha=0.5).div_(size).clamp_(-0.5, 0.5).add_(0.5)
    linear.mul_(delta.sign().abs_())  # by the paper there is no linear flow where d is 0
    peak = torch.maximum(value, reference, out=value).div_(doubled).clamp_(-0.5, 0).mul_(2).add_(1)
    return change, *_multipliers(delta, total, change, between(linear, peak, c).mul_(cancels))


def _relu_from_zero(delta: Tensor, total: Tensor, c: Any, cancelled: Any) -> tuple[Tensor, ...]:
    """``cancelled``: c times what shows of cancelled influence."""
    change = torch.relu(delta)
    cancels = torch.sub(total, delta.abs()).clamp_min_(0).sign_()
    share = change.sign().mul_(1 - c).add_(cancelled).mul_(cancels)
    return change, *_multipliers(delta, total, change, share)


def _sizes(delta: Tensor, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """|d| and 2 q, both to divide by, and whether anything cancels."""
    tiny = torch.finfo(delta.dtype).tiny
    size = delta.abs()
    doubled = torch.sub(total, size).clamp_min_(0)
    cancels = doubled.sign()
    return size.clamp_min_(tiny), doubled.clamp_min_(tiny), cancels
