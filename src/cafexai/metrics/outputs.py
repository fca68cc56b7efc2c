"""One number per row of a model's output, the same one for all versions of the row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._inputs.target import choose_target

AT_ONCE = 2**22  # numbers that a model gets in one call


def chosen_output(model: Callable[[Tensor], Any], x: Tensor, target: Any = None) -> Callable[[Tensor, slice], Tensor]:
    """A function of (rows, n, *row) and the rows these are, giving (rows, n).

    ``target``: an index, one per row, a tuple of indices for outputs of more dimensions; None is the only output, or else
    the class predicted for x.
    """
    index = _index(model, x, target)

    def outputs(versions: Tensor, rows: slice) -> Tensor:
        count, n = versions.shape[:2]
        with torch.no_grad():
            out = model(versions.flatten(0, 1))
        each = torch.arange(count * n, device=out.device)
        places = (each, *(part[rows].to(out.device).repeat_interleave(n) for part in index))
        return out[places].view(count, n)

    return outputs


def _index(model: Callable[[Tensor], Any], x: Tensor, target: Any) -> tuple[Tensor, ...]:
    with torch.no_grad():
        out = model(x)
    if not isinstance(out, Tensor) or not out.ndim or len(out) != len(x):
        what = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"type {type(out).__name__}"
        raise ValueError(f"The output of {what} is not a tensor with one entry per row, for x of shape {tuple(x.shape)}.")
    _, index = choose_target(out, target, slice(0, len(x)), len(x), "metric")
    return tuple(index.unbind(1)) if out.ndim > 1 else ()


def blocks_of_rows(x: Tensor, n: int) -> list[slice]:
    """Slices of rows of which n versions each go through the model at once; they depend on the shape of x alone."""
    step = max(1, AT_ONCE // max(1, n * x[0].numel()))
    return [slice(start, min(start + step, len(x))) for start in range(0, len(x), step)]
