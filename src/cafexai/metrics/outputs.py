"""One number per row of a model's output, the same one for all versions of the row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._core.tolerance import all_finite
from .._engine.diagnose import answer, rows_for
from .._inputs.target import choose_target

AT_ONCE = 2**22  # numbers that a model gets in one call


def choose_output(
    call: str, model: Callable[[Tensor], Any], x: Tensor, target: Any = None
) -> Callable[[Tensor, slice | Tensor], Tensor]:
    """A function of (rows, n, *row) and the rows these are, giving (rows, n).

    ``target``: an index, one per row, a tuple of indices for outputs of more dimensions; None is the only output, or else
    the class predicted for x.
    """
    index = _index(call, model, x, target)

    def outputs(versions: Tensor, rows: slice | Tensor) -> Tensor:
        count, n = versions.shape[:2]
        with torch.no_grad():
            out = model(versions.flatten(0, 1))
        each = torch.arange(count * n, device=out.device)
        places = (each, *(part[rows].to(out.device).repeat_interleave(n) for part in index))
        found = out[places].view(count, n)
        if not all_finite(found):
            raise ValueError(f"{call}(...): the model gives NaN or infinite values for the rows, or for perturbed ones.")
        return found

    return outputs


def _index(call: str, model: Callable[[Tensor], Any], x: Tensor, target: Any) -> tuple[Tensor, ...]:
    out = answer(call, model, rows_for(call, model, x))
    if not isinstance(out, Tensor) or not out.ndim or len(out) != len(x):
        what = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"type {type(out).__name__}"
        raise ValueError(
            f"{call}(...): the output of {what} is not a tensor with one entry per row, for x of shape {tuple(x.shape)}."
        )
    _, index = choose_target(out, target, slice(0, len(x)), len(x), call)
    return tuple(index.unbind(1)) if out.ndim > 1 else ()


def finite_scores(call: str, scores: Any) -> Tensor:
    """Scores as a tensor; they have numbers only."""
    given = torch.as_tensor(scores)
    if not all_finite(given):
        raise ValueError(f"{call}(...): the attributions hold NaN or infinite values.")
    return given


def blocks_of_rows(x: Tensor, n: int) -> list[slice]:
    """Slices of rows of which n versions each go through the model at once; they depend on the shape of x alone."""
    return slices(len(x), n * x[0].numel())


def slices(count: int, size: int) -> list[slice]:
    """All of ``count`` things of so many numbers each, in pieces that a model gets at once."""
    step = max(1, AT_ONCE // max(1, size))
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]
