"""What can go wrong: the errors of this library, and the way it warns."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Problem:
    """One call that cannot be explained."""

    function: str
    module: str
    shapes: str
    reason: str
    where: str

    def __str__(self) -> str:
        place = f"in module {self.module!r}" if self.module else "in the model itself"
        site = f", {self.where}" if self.where else ""
        return f"{self.function}({self.shapes}) {place}{site}: {self.reason}"


class UnsupportedOperation(NotImplementedError):
    """The model calls something that has no rule; nothing is approximated instead.

    Example:
        >>> import torch
        >>> from cafexai import CAFE, UnsupportedOperation
        >>> try:
        ...     CAFE(lambda x: torch.special.bessel_j0(x).sum(1)).explain(torch.ones(1, 2))
        ... except UnsupportedOperation:
        ...     print("write a rule: docs/how-to/operation.md")
        write a rule: docs/how-to/operation.md
    """

    def __init__(self, message: str, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class CompletenessError(RuntimeError):
    """A score does not add up. This is a fault of a rule, never of the model: please report it.

    Example:
        >>> from cafexai import CompletenessError
        >>> CompletenessError.__mro__[1].__name__
        'RuntimeError'
    """


LawBroken = CompletenessError  # the name until 0.1


class SumBroken(CompletenessError):
    """The shares do not add up, by more than rounding: a path was lost."""

    def __init__(self, message: str, lack: Any = None, limit: float = 0.0) -> None:
        super().__init__(message)
        self.lack, self.limit = lack, limit  # what is missing, one number per row; the share of all influence that may be


class LostInRounding(UnsupportedOperation):
    """Influence is so large that its rounding is of the size of the output: explained again in float64, or refused."""


class OutputDiffers(CompletenessError):
    """The explained output is not that of the model: a rule is wrong, or rows, explained in portions, influence each other."""

    def __init__(self, message: str, found: Any = None) -> None:
        super().__init__(message)
        self.found = found  # the explained output


class InternalError(RuntimeError):
    """A fault of this library, not of the model or the call: please report it."""


class ModelChanged(RuntimeError):
    """The model was changed while a session was open (``cafe.session()``)."""


class RowsMixed(ValueError):
    """Values of several rows cannot be told apart: each is explained by itself where it gives the same alone, or refused."""


class ModelProblem(ValueError):
    """The model cannot be used: not there, not readable, weights that do not fit, a file that is not trusted."""


class CafexaiWarning(Warning):
    """Any warning of this library: ``warnings.filterwarnings("ignore", category=CafexaiWarning)`` silences all."""


class ScoreWarning(CafexaiWarning, UserWarning):
    """Scores add up, but their size says little."""


class ResultsWarning(CafexaiWarning, UserWarning):
    """Results of ``batch`` have changed since they were written, and are made again."""


class WorkersWarning(CafexaiWarning, UserWarning):
    """Work is done in fewer processes than asked for."""


class OldFormWarning(CafexaiWarning, DeprecationWarning):
    """A form of an earlier version, which goes in the next one."""


class ChangedDefaultWarning(CafexaiWarning, FutureWarning):
    """A call that means something else than in an earlier version."""


_OURS: dict[type[Warning], type[Warning]] = {DeprecationWarning: OldFormWarning, FutureWarning: ChangedDefaultWarning}


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line outside of this library that made the call."""
    category = _OURS.get(category, category)
    depth, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("cafexai", "contextlib")):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, category, stacklevel=depth)
