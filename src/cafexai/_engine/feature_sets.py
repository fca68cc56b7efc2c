"""The features of a result as sets of input elements: what has one score is removed as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .._inputs.groups import default_names, places
from .._inputs.images import CELLS, cell_index, is_image
from .job import Job

BY_CELLS = f"Conflict is measured between the cells of an {CELLS} x {CELLS} grid over the image."


@dataclass(frozen=True)
class FeatureSets:
    """Which feature every element of a row belongs to, input after input."""

    index: Tensor | None  # (elements,), or (rows, elements) where rows differ; None: every element is a feature
    count: int
    notes: tuple[str, ...] = ()

    @property
    def by_row(self) -> bool:
        """Rows have features of their own."""
        return self.index is not None and self.index.ndim == 2

    def take(self, rows: slice) -> FeatureSets:
        """The sets of some rows."""
        return FeatureSets(self.index[rows], self.count, self.notes) if self.by_row and self.index is not None else self

    def sum(self, flat: Tensor) -> Tensor:
        """Scores of elements, (rows, elements), as scores of features, (rows, features)."""
        if self.index is None:
            return flat
        index = self.index.to(flat.device).expand(flat.shape)
        return flat.new_zeros(len(flat), self.count).scatter_add_(1, index, flat)

    def spread(self, features: Tensor) -> Tensor:
        """A value per feature, (rows, features), at each of its elements, (rows, elements)."""
        if self.index is None:
            return features
        return features.gather(1, self.index.to(features.device).expand(len(features), self.index.shape[-1]))


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """One value per element of several inputs, (rows, elements)."""
    return torch.cat([part.reshape(len(part), part.shape[1:].numel()) for part in parts], 1)


def feature_sets(job: Job, shapes: Sequence[torch.Size]) -> FeatureSets:
    """The features of the explanation of a job, whose scores have these shapes per row."""
    groups, words = job.request.feature_groups, job.given.words
    if groups is not None:
        names = job.given.names if job.question.layer is None else None
        index, called = places(groups, shapes, lambda: default_names(shapes) if names is None else names)
        return FeatureSets(index, len(called))
    if words is not None:
        return FeatureSets(words.index, len(words.names[0]))
    if not any(map(is_image, shapes)):
        return FeatureSets(None, sum(shape.numel() for shape in shapes))
    parts: list[Tensor] = []
    for shape in shapes:
        before = int(parts[-1].max()) + 1 if parts else 0
        parts.append(before + (cell_index(shape) if is_image(shape) else torch.arange(shape.numel())))
    return FeatureSets(torch.cat(parts), int(parts[-1].max()) + 1, (BY_CELLS,))
