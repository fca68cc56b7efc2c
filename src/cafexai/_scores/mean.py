"""Mean flows: cancelled influence shows in the mean of its two ways, and nothing is capped.

In the words of ``activation.py``, k - m = (1 - c) h + c (up + down) / 2 and k + m is its size. The ends of both ways are the
same four points, up + down = phi(r + p) - phi(r - n) - sgn(d) D, so that with q = min(p, n)

    (k - m) / q = (1 - c) D / d + c (phi(r + p) - phi(r - n) - sgn(d) D) / 2 q.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .functions import Function, derivative, is_plain, over_rows, slope


class Mean(float):
    """A constant c with which cancelled influence shows in the mean of its two ways instead of the larger of them."""


def mean_share(
    delta: Tensor, total: Tensor, points: Sequence[Tensor], phi: Function, c: float, reference: Tensor | None
) -> tuple[Tensor, Tensor]:
    """D and (k - m) / q, which is 0 where q is; ``points``: see ``at_points``."""
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
    linear = _slopes(delta, size, change, rise.div_(size.clamp_min(tiny)), phi, reference)
    return change, linear.lerp_(both, float(c)).mul_(cancels)


def _slopes(delta: Tensor, size: Tensor, change: Tensor, quotient: Tensor, phi: Function, reference: Tensor | None) -> Tensor:
    """D / d; the few elements that need a second look, d being small beside r and a, are taken by themselves."""
    tiny = torch.finfo(delta.dtype).tiny
    if reference is None:  # only 0 is small beside itself
        zero = size.sub(tiny).clamp_max_(0).nonzero(as_tuple=True)
        if len(zero[0]):
            quotient[zero] = derivative(phi, delta.new_zeros(1))
        return quotient
    value = reference + delta
    if not is_plain(phi):  # it may hold a number for each place
        return slope(phi, reference.expand(delta.shape), value, delta, change)
    limit = torch.finfo(delta.dtype).eps ** 0.5
    beside = over_rows(lambda r: r.abs().mul_(limit).add_(tiny), reference)
    small = torch.add(beside, value.abs(), alpha=limit).sub_(size).clamp_min_(0).nonzero(as_tuple=True)
    if len(small[0]):
        quotient[small] = slope(phi, reference.expand(delta.shape)[small], value[small], delta[small], change[small])
    return quotient
