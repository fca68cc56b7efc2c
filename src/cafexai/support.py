"""What a model calls, and whether all of it can be explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .batches import Task
from .explain import CAFE, with_gradients
from .forward import survey
from .registry import Problem
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
    """Run the model once and report every operation that has a rule and every one that has none, without explaining."""
    cafe = CAFE(model)
    given, extra = cafe._accept(inputs, additional_forward_args)
    task = Task(cafe.subject, given, [(None,) * len(given.tensors)], extra, Request())
    trace = survey(cafe.subject, task.batch(slice(0, given.rows)))
    return Support(dict(trace.run.operations), tuple(trace.problems))
