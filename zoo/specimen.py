"""One model of the zoo, with rows for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

ROWS = 2


@dataclass
class Specimen:
    """A model in evaluation mode, the inputs to explain by the names that its forward has for them, and further arguments.

    An input without a name (an integer in its place) is handed over by position.
    """

    model: nn.Module
    inputs: Mapping[Any, Tensor]
    constants: Mapping[str, Any] = field(default_factory=dict)
    read: Any = None  # what makes one tensor, rows first, of the output; None, of itself or by it: the first that fits
    trained: bool = False  # its weights are kept as they are


class Reader(nn.Module):
    """A model as a function of its inputs that gives one line of numbers per row, whatever it gives itself."""

    def __init__(self, specimen: Specimen) -> None:
        super().__init__()
        self.model, self.names, self.read = specimen.model, list(specimen.inputs), specimen.read

    def forward(self, *inputs: Tensor, **constants: Any) -> Tensor:
        given = dict(zip(self.names, inputs, strict=True))
        places = [given[name] for name in sorted(name for name in self.names if isinstance(name, int))]
        words = {name: value for name, value in given.items() if isinstance(name, str)}
        output = self.model(*places, **words, **constants)
        rows = len(inputs[0])
        found = None if self.read is None else self.read(output)
        return (first_numbers(output, rows) if found is None else found).reshape(rows, -1)


def first_numbers(output: Any, rows: int | None) -> Tensor:
    """The first tensor of an output that holds numbers for each row; of any number of rows for None."""
    found = _find(output, rows)
    if found is None:
        raise LookupError(f"no tensor of numbers with {rows} rows in an output of type {type(output).__name__}")
    return found


def _find(output: Any, rows: int | None) -> Tensor | None:
    if isinstance(output, Tensor):
        return output if output.is_floating_point() and output.ndim and rows in (None, output.shape[0]) else None
    if isinstance(output, Mapping):
        output = [value for key, value in output.items() if "loss" not in str(key)]
    elif hasattr(output, "__dataclass_fields__"):
        output = list(vars(output).values())
    if not isinstance(output, (list, tuple)):
        return None
    return next((found for one in output if (found := _find(one, rows)) is not None), None)


def pictures(channels: int = 3, size: int = 32, depth: int | None = None) -> Tensor:
    """Random pictures, or volumes of some depth."""
    sizes = (size, size) if depth is None else (depth, size, size)
    return torch.randn(ROWS, channels, *sizes)


def codes(count: int, length: int = 8, first: int = 3) -> Tensor:
    """Random codes from ``first`` on, below ``count``."""
    return torch.randint(min(first, count - 1), count, (ROWS, length))
