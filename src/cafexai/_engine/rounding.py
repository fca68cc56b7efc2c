"""Whose rounding it is that the explained output differs from that of the model, or that scores miss it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .._carriers.path import PathScores
from .._core.completeness import make_rounding_error, too_large
from .._core.foreign import pass_on
from .._core.run import Settings
from .._core.tolerance import all_finite, gap, tolerance
from .._torch import tree_map_only
from ..errors import CompletenessError, OutputDiffers, SumBroken, UnsupportedOperation
from .attempt import try_plain
from .forward import forward, plain_output
from .job import Batch, Job

AS_FAR = 4  # times the loss of the model: so far another computation may lose digits in the same places


class _InDouble(TorchFunctionMode):
    """All that the model computes, in float64, as far as it lets us."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return pass_on(func, _wide(args), _wide(kwargs or {}))


def _wide(parts: Any) -> Any:
    return tree_map_only(Tensor, lambda t: t.double() if t.is_floating_point() else t, parts)


def refuse_own_rounding(job: Job, batch: Batch, error: OutputDiffers) -> None:
    """Say so if the model in float64 gives what was explained: then it is the model that has lost its digits."""
    if error.found is None or error.found.device.type == "mps":
        return
    own = plain_output(job, batch)
    if own.dtype is torch.float64 or not torch.equal(own, plain_output(job, batch)):  # it is not rounding that makes it differ
        return
    with _InDouble():
        exact = try_plain(job, batch)  # None: it asks for a precision, or writes where other numbers are
    if not isinstance(exact, Tensor) or exact.dtype is not torch.float64 or exact.shape != own.shape:
        return
    lost, near, limit = gap(own.double(), exact), gap(error.found.double(), exact), tolerance(torch.float32)
    if AS_FAR * lost > limit and near <= max(limit, AS_FAR * lost):  # what is far from both is no rounding
        what = "the exact output" if near <= limit else "one with other lost digits"
        raise UnsupportedOperation(
            f"explain(...): the model loses its own digits: in {own.dtype} its output differs from that of the same model in "
            f"float64 by {lost:.3g} relative, as when a small number is added to a large one that is subtracted again. What is "
            f"explained is {what} (to {near:.3g}), not this one. Instead: explain the model in float64, "
            "CAFE(model.double()).explain(x.double())."
        ) from error


def refuse_rounding_inside(job: Job, batch: Batch, settings: Settings, error: SumBroken) -> None:
    """Say so if rounding explains what the scores miss, though the carrier has forgotten the influence that it comes from.

    Paths forget nothing: one more forward pass has the influence on all of them.
    """
    if not settings.carrier.forgets or error.lack is None:
        return
    try:
        passed = forward(job, batch, dataclasses.replace(settings, carrier=PathScores, dtype=torch.float64))
    except (CompletenessError, UnsupportedOperation, ValueError):  # paths have troubles of their own
        return
    influence, change = passed.chosen.influence(), passed.chosen.delta.detach()
    passed.run.release()
    if not all_finite(error.lack) and not all_finite(influence):
        raise too_large(settings, change.dtype) from error
    if all_finite(influence) and bool((error.lack.abs() <= error.limit * influence).all()):
        raise make_rounding_error(settings, change, error.lack, influence) from error
