"""Which way to explain a model: as published where that holds, by unit for deep models."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .._core.depth import DepthScores
from .._core.provenance import final_of
from .._core.run import Settings
from .._core.tensors import Scored, Softmaxed
from .._core.value import Scores
from ..rules.layers import NotKnown, layers_of
from .forward import survey
from .job import Job

SHALLOW = 2  # nonlinear operations in a row up to which the method is used as published


@dataclass(frozen=True)
class Way:
    """The choices that make up a way of explaining; what is not named is as published."""

    netting: str = "path"
    flows: str = "peak"
    biases: str = "scores"
    norms: str = "frozen"
    reason: str = "as asked"


DEEP = Way("unit", "mean", "reference", "open")


def chosen(job: Job) -> Way | None:
    """The way for a model, from the longest chain of nonlinear operations that the first row passes, and from nothing else.

    None if the model cannot be followed, which explaining it will say.
    """
    found = _depth(job)
    if found is None:
        return None
    depth, routed = found
    if depth <= SHALLOW and not routed:
        return Way(reason=f"{depth} nonlinear operations in a row")
    what = f"{depth} nonlinear operations in a row"
    return dataclasses.replace(DEEP, reason=what + " and attention or normalisation" * routed)


def _depth(job: Job) -> tuple[int, bool] | None:
    """How many nonlinear operations follow each other, and whether attention or a normalisation is among them.

    A sigmoid or softmax at the end, of which the logits are explained, does not count.
    """
    try:
        return sum(len(layer) == 2 for layer in layers_of(job.subject.model, job.subject.names)), False
    except NotKnown:
        pass
    counting = Job(
        job.subject,
        job.given,
        job.stack,
        Settings(DepthScores, biases_in_reference=True),
        extra=job.extra,
        output=lambda raw: raw,
    )
    trace, output = None, None
    given = counting.extra.values() if isinstance(counting.extra, dict) else counting.extra
    together = any(isinstance(part, Tensor) for part in given)  # further arguments may belong to the rows
    for rows in (None,) if together else (slice(0, 1), None):  # not every model takes a single row
        with contextlib.suppress(Exception):
            trace, output = survey(counting, rows)
            break
    if trace is None or trace.problems:
        return None
    found = list(outputs(output))
    depth = max((getattr(value, "depth", 0) for value, _ in found), default=0)
    ends = sum(final == "softmax" for _, final in found)
    routed = sum(count for key, count in trace.run.frozen.items() if key.kind == "routing")
    softmaxes = sum(count for key, count in trace.run.frozen.items() if key.kind == "softmax")
    trace.run.release()
    return depth, bool(routed) or softmaxes > ends


def outputs(output: Any) -> Iterator[tuple[Any, str | None]]:
    """The scored values in what a model gives, behind a final softmax or sigmoid the logits, and which of these it was."""
    if isinstance(output, Softmaxed):
        yield output.logits, "softmax"
    elif isinstance(output, (Scored, Scores)):
        value = output.state if isinstance(output, Scored) else output
        yield final_of(value)
    elif not isinstance(output, Tensor):
        parts = output.values() if isinstance(output, dict) else output if isinstance(output, (list, tuple)) else ()
        for part in parts:
            yield from outputs(part)
