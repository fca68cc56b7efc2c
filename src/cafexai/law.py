"""The checks: a = reference + positive - negative, against numbers that the engine did not make."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import resolve_name

from .scores import Run, Scores
from .tensors import plain


class LawBroken(RuntimeError):
    """A score does not add up. This is a fault of a rule, never of the model: please report it."""


def tolerance(dtype: torch.dtype) -> float:
    """The relative error that counts as rounding in this dtype."""
    return 2e3 * torch.finfo(dtype).eps if torch.finfo(dtype).bits >= 32 else 40 * torch.finfo(dtype).eps


def warn(message: str) -> None:
    """A warning at the line outside of this library that asked for it."""
    depth, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("cafexai", "contextlib")):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, stacklevel=depth)


def widest(device: torch.device) -> torch.dtype:
    """The dtype for sums that must be exact: float64 where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def gap(found: Tensor, expected: Tensor, reference: Tensor | None = None) -> float:
    """The largest difference, relative to the largest number involved: expected values and what they are measured from."""
    if found.shape != expected.shape:
        return torch.inf
    if not expected.numel():
        return 0.0
    difference = (found - expected).abs().max().item()
    if not math.isfinite(difference):  # infinite in both, or not a number in both, is no difference
        same = (found == expected) | (found.isnan() & expected.isnan())
        difference = (found - expected).abs().masked_fill(same, 0).max().item()
    return difference / max(_largest(expected), 0.0 if reference is None else _largest(reference), 1e-30)


def _largest(values: Tensor) -> float:
    """The largest finite magnitude."""
    largest: float = values.abs().max().item()
    if math.isfinite(largest):
        return largest
    return values.abs().where(values.isfinite(), torch.zeros_like(values)).max().item()


def all_finite(values: Tensor) -> bool:
    """No element is infinite or not a number; a sum that is finite shows it at once."""
    return not values.is_floating_point() or math.isfinite(values.sum().item()) or bool(values.isfinite().all())


def check_operation(func: Callable[..., Any], args: Any, kwargs: Any, result: Any, run: Run) -> None:
    """Compare one operation with the same call on plain numbers (``check="each"``)."""
    inputs = plain(args)
    expected = func(*inputs, **plain(kwargs))
    if expected is None:  # __setitem__
        expected = inputs[0]
    pairs = [(result, expected)] if isinstance(result, Scores) else list(_pairs(result, expected))
    name = resolve_name(func) or getattr(func, "__name__", str(func))
    for scores, correct in pairs:
        if not isinstance(scores, Scores) or not isinstance(correct, Tensor):
            continue
        found = scores.value
        limit = tolerance(run.coarsest)
        error = gap(found, correct.to(found.dtype), None if scores.pending else scores.reference)
        if not error <= limit:
            raise LawBroken(
                f'check="each": {name} in module {run.path!r} breaks the law: reference + positive - negative differs from '
                f"the plain result by {error:.3g} relative (allowed {limit:.3g})."
            )
        worst = scores.worst_sign()
        if worst > limit:
            raise LawBroken(
                f'check="each": {name} in module {run.path!r} breaks the law: a score is negative by {worst:.3g} relative '
                f"(allowed {limit:.3g})."
            )


def _pairs(result: Any, expected: Any) -> Any:
    if isinstance(result, (tuple, list)) and isinstance(expected, (tuple, list)):
        return zip(result, expected, strict=True)
    return [(result, expected)]
