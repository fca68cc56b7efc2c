"""Whether rows can be cut into chunks: which further arguments of forward are cut along, and whether chunks give the same.

Once per call, one plain pass over the first two chunks together is held against a pass over each of them. A tensor whose
length is the number of rows may have one entry per row or have that length by chance. Unless the user says which
(``per_row=``), it is cut if that leaves the outputs as they are, else kept whole if that does; where both or neither do, the
user is asked.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor

from .._core.tolerance import gap, tolerance
from .attempt import join_parts, try_plain
from .job import Job

COMPANY = (
    "The model gives other outputs for the same rows in another batch (by {gap:.2g} of the largest, rows {first} to {last}): "
    "output, scores and output_error are about batch_size={size} rows at a time, not about model(x)."
)
Known = dict[int, Tensor]  # first row of a chunk -> the output of the model for it


def has_row_arguments(job: Job) -> bool:
    """A tensor among the further arguments has one entry per row, or that length by chance, and the user has not said which."""
    return job.per_row is None and bool(_ambiguous(job))


def check_per_row(job: Job) -> None:
    """Refuse ``per_row=`` that names no argument with one entry per row."""
    parts = job.arguments()
    for key in job.per_row or ():
        part = parts.get(key)
        if not isinstance(part, Tensor) or not part.ndim or part.shape[0] != job.given.rows:
            what = f"has the shape {tuple(part.shape)}" if isinstance(part, Tensor) else "is not there, or no tensor"
            raise ValueError(
                f"CAFE(..., per_row={list(job.per_row or ())!r}): the further argument {key!r} {what}; there are "
                f"{job.given.rows} rows. Name tensors of additional_forward_args with one entry per row, by place or keyword."
            )


def settle(job: Job, chunks: list[slice]) -> tuple[Job, Known]:
    """The job with what is cut decided, and a note if rows give something else in chunks; outputs that are known by then."""
    if len(chunks) < 2:
        return job, {}
    open_ = _ambiguous(job) if job.per_row is None else ()
    cut, known = _difference(job, chunks)
    if open_:
        decided = _decide(job, chunks, open_, cut, known)
        object.__setattr__(job, "per_row", decided)  # for all that follows this call
        if decided:
            return job, known
        cut, known = _difference(job, chunks)
    if cut is not None and not cut <= _limit(known):
        told = COMPANY.format(gap=cut, first=chunks[0].start, last=chunks[1].stop - 1, size=chunks[0].stop - chunks[0].start)
        return dataclasses.replace(job, notes=(*job.notes, told)), known
    return job, known


def _decide(job: Job, chunks: list[slice], open_: tuple[Any, ...], cut: float | None, known: Known) -> tuple[Any, ...]:
    """Which arguments are cut: all that may be, or none."""
    can_cut = cut is not None and cut <= _limit(known)
    whole = dataclasses.replace(job, per_row=())
    first = _output(whole, chunks[0]) if can_cut else None
    if can_cut and (first is None or gap(first, known[chunks[0].start]) <= _limit(known)):
        return open_  # whole, it does not fit the rows, or makes no difference
    apart, others = _difference(whole, chunks)
    can_stay = apart is not None and apart <= _limit(others)
    if can_cut != can_stay:
        return open_ if can_cut else ()
    names = ", ".join(map(repr, open_))
    raise ValueError(
        f"explain(..., batch_size={job.request.batch_size}): the further arguments {names} are as long as there are rows; "
        f"the outputs do not tell whether an entry belongs to a row: {'both' if can_cut else 'neither'} would fit. "
        f"Say so: CAFE(model, per_row=[{names}]) cuts them along with the rows, per_row=[] leaves them whole."
    )


def _ambiguous(job: Job) -> tuple[Any, ...]:
    """Further arguments that are as long as there are rows."""
    rows = job.given.rows
    return tuple(
        key for key, part in job.arguments().items() if isinstance(part, Tensor) and part.ndim and part.shape[0] == rows
    )


def _difference(job: Job, chunks: list[slice]) -> tuple[float | None, Known]:
    """How far the first two chunks together are from each alone, None if the model fails; the outputs of each."""
    parts = [_output(job, chunk) for chunk in chunks[:2]]
    together = _output(job, slice(chunks[0].start, chunks[1].stop))
    joined = join_parts(parts, together)
    if joined is None or together is None:
        return None, {}
    known = {chunk.start: part for chunk, part in zip(chunks, parts, strict=False) if part is not None}
    return gap(joined, together), known


def _output(job: Job, rows: slice) -> Tensor | None:
    """The plain output of some rows; None if it fails, or has not one entry for each."""
    found = try_plain(job, job.batch(rows))
    return found if isinstance(found, Tensor) and found.ndim and len(found) == rows.stop - rows.start else None


def _limit(known: Known) -> float:
    return tolerance(next(iter(known.values())).dtype) if known else 0.0
