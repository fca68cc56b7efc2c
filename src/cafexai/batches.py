"""All rows against all references: chunk by chunk, forward and back."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from .backward import SumBroken
from .calls import engine_settings, usual_settings
from .chunks import plain_outputs, rows_at_a_time
from .forward import forward, plain_output
from .inputs import Inputs, Reference
from .law import warn
from .progress import progress
from .request import Batch, Passed, Request
from .subject import Subject
from .weighted import Deltas

R = TypeVar("R")


@dataclasses.dataclass(frozen=True)
class Task:
    """What is to be explained, against what, and in what portions."""

    subject: Subject
    given: Inputs
    stack: list[tuple[Reference, ...]]
    extra: Any
    request: Request
    batch_size: int | None = None
    show_progress: bool | None = None
    sensitivities: tuple[Callable[[str], float] | None, ...] = (None,)  # one for each c; None is that of the explainer

    def batch(self, rows: slice, reference: int = 0) -> Batch:
        """Some rows; further arguments of forward that have one entry per row go with them."""
        count = self.given.rows

        def cut(part: Any) -> Any:
            whole = rows == slice(0, count) or not isinstance(part, Tensor) or not part.ndim or part.shape[0] != count
            return part if whole else part[rows]

        return Batch(
            tuple(cut(x) for x in self.given.tensors),
            tuple(cut(r) for r in self.stack[reference]),
            () if isinstance(self.extra, dict) else tuple(cut(part) for part in self.extra),
            {name: cut(part) for name, part in self.extra.items()} if isinstance(self.extra, dict) else {},
            rows,
        )


@functools.cache
def _settle_heap() -> None:
    """Once: take a large block and give it back untouched, after which glibc keeps what is freed for the next call.

    From the first large block that is freed it learns which sizes come and go. Before, it hands the memory of a call back to
    the system at its end, and every page has to be made anew for the next: a third of the time of a thousand rows.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8, device="cpu")  # 32 MiB and more would teach it nothing


def carry_out(task: Task, finish: Callable[[Passed], R]) -> list[list[list[R]]]:
    """Every chunk of rows against every reference for every c; chunks are those asked for, or of a fitting size."""
    _settle_heap()
    rows, step = task.given.rows, task.batch_size
    if step is None:
        step = rows_at_a_time(task.subject, lambda: task.batch(slice(0, 1)), task.given.tensors, task.request)
    chunks = _chunks(rows, step)

    def explained(chunk: slice, expected: Tensor | None) -> list[list[R]]:
        return [_finished(task, finish, task.batch(chunk, reference), expected) for reference in range(len(task.stack))]

    def plain(chunk: slice) -> Tensor:
        return plain_output(task.subject, task.batch(chunk), task.request)

    if task.batch_size is None and len(chunks) > 1:
        try:
            pairs = zip(progress(chunks, "explaining", "batch", task.show_progress), plain_outputs(plain, chunks), strict=True)
            return [explained(chunk, expected) for chunk, expected in pairs]
        except Exception:  # rows depend on each other, or something is wrong that the whole will show as well
            chunks = _chunks(rows, rows)
    return [explained(chunk, None) for chunk in progress(chunks, "explaining", "batch", task.show_progress)]


def _finished(task: Task, finish: Callable[[Passed], R], batch: Batch, expected: Tensor | None) -> list[R]:
    """Forward and backward for every c, which have the plain pass and the values inside the model in common."""
    results = []
    deltas = Deltas() if len(task.sensitivities) > 1 else None
    for sensitivity in task.sensitivities:
        request = task.request if sensitivity is None else dataclasses.replace(task.request, sensitivity=sensitivity)
        passed = forward(task.subject, batch, request, expected, deltas)
        expected = passed.expected
        try:
            results.append(_settled(finish, passed))
        except SumBroken:
            if all(x.dtype == torch.float64 or x.device.type == "mps" for x in batch.tensors):
                raise
            passed.run.release()
            passed = forward(task.subject, batch, dataclasses.replace(request, double=True), expected)
            results.append(_settled(finish, passed))
            warn(
                "The influence inside the model is larger than float32 can hold, so these rows were explained in float64. The "
                "published scores grow with depth."
            )
        finally:
            passed.run.release()
    return results


def _settled(finish: Callable[[Passed], R], passed: Passed) -> R:
    """The way back in full precision, also where the model runs under autocast."""
    if usual_settings():
        return finish(passed)
    with engine_settings():
        return finish(passed)


def _chunks(rows: int, step: int) -> list[slice]:
    if step < 1:
        raise ValueError(f"explain(..., batch_size={step}): give a positive number of rows.")
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
