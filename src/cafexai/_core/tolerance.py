"""How numbers are compared: what counts as rounding, and what as equal."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor


@functools.cache
def tolerance(dtype: torch.dtype) -> float:
    """The relative error that counts as rounding in this dtype."""
    return 2e3 * torch.finfo(dtype).eps if torch.finfo(dtype).bits >= 32 else 40 * torch.finfo(dtype).eps


@functools.cache
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


def input_change(x: Tensor, reference: Tensor | None) -> Tensor:
    """The change of an input. A value that is missing (NaN) in both has not changed."""
    if reference is None:
        return x
    delta = x - reference
    return delta if all_finite(delta) else delta.masked_fill(x.isnan() & reference.isnan(), 0.0)


def all_finite(values: Tensor) -> bool:
    """No element is infinite or not a number; a sum that is finite shows it at once."""
    return not values.is_floating_point() or math.isfinite(values.sum().item()) or bool(values.isfinite().all())
