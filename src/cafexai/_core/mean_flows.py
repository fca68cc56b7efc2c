"""Mean flows: cancelled influence shows in the mean of its two ways, and nothing is capped.

In the words of ``activation.py``, k - m = (1 - c) h + c (up + down) / 2 and k + m is its size. The ends of both ways are the
same four points, up + down = phi(r + p) - phi(r - n) - sgn(d) D, so that with q = min(p, n)

    (k - m) / q = (1 - c) D / d + c (phi(r + p) - phi(r - n) - sgn(d) D) / 2 q.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .math_functions import CLOSED_SLOPES, Function, is_plain, over_rows, slope


def mean_share(
    delta: Tensor, total: Tensor, points: Sequence[Tensor], phi: Function, c: float, reference: Tensor | None
) -> tuple[Tensor, Tensor]:
    """D and (k - m) / q, which is 0 where q is; ``points``: see ``at_points``."""
    change, linear, mean, cancels = mean_flows(delta, total, points, phi)
    return change, _slopes(delta, change, linear, phi, reference, cancels).lerp_(mean, c).mul_(cancels)


def mean_flows(delta: Tensor, total: Tensor, points: Sequence[Tensor], phi: Function) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """D, D / d as the quotient that it is, (up + down) / 2 q, and whether anything cancels."""
    size, tiny = delta.abs(), torch.finfo(delta.dtype).tiny
    if not points:
        positive = torch.lerp(total, delta, 0.5)
        change, both = phi(delta), phi(positive) - phi(positive - total)
    else:
        change, both = points[1] - points[0], points[2] - points[3]
    rise = delta.sign().mul_(change)
    doubled = torch.sub(total, size).clamp_min_(0)
    cancels = doubled.sign()
    both.sub_(rise).div_(doubled.clamp_min_(tiny))
    return change, rise.div_(size.clamp_min_(tiny)), both, cancels


def _slopes(
    delta: Tensor, change: Tensor, quotient: Tensor, phi: Function, reference: Tensor | None, cancels: Tensor
) -> Tensor:
    """D / d, of which the few elements with a d that is small beside r and a are looked at again."""
    if phi in CLOSED_SLOPES or not is_plain(phi):  # it may hold a number for each place
        start = torch.zeros_like(delta) if reference is None else reference.expand(delta.shape)
        return slope(phi, start, start + delta, delta, change)
    small = small_changes(delta, reference, cancels)
    if len(small[0]):
        d = delta[small]
        start = torch.zeros_like(d) if reference is None else reference.expand(delta.shape)[small]
        quotient[small] = slope(phi, start, start + d, d, change[small])
    return quotient


def small_changes(delta: Tensor, reference: Tensor | None, cancels: Tensor) -> tuple[Tensor, ...]:
    """The places where d is so small beside r and a that D / d has lost digits, and where that counts: something cancels."""
    limits = torch.finfo(delta.dtype)
    if reference is None:  # only 0 is small beside itself
        return delta.abs().sub_(limits.tiny).clamp_max_(0).mul_(cancels).nonzero(as_tuple=True)
    beside = over_rows(lambda r: r.abs().mul_(limits.eps**0.5).add_(limits.tiny), reference)
    value = torch.add(reference, delta).abs_()
    smaller = torch.add(beside, value, alpha=limits.eps**0.5).sub_(delta.abs()).clamp_min_(0)
    return smaller.mul_(cancels).nonzero(as_tuple=True)
