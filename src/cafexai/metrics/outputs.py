"""One number per row of a model's output, the same one for all versions of the row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

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
    sizes = out.shape[1:]
    if target is None:
        if len(sizes) > 1 and sizes.numel() > 1:
            raise ValueError(
                f"target=None: the output of shape {tuple(out.shape)} has no single predicted class; give a tuple."
            )
        target = (0,) * len(sizes) if sizes.numel() == 1 else out.argmax(1)
    index = target if isinstance(target, tuple) else (target,) if sizes else ()
    try:
        if any(torch.as_tensor(part).is_floating_point() for part in index):
            raise TypeError("indices are integers")
        parts = tuple(torch.as_tensor(part).long().expand(len(x)) for part in index)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"target={target!r}: give an index, one per row ({len(x)}), or a tuple of these.") from error
    if len(parts) != len(sizes) or any(int(p.min()) < 0 or int(p.max()) >= n for p, n in zip(parts, sizes, strict=False)):
        raise ValueError(f"target={target!r} does not fit an output of shape {tuple(out.shape)}.")
    return parts


def blocks_of_rows(x: Tensor, n: int) -> list[slice]:
    """Slices of rows of which n versions each go through the model at once; they depend on the shape of x alone."""
    step = max(1, AT_ONCE // max(1, n * x[0].numel()))
    return [slice(start, min(start + step, len(x))) for start in range(0, len(x), step)]
