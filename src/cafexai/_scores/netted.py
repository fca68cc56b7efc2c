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

from .activation import LARGE, at_points, blocks, cut, in_its_dtype, share_of
from .functions import Function, is_plain, over_rows
from .mean import Mean
from .steps import Pair, Step


def netted_activation(
    delta: Tensor, reference: Tensor | None, phi: Function, keeps_zero: bool, c: float
) -> tuple[Step, Tensor | None, Tensor | None, Function]:
    """The step through phi, with the reference before and behind it, as ``activation`` gives it."""
    if not is_plain(phi):
        phi = in_its_dtype(phi)
    if reference is None and not keeps_zero:
        reference = delta.new_zeros(()).expand(delta.shape)
    return NETTED, reference, None if reference is None else over_rows(phi, reference), phi


def _apply(delta: Tensor, total: Tensor, reference: Any, behind: Any, phi: Function, c: float) -> Any:
    """The new delta and its size; kept are two multipliers and the new delta, for its sign."""
    if delta.numel() < LARGE:
        change, *maps = _rule(delta, total, reference, behind, phi, c)
    else:
        change, *maps = (torch.empty_like(delta) for _ in range(3))
        for rows in blocks(delta, phi):
            d, t, r, b = cut(rows, delta, total, reference, behind)
            made = _rule(d, t, r, b, phi, c)
            for whole, part in zip((change, *maps), made, strict=True):
                whole[rows] = part
    return change, change.abs(), (change, *maps), ()


def _pull(gradients: Sequence[Tensor | None], tensors: Sequence[Any], rest: tuple[Any, ...]) -> Pair:
    """What flows back to the size of the new delta flows back to it, with its sign."""
    (change, dd, dt), (given, from_total) = tensors, gradients
    if from_total is not None:
        signed = change.sign().mul_(from_total)
        given = signed if given is None else signed.add_(given)
    return (None, None) if given is None else (given * dd, given * dt)


NETTED = Step(_apply, _pull)


def _rule(delta: Tensor, total: Tensor, reference: Any, behind: Any, phi: Function, c: float) -> tuple[Tensor, ...]:
    """The new delta and both multipliers."""
    if phi is torch.relu:
        return _of_relu(delta, total, reference, behind, c)
    points = at_points(delta, total, reference, behind, phi)
    change, share = share_of(delta, total, points, phi, c, reference)
    return change, *_multipliers(delta, total, change, share)


def _multipliers(delta: Tensor, total: Tensor, change: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """dd and dt from e; ``share``, which is e, is used up."""
    larger = delta.abs().add_(total).clamp_min_(torch.finfo(delta.dtype).tiny)
    dt = torch.addcmul(change, share, delta, value=-1).div_(larger)
    return share.addcmul_(torch.sign(delta, out=larger), dt), dt


def _of_relu(delta: Tensor, total: Tensor, reference: Tensor | None, behind: Tensor | None, c: float) -> tuple[Tensor, ...]:
    mean, c = isinstance(c, Mean), float(c)
    tiny = torch.finfo(delta.dtype).tiny
    size = delta.abs().clamp_min_(tiny)
    doubled = torch.sub(total, size).clamp_min_(0)  # 2 q
    if reference is None or behind is None:
        change = torch.relu(delta)
        share = change.sign().mul_(1 - c).add_(c / 2 if mean else c)
        return change, *_multipliers(delta, total, change, share.mul_(doubled.sign_()))
    value = reference + delta
    change = torch.relu(value).sub_(behind)
    cancels = doubled.sign()
    doubled.clamp_min_(tiny)
    middle = torch.add(reference, delta, alpha=0.5)
    linear = torch.div(middle, size).clamp_(-0.5, 0.5)
    if mean:
        away = middle.addcmul_(linear, size, value=-1).div_(doubled).clamp_(-0.5, 0.5)
        share = linear.lerp_(away, c).add_(0.5)
    else:
        highest = torch.maximum(value, reference, out=value).div_(doubled).clamp_(-0.5, 0)
        share = linear.add_(0.5).lerp_(highest.mul_(2).add_(1), c)
    return change, *_multipliers(delta, total, change, share.mul_(cancels))
