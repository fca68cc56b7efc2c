"""All rows against all references for every c: chunk by chunk, forward and back.

Rows are split so that what is worked on at a time fits the cache, where the model treats each row by itself. That is tested on
all of them: every chunk is explained with its outputs held against a plain pass over *other* chunks, shifted by half, so that
each row has been computed in two different companies and places, and the first two chunks are computed together as well. A
model that mixes rows, counts them (up to twice the rows of a chunk) or draws random numbers for them differs, and is then
explained in one piece, as are calls with further arguments that might belong to the rows. With ``batch_size=``: ``per_row.py``.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .._core.activation import LARGE
from .._core.backward import Passed
from .._core.foreign import pass_on
from .._core.run import Settings
from .._core.steps import Deltas
from .._core.tolerance import gap, tolerance
from .._extras import progress
from ..errors import LostInRounding, OutputDiffers, RowsMixed, SumBroken
from .attempt import join_parts, try_plain
from .forward import forward, plain_output
from .job import Batch, Job
from .pauses import pause
from .per_row import check_per_row, settle
from .rounding import refuse_own_rounding, refuse_rounding_inside
from .tracer import engine_settings, usual_settings

R = TypeVar("R")
CARRIED = 2**24  # numbers that all contributions to a value have at most
TABLE = 2**19  # elements of the largest value of rows of a table: a handful of such values stays in the cache of a processor
WORTH = 2**14  # elements of input below which the size of the values inside does not matter
SMALLEST = 2  # rows of a chunk at least: each is seen in a batch with others
IN_DOUBLE = "Recomputed in float64: in float32 the scores did not sum to the output within tolerance."
OTHERWISE = 0.05  # of what counts as rounding: by more, a row is not the same alone
ALONE = "Every row is explained by itself: the model gives the same for it alone."
Results = dict[tuple[int, int], list[R]]  # (place of c, place of the class) -> one result per chunk of rows


@functools.cache
def _settle_heap() -> None:
    """Once: take a large block and give it back untouched, after which glibc keeps what is freed for the next call.

    From the first large block that is freed it learns which sizes come and go. Before, it hands the memory of a call back to
    the system at its end, and every page has to be made anew for the next: a third of the time of a thousand rows.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8, device="cpu")  # 32 MiB and more would teach it nothing


Measure = Callable[[Any, Batch], None] | None  # adds to a result what plain passes over its rows say


def carry_out(
    job: Job, finish: Callable[[Passed], Sequence[R]], mean: Callable[[list[R]], R], measure: Measure = None
) -> Results[R]:
    """What ``finish`` makes of each pass, one result per class, and the ``mean`` of these over the references.

    Rows are cut into the chunks asked for, or into chunks of a fitting size; if rows turn out to depend on each other, they
    are explained all at once. ``measure`` is called with each result and its rows.
    """
    _settle_heap()
    rows, step = job.given.rows, job.request.batch_size
    if step is None:
        step = _rows_at_a_time(job)
    chunks = _chunks(rows, step)
    if job.request.batch_size is None and len(chunks) > 1:
        plain = _plain_outputs(lambda chunk: plain_output(job, job.batch(chunk)), chunks)
        try:
            plain = _compare_chunks(plain, job, chunks)
            return _collect(job, finish, mean, measure, chunks, plain)
        except OutputDiffers:
            chunks = _chunks(rows, rows)
    check_per_row(job)
    job, known = settle(job, chunks) if job.request.batch_size is not None else (job, {})
    try:
        return _collect(job, finish, mean, measure, chunks, None, known)
    except RowsMixed as error:
        if job.request.batch_size is not None or not same_alone(job):
            raise
        noted = dataclasses.replace(job, notes=(*job.notes, f"{ALONE} In one batch: {str(error).partition(': ')[2]}"))
        return _collect(noted, finish, mean, measure, _chunks(rows, 1), None)


def same_alone(job: Job) -> bool:
    """Whether every row gives the same by itself as in a batch with the others."""
    together = try_plain(job, job.batch())
    alone = join_parts([try_plain(job, job.batch(row)) for row in _chunks(job.given.rows, 1)], together)
    return alone is not None and together is not None and gap(alone, together) <= OTHERWISE * tolerance(together.dtype)


def _collect(
    job: Job,
    finish: Callable[[Passed], Sequence[R]],
    mean: Callable[[list[R]], R],
    measure: Measure,
    chunks: list[slice],
    plain: Any,
    known: Mapping[int, Tensor] | None = None,
) -> Results[R]:
    results: Results[R] = {}
    several = len(chunks) > 1 or job.request.show_progress
    for chunk in progress(chunks, "explaining", "batch", job.request.show_progress) if several else chunks:
        expected = next(plain) if plain is not None else (known or {}).get(chunk.start)
        found: Results[R] = {}
        for reference in range(len(job.stack)):
            batch = job.batch(chunk, reference)
            try:
                finished, expected = _finish_batch(job, finish, batch, expected)  # this does not depend on the baseline
            except OutputDiffers as error:
                if plain is None:  # else it may differ from that of the same rows in another batch
                    refuse_own_rounding(job, batch, error)
                raise
            for place, classes in enumerate(finished):
                for number, result in enumerate(classes):
                    if measure is not None:
                        measure(result, batch)
                    found.setdefault((place, number), []).append(result)
            pause()
        for key, against in found.items():
            results.setdefault(key, []).append(mean(against))
    return results


def _finish_batch(
    job: Job, finish: Callable[[Passed], Sequence[R]], batch: Batch, expected: Tensor | None
) -> tuple[list[Sequence[R]], Tensor | None]:
    """Forward and backward for every c, which have the plain pass, returned too, and the values inside the model in common."""
    results = []
    deltas = Deltas() if len(job.sensitivities) > 1 else None
    for sensitivity in job.sensitivities:
        settings = job.settings if sensitivity is None else dataclasses.replace(job.settings, sensitivity=sensitivity)
        passed = _pass_forward(job, batch, settings, expected, deltas)
        expected = passed.expected
        try:
            found = _pass_backward(finish, passed)
            if found is None:
                del passed  # its values need not be in memory beside those in float64
                found = _pass_backward(finish, _in_double(job, batch, settings, expected))
        except SumBroken as error:
            refuse_rounding_inside(job, batch, settings, error)
            raise
        assert found is not None
        results.append(found)
    return results, expected


def _pass_forward(job: Job, batch: Batch, settings: Settings, expected: Tensor | None, deltas: Deltas | None) -> Passed:
    """A forward pass; in float64 where it differs from the model's own: by rounding, perhaps, beside a far larger reference."""
    try:
        return forward(job, batch, settings, expected, deltas)
    except OutputDiffers as error:
        short = error.found is not None and error.found.dtype is not torch.float64 and error.found.device.type != "mps"
        if not short or (job.request.batch_size is None and job.given.rows > len(batch.tensors[0])):
            raise  # in one of several chunks that were made unasked, it may be the other rows of the batch
    return _in_double(job, batch, settings, expected)


def _in_double(job: Job, batch: Batch, settings: Settings, expected: Tensor | None) -> Passed:
    """The same in float64, with a note that says so."""
    passed = forward(job, batch, dataclasses.replace(settings, dtype=torch.float64), expected)
    return dataclasses.replace(passed, notes=(*passed.notes, IN_DOUBLE))


def _pass_backward(finish: Callable[[Passed], R], passed: Passed) -> R | None:
    """The backward pass in full precision, also where the model runs under autocast; None if float64 is needed for it."""
    try:
        if usual_settings():
            return finish(passed)
        with engine_settings():
            return finish(passed)
    except LostInRounding:
        if passed.chosen.delta.dtype is torch.float64 or passed.chosen.delta.device.type == "mps":
            raise
        return None
    finally:
        passed.run.release()


def _chunks(rows: int, step: int) -> list[slice]:
    if step < 1:
        raise ValueError(f"explain(..., batch_size={step}): give a positive number of rows.")
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


class _Widest(TorchFunctionMode):
    """Remembers the largest result of any call."""

    size = 1

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = pass_on(func, args, kwargs or {})
        if isinstance(result, Tensor):
            self.size = max(self.size, result.numel())
        return result


def _rows_at_a_time(job: Job) -> int:
    """How many rows to explain at once; all of them if they cannot be split."""
    tensors, rows = job.given.tensors, job.given.rows
    if rows <= SMALLEST or job.question.latent or job.question.check_each:
        return rows
    carried = 1 if job.features is None else job.features([x.shape[1:] for x in tensors]).count + 1
    if carried * sum(x.numel() for x in tensors) < WORTH:
        return rows
    one, plain_arguments = job.batch(slice(0, 1)), (type(None), bool, int, float, str, torch.dtype)
    if not all(isinstance(part, plain_arguments) for part in (*one.extra, *one.options.values())):
        return rows
    widest = _Widest()
    with widest:
        alone = try_plain(job, one)  # None: it takes no single row, or cannot be explained at all, which will be said
    if not isinstance(alone, Tensor) or not alone.ndim or len(alone) != 1:  # constants of the model belong to the rows
        return rows
    table = all(x.ndim == 2 and x.device.type == "cpu" for x in tensors)
    most = CARRIED if carried > 1 else min(LARGE, TABLE) if table else LARGE
    pieces = -(-rows * widest.size * carried // most)
    return rows if pieces < 2 else max(SMALLEST, -(-rows // pieces))


def _plain_outputs(plain: Callable[[slice], Tensor], chunks: list[slice]) -> Iterator[Tensor]:
    """The outputs of each chunk of rows from plain passes over chunks that are shifted by half."""
    edges = [0, *((chunk.start + chunk.stop) // 2 for chunk in chunks), chunks[-1].stop]
    ahead = itertools.pairwise(edges)
    known: list[Tensor] = []
    for chunk in chunks:
        while sum(map(len, known)) < chunk.stop - chunk.start:
            start, stop = next(ahead)
            found = plain(slice(start, stop))
            if not isinstance(found, Tensor) or not found.ndim or len(found) != stop - start:
                raise OutputDiffers("explain(...): the output of some rows does not have one entry for each of them.")
            known.append(found)
        joined = torch.cat(known)
        yield joined[: chunk.stop - chunk.start]
        known = [joined[chunk.stop - chunk.start :]]


def _compare_chunks(plain: Iterator[Tensor], job: Job, chunks: list[slice]) -> Iterator[Tensor]:
    """The outputs of chunks, the first two held against one pass over both: a model may count more rows than a chunk has."""
    together = plain_output(job, job.batch(slice(0, chunks[1].stop)))
    first, second = next(plain), next(plain)
    if gap(torch.cat([first, second]), together) > tolerance(together.dtype):
        raise OutputDiffers("explain(...): the model gives other outputs for the same rows in another batch.")
    return itertools.chain((first, second), plain)
