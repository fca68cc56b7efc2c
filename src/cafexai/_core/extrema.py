"""The activation rule with the extrema of functions that fall and then rise.

Peak flows compare phi at the ends of three intervals: [r - n, min(a, r)], [min(a, r), max(a, r)] and [max(a, r), r + p] in the
words of ``activation.py``. Where phi has its minimum inside of one, it does more than the ends tell. With

    rise = phi(upper end) - min phi,    fall = phi(lower end) - min phi    over an interval,

up and down are replaced: K = max(rises of the first and last interval), M = max(their falls). For a monotone phi this is the
rule as it was. What the values from r to a do and undo, V = min(rise, fall) of the middle interval, is added to the positive
and to the negative output alike, c times: it belongs to the positive inputs where d >= 0 and to the negative ones else. So

    delta' = D        total' = |D| + 2 (k + m) + 2 c V.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .activation import activation, between, multipliers, pull_kept
from .flow_rule import FlowRule
from .math_functions import Function, Pointwise
from .steps import Step

LOWEST: dict[str, float] = {}  # name of a function and its settings in words -> where it is lowest; the rules fill it


def lowest_point(phi: Function) -> float | None:
    """Where a function that falls and then rises is lowest; None for all others."""
    options = phi.options if isinstance(phi, Pointwise) else {}
    plain = phi.function if isinstance(phi, Pointwise) else phi
    name = str(getattr(plain, "__name__", "")).partition(".")[0]
    words = (word for word in options.values() if isinstance(word, str) and word != "none")
    return LOWEST.get(" ".join([name, *words]))


def path_activation(
    delta: Tensor, reference: Tensor | None, phi: Function, keeps_zero: bool, rule: FlowRule
) -> tuple[Step, Tensor | None, Tensor | None, Function]:
    """``activation``, with this rule where it was asked for and changes anything."""
    step, before, behind, function = activation(delta, reference, phi, keeps_zero, rule)
    if rule.kind == "extrema" and lowest_point(function) is not None:
        step = EXTREMA
    return step, before, behind, function


def _apply(delta: Tensor, total: Tensor, reference: Tensor | None, behind: Any, phi: Function, rule: FlowRule) -> Any:
    """The new delta and total; kept are the four multipliers."""
    start = torch.zeros_like(delta) if reference is None else reference
    low, high, bottom, top = _ends(delta, total, start)
    size, sign, tiny = delta.abs(), delta.sign(), torch.finfo(delta.dtype).tiny
    change = phi(start + delta) - phi(start)
    smaller = (total - size).clamp_min(0)
    cancels = smaller.sign()
    (rise_below, fall_below), (rise, fall), (rise_above, fall_above) = (
        _moves(phi, one, two) for one, two in ((bottom, low), (low, high), (high, top))
    )
    peak = torch.maximum(rise_below, rise_above) * cancels
    trough = -torch.maximum(fall_below, fall_above) * cancels
    linear = sign * change / size.clamp_min(tiny) * smaller / 2
    along = between(torch.minimum(linear.clamp_min(0), peak), peak, rule.c)
    against = between(torch.maximum(linear.clamp_max(0), trough), trough, rule.c)
    detour = 2 * rule.c * torch.minimum(rise, fall)
    new_total = 2 * (along - against) + change.abs() + detour
    dd, dt, td, tt = multipliers(delta, total, change, along, against, smaller)
    more = detour / (total + size).clamp_min(tiny)
    return change, new_total, (dd, dt, td + sign * more, tt + more), ()


def _ends(delta: Tensor, total: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """min(a, r), max(a, r), r - n and r + p."""
    value, positive = start + delta, torch.lerp(total, delta, 0.5)
    return torch.minimum(value, start), torch.maximum(value, start), start + (positive - total), start + positive


def _moves(phi: Function, lower: Tensor, upper: Tensor) -> Sequence[Tensor]:
    """How much phi rises and falls between two points."""
    point = lowest_point(phi)
    assert point is not None
    least = phi(torch.minimum(torch.clamp_min(lower, point), upper))
    return [(phi(end) - least).clamp_min_(0) for end in (upper, lower)]


EXTREMA = Step(_apply, pull_kept)
