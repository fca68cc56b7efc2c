"""Which features are in the first of two blocks: every second one, the black cells of a checkerboard, or those the user names.

Blocks are cut over features as they are shown, so that the tokens of a word, the columns of a one-hot block and the elements
of a group stay together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._engine.feature_sets import FeatureSets, feature_sets
from .._engine.job import Job
from .._inputs.groups import default_names, is_index, list_features, places
from .._inputs.images import channels_last, is_image

PARITY, CHECKERBOARD, GIVEN = "every second feature", "checkerboard", "given"


def first_block(job: Job, blocks: Any) -> tuple[tuple[Tensor, ...], str]:
    """Which elements of each input are in the first block, (rows or 1, *row), and how that was decided."""
    tensors = job.given.tensors
    shapes = [x.shape[1:] for x in tensors]
    sets = feature_sets(job, shapes)
    flat, how = _alternating(job, shapes, sets) if blocks is None else (_read_blocks(blocks, job, shapes, sets), GIVEN)
    parts = flat.split([shape.numel() for shape in shapes], 1)
    return tuple(part.reshape(-1, *x.shape[1:]).to(x.device) for part, x in zip(parts, tensors, strict=True)), how


def _alternating(job: Job, shapes: list[torch.Size], sets: FeatureSets) -> tuple[Tensor, str]:
    """Every second feature; every second position of sequences; every second cell of images, like a checkerboard."""
    if sets.index is None:
        return torch.cat([_positions(shape).flatten() for shape in shapes])[None], PARITY
    rows = sets.index.view(-1, sets.index.shape[-1])
    if len(shapes) == 1 and is_image(shapes[0]):
        return torch.stack([alternate_groups(row.view(shapes[0])).flatten() for row in rows]), CHECKERBOARD
    return rows % 2 == 0, PARITY


def _positions(shape: torch.Size) -> Tensor:
    """Every second entry of the first dimension of a row, if it has several of them and these are several numbers."""
    if len(shape) > 1 and shape[0] > 1:
        return (torch.arange(shape[0]) % 2 == 0).view(-1, *(1,) * (len(shape) - 1)).expand(shape)
    return torch.arange(shape.numel()).view(shape) % 2 == 0


def alternate_groups(groups: Tensor) -> Tensor:
    """Every second group of the elements of a row; of an image, the black cells of a checkerboard.

    Cells are told by the ranks of their upper left corners.
    """
    if not is_image(groups.shape):
        return groups % 2 == 0
    count = int(groups.max()) + 1
    ranks = torch.zeros(count, dtype=torch.long)
    for dim in (0, 1) if channels_last(groups.shape) else (1, 2):
        place = torch.arange(groups.shape[dim]).view(*(-1 if d == dim else 1 for d in range(3))).expand(groups.shape)
        corner = torch.full((count,), groups.numel()).scatter_reduce(0, groups.flatten(), place.flatten(), "amin")
        ranks += corner.unique(return_inverse=True)[1]
    return (ranks % 2 == 0)[groups]


def _read_blocks(blocks: Any, job: Job, shapes: list[torch.Size], sets: FeatureSets) -> Tensor:
    """The block that the user names: features by name or index, or a mask over the features of one row or of all."""
    rows, count, elements = job.given.rows, sets.count, sum(shape.numel() for shape in shapes)
    if isinstance(blocks, (tuple, list)) and len(blocks) == len(shapes) > 1 and all(map(_is_mask, blocks)):
        blocks = torch.cat([torch.as_tensor(mask).flatten() for mask in blocks])
    if not _is_mask(blocks):
        return sets.spread(_by_name(blocks, count, job, shapes)[None].expand(_rows(sets), -1))
    mask = torch.as_tensor(blocks).cpu()
    if mask.numel() in (count, rows * count):
        mask = mask.reshape(-1, count)
        return sets.spread(mask.expand(max(len(mask), _rows(sets)), -1))
    if mask.numel() == elements and job.given.words is None and job.request.feature_groups is None:  # pixels of an image
        return mask.reshape(1, -1)
    raise ValueError(
        f"explain_blocks(..., blocks=mask): a mask of shape {tuple(mask.shape)} for {rows} row(s) of {count} features. Give "
        f"true or false for each feature, ({count},) or ({rows}, {count})."
    )


def _rows(sets: FeatureSets) -> int:
    return 1 if sets.index is None or sets.index.ndim == 1 else len(sets.index)


def _is_mask(blocks: Any) -> bool:
    if isinstance(blocks, (Tensor, np.ndarray)):
        return torch.as_tensor(blocks).dtype == torch.bool
    return isinstance(blocks, (list, tuple)) and bool(blocks) and all(isinstance(one, (bool, np.bool_)) for one in blocks)


def _by_name(blocks: Any, count: int, job: Job, shapes: list[torch.Size]) -> Tensor:
    if not isinstance(blocks, (list, tuple, set, Tensor, np.ndarray)):
        raise ValueError(
            f"explain_blocks(..., blocks={blocks!r}): give the features of the first block by name or index, or a mask with "
            f"true or false for each of the {count} features."
        )
    names = _names(job, shapes)
    inside = torch.zeros(count, dtype=torch.bool)
    for member in list_features(blocks, count):
        place = names.index(member) if isinstance(member, str) and member in names else member
        if not is_index(place) or not 0 <= int(place) < count:
            listed = ", ".join(names[:20]) + ("..." if len(names) > 20 else ".")
            raise ValueError(f"explain_blocks(..., blocks=...): there is no feature {member!r}. There are {count}: {listed}")
        inside[int(place)] = True
    return inside


def _names(job: Job, shapes: list[torch.Size]) -> tuple[str, ...]:
    """The names of the features; words, which differ from row to row, and cells of images go by their index."""
    if job.given.words is not None:
        return ()
    names = default_names(shapes) if job.given.names is None else job.given.names
    groups = job.request.feature_groups
    if groups is None:
        return () if any(map(is_image, shapes)) else names
    return places(groups, shapes, lambda: names)[1]
