"""What a pass is asked for, what it gets, and what it leaves for the way back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .inputs import Reference, choose_target
from .path import PathScores
from .scores import Run, Scores


@dataclass(frozen=True)
class Request:
    """Where an explanation starts and ends, and how closely it is checked."""

    target: Any = None
    output: Any = None
    layer: str | None = None
    start: bool = True
    target_layer: str | None = None
    check: str = "output"
    double: bool = False  # carry the scores in float64, whatever the model computes in
    total: int = 0  # rows in all batches
    notes: tuple[str, ...] = ()  # what the model itself has to say of its output
    latent_baselines: Any = None  # baselines in the shape of the layer to start from
    carrier: type[Scores] = PathScores  # how influence is carried along
    features: Callable[[list[torch.Size]], Any] | None = None  # which elements of such inputs belong together, if it matters
    biases_in_reference: bool = False  # explain the change from the model at the baseline, not biases as well
    sensitivity: Callable[[str], float] | None = None  # c by module path, where it is not that of the model's explainer

    def carried(self, shapes: list[torch.Size]) -> int:
        """How many numbers every element of a value carries."""
        return 1 if self.features is None else self.features(shapes).total + 1

    @property
    def every_class(self) -> bool:
        """All classes are explained."""
        return isinstance(self.target, str) and self.target == "all"

    @property
    def latent(self) -> bool:
        """The explanation starts at a hidden layer."""
        return self.layer is not None and self.start


@dataclass(frozen=True)
class Batch:
    """Some rows of the inputs with their references and further arguments of forward."""

    tensors: tuple[Tensor, ...]
    references: tuple[Reference, ...]
    extra: tuple[Any, ...]
    options: dict[str, Any]  # keyword arguments of forward
    rows: slice


@dataclass(frozen=True)
class Passed:
    """What the forward pass leaves for the backward passes."""

    run: Run  # with the leaves, in which the backward passes end
    inputs: list[Tensor]  # what the scores are shaped like
    references: list[Reference]
    found: Tensor  # the output as the engine has it
    scores: Any  # the same before a final sigmoid or softmax, as a scored value
    chosen: Any  # the explained output as a scored value, one number per row
    target: Tensor
    expected: Tensor  # the output of the model as it is
    notes: tuple[str, ...]

    @property
    def baselines(self) -> list[Tensor]:
        """The references, zeros included; codes without one are held against a zero embedding, which has no code."""
        return [_or_zeros(reference, x) for reference, x in zip(self.references, self.inputs, strict=True)]

    @property
    def output_error(self) -> float:
        """The largest |engine - model(x)|."""
        return float((self.found - self.expected).abs().max())

    def aimed_at_each(self) -> Iterator[Passed]:
        """The same for every class."""
        count = self.scores.shape[1:].numel()
        for target in range(count):
            pick, index = choose_target(self.scores.value, target, slice(0, self.run.batch), self.run.batch)
            yield dataclasses.replace(self, chosen=self.scores.reshape(pick, aligned=True), target=index)


def _or_zeros(reference: Reference, like: Tensor) -> Tensor:
    if reference is None:
        return torch.zeros_like(like) if like.is_floating_point() else torch.full_like(like, -1)
    return reference.detach().to(like.dtype)
