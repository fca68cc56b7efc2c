"""The local units of a model: a linear or convolutional layer directly followed by an activation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .._carriers.path import PathScores
from .._core.run import Run, Settings
from .._engine.diagnose import Watch
from .._engine.model import Subject
from .._engine.module_paths import module_paths
from .._inputs.baselines import references
from .._inputs.prepare import prepare
from ..rules.registry import find
from ..rules.unit_layers import units_of


@dataclass(frozen=True)
class LocalLayer:
    """All units of one layer, as linear layers: every unit sees every row of ``inputs``."""

    name: str
    inputs: Tensor  # (rows, features): for convolutions, one row per place
    weight: Tensor  # (units, features)
    bias: Tensor  # (units,)
    activation: str
    reference: Tensor | None = None  # like inputs, of the model without its biases


class Recorder(TorchFunctionMode):
    """Remembers linear results that an elementwise function takes as they are."""

    def __init__(self, run: Run, biases: bool = True) -> None:
        super().__init__()
        self.run = run
        self.biases = biases
        self.results: dict[int, tuple[Tensor, str, Any, Any]] = {}
        self.layers: list[LocalLayer] = []

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        rule = find(func)
        kinds = frozenset() if rule is None else rule.kinds
        taken = self.results.pop(id(args[0]), None) if args else None
        if taken is not None and taken[0] is args[0] and rule is not None and "activation" in kinds:
            _, path, *call = taken
            self.layers.append(LocalLayer(path or "(model)", *units_of(*call), rule.name))
        result = func(*args, **kwargs)
        if not self.biases and "biased" in kinds:
            result = result - func(torch.zeros_like(args[0]), *args[1:], **kwargs)  # a linear map has its bias at 0
        if "units" in kinds and isinstance(result, Tensor):
            self.results[id(result)] = (result, self.run.path, args, kwargs)
        return result


def local_layers(model: Any, x: Any, baselines: Any = None, call: str = "audit") -> list[LocalLayer]:
    """The layers of local units that a forward pass meets, in float64, with their inputs at the baselines if given."""
    subject = Subject(model)
    subject.ready(call)
    given = prepare(x, subject.model, call=call)
    found = _record(call, subject, given.tensors, True)
    if baselines is None:
        return found
    (reference,), *more = references(baselines, given, None, subject.model, call)
    if more or reference is None:
        raise ValueError(f"{call}(..., baselines=...): give one baseline, in the shape of a single input.")
    at_reference = _record(call, subject, (reference,), False)
    return [dataclasses.replace(layer, reference=other.inputs) for layer, other in zip(found, at_reference, strict=True)]


def _record(call: str, subject: Subject, tensors: tuple[Tensor, ...], biases: bool) -> list[LocalLayer]:
    run = Run(len(tensors[0]), Settings(PathScores))
    recorder = Recorder(run, biases)
    with torch.no_grad(), subject.guard_state(), recorder, Watch(call), module_paths(run, subject.names):
        subject.model(*(tensor.clone() for tensor in tensors))
    return recorder.layers
