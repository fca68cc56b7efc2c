"""One call of the user, prepared: inputs, references, settings, and what was asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from .._core.feature_index import Features
from .._core.run import Sensitivity, Settings
from .._inputs.baselines import Reference
from .._inputs.groups import Grouping
from .._inputs.prepare import Inputs
from .model import Subject
from .request import Question, Request
from .state_guard import States


@dataclass(frozen=True)
class Batch:
    """Some rows of the inputs with their references and further arguments of forward."""

    tensors: tuple[Tensor, ...]
    references: tuple[Reference, ...]
    extra: tuple[Any, ...]
    options: dict[str, Any]  # keyword arguments of forward
    rows: slice
    zeroed: tuple[Tensor | None, ...] = ()  # for each input the codes whose embedding is zero
    guards: list[Any] = field(default_factory=list, compare=False)  # the guard of all passes over these rows, once made


@dataclass(frozen=True)
class Job:
    """Everything that is fixed before the model runs."""

    subject: Subject
    given: Inputs
    stack: Sequence[tuple[Reference, ...]]  # the references: one for each input, or several of these to average over
    settings: Settings
    request: Request = field(default_factory=Request)
    question: Question = field(default_factory=Question)
    extra: Any = ()  # further arguments of forward: a tuple, or a dictionary of keywords
    class_names: tuple[str, ...] = ()
    probability: str | None = None  # what makes probabilities of the outputs: "softmax" or "sigmoid"
    notes: tuple[str, ...] = ()  # what the model itself says of its output
    latent_baselines: Any = None  # baselines in the shape of the layer to start from
    features: Callable[[list[torch.Size]], Features] | None = None  # which elements are one feature, if it matters
    sensitivities: tuple[Sensitivity | None, ...] = (None,)  # one for each c; None is that of the settings
    per_row: tuple[Any, ...] | None = None  # further arguments that are cut along with the rows; None: not known (per_row.py)
    only_net: bool = False  # only the net scores are needed
    typical: bool = False  # the baselines are rows of the background
    tokenizer: Any = None  # of a language model

    random_starts: States = field(default_factory=dict, init=False)  # all runs of the model draw the same random numbers

    def without_model(self) -> Job:
        """What was asked, for an explanation to keep."""
        return dataclasses.replace(self, subject=cast(Subject, None))

    def take(self, rows: slice | Tensor) -> Job:
        """The same for some rows."""
        count = self.given.rows

        def cut(part: Any) -> Any:
            return part[rows] if isinstance(part, Tensor) and part.ndim and part.shape[0] == count else part

        words = self.given.words
        if words is not None:
            chosen = torch.arange(count)[rows].tolist()
            words = dataclasses.replace(words, index=words.index[rows], names=tuple(words.names[row] for row in chosen))
        given = dataclasses.replace(self.given, tensors=tuple(map(cut, self.given.tensors)), words=words)
        stack = [tuple(map(cut, references)) for references in self.stack]
        request, groups = self.request, self.request.feature_groups
        if isinstance(groups, Grouping) and groups.index.ndim == 2:
            request = request.replace(feature_groups=dataclasses.replace(groups, index=groups.index[rows]))
        extra = self.extra
        extra = {n: cut(part) for n, part in extra.items()} if isinstance(extra, dict) else tuple(map(cut, extra))
        return dataclasses.replace(self, given=given, stack=stack, request=request, extra=extra)

    def batch(self, rows: slice | None = None, reference: int = 0) -> Batch:
        """Some rows, or all; further arguments of forward that have one entry per row go with them."""
        count = self.given.rows
        rows = slice(0, count) if rows is None else rows
        tensors, references, extra = self.given.tensors, self.stack[reference], self.extra
        if rows != slice(0, count):

            def cut(part: Any) -> Any:
                return part[rows] if isinstance(part, Tensor) and part.ndim and part.shape[0] == count else part

            tensors, references = tuple(map(cut, tensors)), tuple(map(cut, references))
            own = self.per_row
            parts = {key: cut(part) if own is None or key in own else part for key, part in self.arguments().items()}
            extra = parts if isinstance(extra, dict) else tuple(parts.values())
        if isinstance(extra, dict):
            return Batch(tensors, references, (), extra, rows)
        return Batch(tensors, references, extra, {}, rows)

    def arguments(self) -> dict[Any, Any]:
        """Further arguments of forward by keyword or by place."""
        return self.extra if isinstance(self.extra, dict) else dict(enumerate(self.extra))


def as_arguments(extra: Any) -> Any:
    """Further arguments of forward as a tuple, or as a dictionary of keywords."""
    return () if extra is None else extra if isinstance(extra, (tuple, dict)) else (extra,)
