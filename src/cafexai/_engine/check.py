"""The law, a = reference + positive - negative, against numbers that the engine did not make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.overrides import resolve_name

from .._core.foreign import pass_on
from .._core.run import Run
from .._core.tensors import plain
from .._core.tolerance import all_finite, gap, tolerance
from .._core.value import Scores
from ..errors import CompletenessError, OutputDiffers

WHOLE = 1e-8  # of the output of a whole model in float64: digits may be lost inside it, and no rule is wrong by so little


def check_output(found: Tensor, reference: Tensor | None, expected: Tensor, run: Run) -> None:
    """Compare the explained output with the plain one."""
    if not all_finite(found):
        _refuse_infinite(expected)
        run.refuse_infinite()
        raise ValueError(
            "explain(...): scored values are not finite at the output. cafexai.debug.check_operations(cafe, x) finds the "
            "operation."
        )
    error = gap(found, expected.to(found.dtype), reference)
    if expected.dtype is not run.coarsest:
        run.note_dtype(expected.dtype)
    limit = max(tolerance(run.coarsest), WHOLE)
    if not error <= limit:
        _refuse_infinite(expected)
        raise OutputDiffers(
            f"explain(...): reference + positive - negative differs from model(x) by {error:.3g} relative (allowed "
            f"{limit:.3g}). Either the model is not deterministic, or a rule is wrong: "
            "cafexai.debug.check_operations(cafe, x) finds the operation.",
            found,
        )


def _refuse_infinite(expected: Tensor) -> None:
    if not all_finite(expected):
        raise ValueError("explain(...): the output of the model itself, model(x), is not finite.")


def check_operation(func: Callable[..., Any], args: Any, kwargs: Any, result: Any, run: Run) -> None:
    """Compare one operation with the same call on plain numbers (``cafexai.debug.check_operations``)."""
    inputs = plain(args)
    expected = pass_on(func, inputs, plain(kwargs))
    if expected is None:  # __setitem__
        expected = inputs[0]
    pairs = [(result, expected)] if isinstance(result, Scores) else list(_pairs(result, expected))
    name = resolve_name(func) or getattr(func, "__name__", str(func))
    for scores, correct in pairs:
        if not isinstance(scores, Scores) or not isinstance(correct, Tensor):
            continue
        found, limit = scores.value, tolerance(run.coarsest)
        if not all_finite(found):
            run.refuse_infinite()
        error = gap(found, correct.to(found.dtype), None if scores.pending else scores.reference)
        worst = scores.worst_sign()
        if not error <= limit or worst > limit:
            what = f"a score is negative by {worst:.3g} relative"
            if not error <= limit:
                what = f"reference + positive - negative differs from the plain result by {error:.3g} relative"
            raise CompletenessError(
                f"check_operations(...): {name} in module {run.path!r} violates completeness: {what} (allowed {limit:.3g})."
            )


def _pairs(result: Any, expected: Any) -> Any:
    if isinstance(result, (tuple, list)) and isinstance(expected, (tuple, list)):
        return zip(result, expected, strict=True)
    return [(result, expected)]
