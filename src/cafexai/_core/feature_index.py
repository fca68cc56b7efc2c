"""Which elements of the inputs are one feature, for carriers that keep features apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Features:
    """Which contribution every element of the inputs belongs to."""

    index: Tensor  # the feature of every element of a row, input after input
    starts: tuple[int, ...]  # where each input begins in it
    count: int  # features, or groups of them
    carried: int  # contributions that are carried, besides that of the biases
    slots: Tensor | None = None  # (rows, features): which of them is whose, where not all features have one

    @staticmethod
    def of(shapes: Sequence[torch.Size], groups: Tensor | None = None) -> Features:
        """Every element by itself, or in the groups that are given."""
        sizes = [shape.numel() for shape in shapes]
        starts = tuple(sum(sizes[:i]) for i in range(len(sizes)))
        index = torch.arange(sum(sizes)) if groups is None else groups
        count = int(index.max()) + 1 if len(index) else 0
        return Features(index, starts, count, count)

    def keep_changed(self, changes: Sequence[Tensor]) -> Features:
        """Only features that differ from their reference in a row: the others contribute nothing to any value of that row.

        ``changes`` says of every element of the inputs whether it differs. One-hot columns, dark pixels and padding are free
        then. Every row numbers its features anew, which is right as long as no value depends on several rows; such models
        are refused (``rows.py``).
        """
        differs = torch.cat([change.reshape(len(change), -1) for change in changes], 1)
        index = self.index.to(differs.device)
        active = torch.zeros(len(differs), self.count, dtype=torch.int32, device=differs.device)
        active = active.index_add_(1, index, differs.int()).clamp_max_(1)
        most = max(1, int(active.sum(1).max())) if len(active) else 1
        if most > 0.75 * self.count:  # hardly anything to be saved
            return self
        slots = torch.where(active > 0, active.cumsum(1) - 1, most)  # what is not carried stands at the biases, as 0
        return replace(self, carried=most, slots=slots)

    def owners(self, source: int, places: Tensor, shape: torch.Size) -> Tensor:
        """The contribution that every element of an input of this shape belongs to, by its place in a row."""
        feature = self.index.to(places.device)[self.starts[source] + places].expand(shape)
        if self.slots is None:
            return feature
        return self.slots.to(places.device).gather(1, feature.reshape(len(feature), -1)).view(shape)

    def spread(self, values: Tensor) -> Tensor:
        """(contributions + 1, rows) as (rows, features)."""
        if self.slots is None:
            return values[:-1].mT
        return torch.cat([values[:-1], torch.zeros_like(values[:1])]).mT.gather(1, self.slots.to(values.device))

    def spread_pairs(self, pairs: Tensor) -> Tensor:
        """(rows, contributions + 1, contributions + 1) as (rows, features + 1, features + 1)."""
        if self.slots is None:
            return pairs
        own = self.slots.to(pairs.device)
        own = torch.cat([torch.where(own == self.carried, self.carried + 1, own), torch.full_like(own[:, :1], self.carried)], 1)
        padded = torch.nn.functional.pad(pairs, (0, 1, 0, 1))
        wide = padded.gather(1, own[:, :, None].expand(-1, -1, padded.shape[2]))
        return wide.gather(2, own[:, None].expand(-1, own.shape[1], -1))

    def at_inputs(self, values: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
        """(contributions + 1, rows) in the shape of the inputs; the scores of a group stand at its first element."""
        index = self.index.to(values.device)
        first = torch.full((self.count,), len(index), device=values.device)
        first = first.scatter_reduce(0, index, torch.arange(len(index), device=values.device), "amin")
        flat = values.new_zeros(values.shape[1], len(index))
        flat[:, first] = self.spread(values)
        sizes = [x[0].numel() for x in inputs]
        return [part.reshape(x.shape) for part, x in zip(flat.split(sizes, 1), inputs, strict=True)]
