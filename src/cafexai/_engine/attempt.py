"""Plain passes of the model where it may fail: on fewer rows, in another precision, at other inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .._inputs.target import is_others, split_index
from .faults import refuse_own_fault
from .forward import plain_output
from .job import Batch, Job


def try_plain(job: Job, batch: Batch) -> Tensor | None:
    """The output of the model as it is; None if the model itself fails there."""
    try:
        return plain_output(job, batch)
    except Exception as error:
        refuse_own_fault(error, "explain")
        return None


def join_parts(parts: Sequence[Tensor | None], together: Tensor | None) -> Tensor | None:
    """Outputs of parts of the rows, one below the other; None if one is missing, or they do not fit that of all rows."""
    whole = [part for part in parts if isinstance(part, Tensor) and part.ndim]
    if not isinstance(together, Tensor) or len(whole) < len(parts):
        return None
    if any(part.shape[1:] != together.shape[1:] or part.dtype is not together.dtype for part in whole):
        return None
    joined = torch.cat(whole)
    return joined if joined.shape == together.shape else None


def has_outputs(output: object, target: Tensor, against: Tensor | None) -> bool:
    """Whether what the model gives has the explained outputs; indices (rows, dimensions)."""
    if not isinstance(output, Tensor) or not output.ndim or len(output) != len(target):
        return False
    if is_others(against):
        return output.ndim > 1 and output.shape[-1] > 1 and _within(output, target)
    several = [] if against is None else split_index(against, target.shape[1])
    return all(_within(output, index) for index in (target, *several))


def _within(output: Tensor, index: Tensor) -> bool:
    sizes = output.shape[1:] or (1,) * index.shape[1]  # of one number a row, 0 is the only index
    return len(sizes) == index.shape[1] and all(bool((i < n).all()) for i, n in zip(index.unbind(1), sizes, strict=True))
