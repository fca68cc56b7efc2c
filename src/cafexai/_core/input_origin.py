"""How a value was made of one input: element by element, by moves and functions of single elements.

What is so made can be turned into codes (``x[:, 0].long()``) without being lost: each code is still that of one feature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Origin:
    """An input, and the last of the changes since."""

    source: int
    x: Tensor  # that input
    reference: Tensor | None  # its baseline, None for zeros
    change: Callable[..., Any] | None = None  # of as many tensors as there are parts
    parts: tuple[Origin | Tensor, ...] = ()  # what was changed: values of this input, and constants
    moves: bool = False  # the change puts elements in other places; else each stays in its own

    def apply(self, change: Callable[[Tensor], Tensor]) -> Origin:
        """Behind a function of single elements."""
        return Origin(self.source, self.x, self.reference, change, (self,))

    @staticmethod
    def join(fn: Callable[..., Any], origins: Sequence[Origin | Tensor | None], place: int | None) -> Origin | None:
        """Behind a move of values and constants; ``place`` is that of the result among several."""
        known = [origin for origin in origins if isinstance(origin, Origin)]
        parts = tuple(origin for origin in origins if origin is not None)  # constants go with any input
        if len(parts) < len(origins) or len({origin.source for origin in known}) != 1:
            return None
        change = fn if place is None else lambda *values: fn(*values)[place]
        return Origin(known[0].source, known[0].x, known[0].reference, change, parts, moves=True)

    def places(self) -> Tensor:
        """The flat place in the input of every element, -1 for constants."""
        if self.change is None:
            return torch.arange(self.x.numel(), device=self.x.device).view(self.x.shape)
        parts = [
            part.places() if isinstance(part, Origin) else torch.full_like(part, -1, dtype=torch.long) for part in self.parts
        ]
        return self.change(*parts) if self.moves else parts[0]

    def at_baseline(self) -> Tensor:
        """What the model computes here at the baseline."""
        if self.change is None:
            return torch.zeros_like(self.x) if self.reference is None else self.reference
        return self.change(*[part.at_baseline() if isinstance(part, Origin) else part for part in self.parts])
