"""What a model calls, and whether all of it can be explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._inputs.given import prepare
from .._scores.path import PathScores
from .._scores.run import Settings
from ..errors import Problem
from .forward import survey
from .job import Job, as_arguments
from .subject import Subject, with_gradients


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
    """Run the model once and report every operation that has a rule and every one that has none, without explaining."""
    subject = Subject(model)
    subject.ready("supported")
    given = prepare(inputs, subject.model, call="supported")
    references = [(None,) * len(given.tensors)]
    extra = as_arguments(additional_forward_args)
    job = Job(subject, given, references, Settings(PathScores), extra=extra, output=lambda raw: raw)
    trace, _ = survey(job)
    return Support(dict(trace.run.operations), tuple(trace.problems))
