"""What a forward pass leaves for the way back, and what comes out of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .run import Run
    from .value import Scores


@dataclass(frozen=True)
class Passed:
    """What the forward pass leaves for the backward passes."""

    run: Run  # with the leaves, in which the backward passes end
    inputs: list[Tensor]  # what the scores are shaped like
    references: list[Tensor | None]
    found: Tensor  # the output as the engine has it
    scores: Scores  # the output before a final sigmoid or softmax, as a scored value
    chosen: Scores  # the explained output as a scored value, one number per row
    target: Tensor  # (rows, dimensions of the output): which one that is
    expected: Tensor  # the output of the model as it is
    final: str | None  # the sigmoid or softmax at the end that is left out, by its kind
    notes: tuple[str, ...]

    @property
    def baselines(self) -> list[Tensor]:
        """The references, zeros included; codes without one are held against a zero embedding, which has no code."""
        return [_or_zeros(reference, x) for reference, x in zip(self.references, self.inputs, strict=True)]

    @property
    def output_error(self) -> float:
        """The largest |engine - model(x)|."""
        return float((self.found - self.expected).abs().max())

    def aimed(self, chosen: Scores, target: Tensor) -> Passed:
        """Another number of each row."""
        return dataclasses.replace(self, chosen=chosen, target=target)


def _or_zeros(reference: Tensor | None, like: Tensor) -> Tensor:
    if reference is None:
        return torch.zeros_like(like) if like.is_floating_point() else torch.full_like(like, -1)
    return reference.detach().to(like.dtype)


@dataclass(frozen=True)
class Outcome:
    """The scores of one number per row: of the features, shaped like the inputs, and of the biases, by layer."""

    net: list[Tensor]
    biases: Mapping[str, Tensor]  # layer -> (rows, 3): positive, negative, net; (rows,) if only the net was asked for
    lack: Tensor  # (rows,): sum of all scores minus the whole
    positive: list[Tensor] = dataclasses.field(default_factory=list)  # both are empty if only the net was asked for
    negative: list[Tensor] = dataclasses.field(default_factory=list)
    pairs: Tensor | None = None  # (rows, features + 1, features + 1): who cancelled whom
