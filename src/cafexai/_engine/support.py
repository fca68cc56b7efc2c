"""What a model calls, and whether all of it can be explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .._carriers.path import PathScores
from .._core.provenance import final_of
from .._core.row_index import MIXED
from .._core.run import Settings
from .._core.tensors import Scored, Softmaxed
from .._core.tolerance import all_finite
from .._core.value import Scores
from .._inputs.prepare import prepare
from ..errors import Problem, UnsupportedOperation
from .batches import same_alone
from .diagnose import refuse_explained
from .forward import plain_output, survey
from .job import Job, as_arguments
from .model import Subject, with_gradients
from .request import Request


@dataclass(frozen=True)
class Support:
    """True if the model can be explained. ``operations`` counts calls by rule, ``problems`` lists those without one."""

    operations: Mapping[str, int]
    problems: tuple[Problem, ...]

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        known = ", ".join(f"{name} ({count}x)" for name, count in sorted(self.operations.items()))
        if not self.problems:
            return f"supported: {known}"
        lines = [f"not supported, {len(self.problems)} operation(s):", *(f"  - {problem}" for problem in self.problems)]
        return "\n".join([*lines, f"known: {known}"])


@with_gradients
def supported(model: Any, inputs: Any, additional_forward_args: Any = None) -> Support:
    """Run the model once and report which of its operations have a rule, without explaining.

    Args:
        model: A module, or a function of tensors.
        inputs: See ``CAFE.explain``.
        additional_forward_args: Further arguments of forward: a tuple, or a dictionary of keywords.

    Returns:
        True in a condition if the model can be explained; printed, it lists the operations.

    Raises:
        ValueError: The inputs are not what the model takes.

    Example:
        >>> import cafexai
        >>> bool(cafexai.supported(torch.nn.Linear(2, 1), torch.ones(1, 2)))
        True
    """
    subject = Subject(model)
    subject.ready("supported")
    given = prepare(inputs, subject.model, call="supported")
    references = [(None,) * len(given.tensors)]
    extra = as_arguments(additional_forward_args)
    job = Job(subject, given, references, Settings(PathScores), Request(output=lambda raw: raw), extra=extra)
    try:
        trace, output = survey(job)
    except Exception as error:
        try:
            refuse_explained(error, "supported", lambda: plain_output(job, job.batch()))
        except UnsupportedOperation as refused:
            return Support({}, (_of_the_model(str(refused)),))
        raise
    problems = tuple(trace.problems)
    return Support(dict(trace.run.operations), problems or tuple(_of_the_model(why) for why in _of_outputs(output, job)))


def _of_the_model(why: str) -> Problem:
    return Problem("forward", "", "...", why, "")


def _of_outputs(output: Any, job: Job) -> Iterator[str]:
    """What stands in the way of every output of a model, if something does for all of them."""
    found = list(_find_scored(output))
    if not found:
        yield (
            "no output depends on the input in a way that can be followed: it is a constant, was computed from values that are "
            "taken as constants, or forward leaves torch. Explain what comes before, target_layer=..., or a function of it"
        )
    elif all(value.rows is MIXED for value in found) and not same_alone(job):
        yield "rows depend on each other: explain(..., batch_size=1) explains every row by itself, as the model sees it alone"
    elif not any(all_finite(value.value) for value in found):
        yield "values are not finite at the output; cafexai.debug.check_operations(cafe, inputs) finds the operation"


def _find_scored(output: Any) -> Iterator[Any]:
    """The scored values in what a model gives; behind a final softmax or sigmoid the logits."""
    if isinstance(output, Softmaxed):
        yield output.logits
    elif isinstance(output, (Scored, Scores)):
        value = output.state if isinstance(output, Scored) else output
        yield final_of(value)[0]
    elif not isinstance(output, Tensor):
        parts = output.values() if isinstance(output, dict) else output if isinstance(output, (list, tuple)) else ()
        for part in parts:
            yield from _find_scored(part)
