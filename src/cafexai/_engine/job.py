"""One call of the user: what is explained, against what, from where to where, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .._core.feature_index import Features
from .._core.run import Sensitivity, Settings
from .._inputs.baselines import Reference
from .._inputs.prepare import Inputs
from .model import Subject
from .state_guard import States


@dataclass(frozen=True)
class Batch:
    """Some rows of the inputs with their references and further arguments of forward."""

    tensors: tuple[Tensor, ...]
    references: tuple[Reference, ...]
    extra: tuple[Any, ...]
    options: dict[str, Any]  # keyword arguments of forward
    rows: slice


@dataclass(frozen=True)
class Job:
    """Everything that is fixed before the model runs."""

    subject: Subject
    given: Inputs
    stack: Sequence[tuple[Reference, ...]]  # the references: one for each input, or several of these to average over
    settings: Settings
    target: Any = None
    against: Any = None  # another output: the difference of the two is explained
    class_names: tuple[str, ...] = ()
    probability: str | None = None  # what makes probabilities of the outputs: "softmax" or "sigmoid"
    extra: Any = ()  # further arguments of forward: a tuple, or a dictionary of keywords
    output: Any = None
    layer: str | None = None
    start: bool = True
    target_layer: str | None = None
    check: str = "output"
    notes: tuple[str, ...] = ()  # what the model itself has to say of its output
    latent_baselines: Any = None  # baselines in the shape of the layer to start from
    features: Callable[[list[torch.Size]], Features] | None = (
        None  # which elements of such inputs belong together, if it matters
    )
    sensitivities: tuple[Sensitivity | None, ...] = (None,)  # one for each c; None is that of the settings
    batch_size: int | None = None
    per_row: tuple[Any, ...] | None = None  # further arguments that are cut along with the rows; None: not known (per_row.py)
    show_progress: bool | None = None
    only_net: bool = False  # the combined scores are asked for, and nothing else

    every_class: bool = field(init=False)  # all classes are explained
    latent: bool = field(init=False)  # the explanation starts at a hidden layer
    random_starts: States = field(default_factory=dict, init=False)  # all runs of the model draw the same random numbers

    def __post_init__(self) -> None:
        object.__setattr__(self, "every_class", isinstance(self.target, str) and self.target == "all")
        object.__setattr__(self, "latent", self.layer is not None and self.start)

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
