"""Which features are in the first of two blocks: every second one, the black cells of a checkerboard, or those the user names.

Blocks are cut over features as they are shown, so that the tokens of a word, the columns of a one-hot block and the elements
of a group stay together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._engine.job import Job
from .._inputs.groups import chosen, default_names, is_index, places

CELLS = 8  # along the shorter side of an image
PARITY, CHECKERBOARD, GIVEN = "every second feature", "checkerboard", "given"


def first_block(job: Job, blocks: Any) -> tuple[tuple[Tensor, ...], str]:
    """Which elements of each input are in the first block, (rows or 1, *row), and how that was decided."""
    tensors = job.given.tensors
    shapes = [x.shape[1:] for x in tensors]
    index = _features(job, shapes)
    flat, how = _default(job, shapes, index) if blocks is None else (_given(blocks, job, shapes, index), GIVEN)
    parts = flat.split([shape.numel() for shape in shapes], 1)
    return tuple(part.reshape(-1, *x.shape[1:]).to(x.device) for part, x in zip(parts, tensors, strict=True)), how


def _features(job: Job, shapes: list[torch.Size]) -> Tensor:
    """The feature of every element of a row, (rows or 1, elements)."""
    if job.given.words is not None:
        return job.given.words.index
    if job.request.feature_groups is None:
        return torch.arange(sum(shape.numel() for shape in shapes))[None]
    return places(job.request.feature_groups, shapes, lambda: _elements(job, shapes), "explain_blocks")[0][None]


def _elements(job: Job, shapes: list[torch.Size]) -> tuple[str, ...]:
    return default_names(shapes) if job.given.names is None else job.given.names


def _names(job: Job, shapes: list[torch.Size]) -> tuple[str, ...]:
    """The names of the features; words have none that all rows share."""
    if job.given.words is not None:
        return tuple(map(str, range(len(job.given.words.names[0]))))
    groups = job.request.feature_groups
    return _elements(job, shapes) if groups is None else places(groups, shapes, lambda: _elements(job, shapes))[1]


def _default(job: Job, shapes: list[torch.Size], index: Tensor) -> tuple[Tensor, str]:
    """Every second feature, cell or position."""
    grouped = job.request.feature_groups is not None
    if job.given.words is not None or (grouped and not _is_image(job.given.tensors)):
        return index % 2 == 0, PARITY
    if grouped:
        return alternate_groups(index[0].view(shapes[0])).flatten()[None], CHECKERBOARD
    parts = [_alternating(x) for x in job.given.tensors]
    return torch.cat([part.flatten() for part in parts])[None], CHECKERBOARD if _is_image(job.given.tensors) else PARITY


def _is_image(tensors: tuple[Tensor, ...]) -> bool:
    return len(tensors) == 1 and tensors[0].ndim == 4 and tensors[0].is_floating_point()


def _alternating(x: Tensor) -> Tensor:
    """For one row: cells of images, else positions along its first dimension, else elements."""
    shape = x.shape[1:]
    if x.ndim == 4 and x.is_floating_point():
        side = max(1, min(shape[1:]) // CELLS)
        down, right = (torch.arange(length) // side for length in shape[1:])
        return ((down[:, None] + right) % 2 == 0).expand(shape)
    if len(shape) > 1 and shape[0] > 1:
        return (torch.arange(shape[0]) % 2 == 0).view(-1, *(1,) * (len(shape) - 1)).expand(shape)
    return (torch.arange(shape.numel()) % 2 == 0).view(shape)


def alternate_groups(groups: Tensor) -> Tensor:
    """Every second group of elements; of an image, (channels, height, width), the black cells of a checkerboard.

    Cells are told by the ranks of their upper left corners.
    """
    if groups.ndim != 3:
        return groups % 2 == 0
    count = int(groups.max()) + 1
    ranks = torch.zeros(count, dtype=torch.long)
    for dim in (1, 2):
        place = torch.arange(groups.shape[dim]).view(*(-1 if d == dim else 1 for d in range(3))).expand(groups.shape)
        corner = torch.full((count,), groups.numel()).scatter_reduce(0, groups.flatten(), place.flatten(), "amin")
        ranks += corner.unique(return_inverse=True)[1]
    return (ranks % 2 == 0)[groups]


def _given(blocks: Any, job: Job, shapes: list[torch.Size], index: Tensor) -> Tensor:
    """The block that the user names: features by name or index, or a mask over the features of one row or of all."""
    rows = job.given.rows
    count = len(job.given.words.names[0]) if job.given.words is not None else int(index.max()) + 1
    if isinstance(blocks, (tuple, list)) and len(blocks) == len(shapes) > 1 and all(map(_is_mask, blocks)):
        blocks = torch.cat([torch.as_tensor(mask).flatten() for mask in blocks])
    if not _is_mask(blocks):
        return _by_name(blocks, count, _names(job, shapes))[index]
    mask = torch.as_tensor(blocks).cpu()
    if mask.numel() not in (count, rows * count):
        raise ValueError(
            f"explain_blocks(..., blocks=mask): a mask of shape {tuple(mask.shape)} for {rows} row(s) of {count} features. "
            f"Give true or false for each feature, ({count},) or ({rows}, {count})."
        )
    mask = mask.reshape(-1, count)
    most = max(len(mask), len(index))
    return mask.expand(most, -1).gather(1, index.expand(most, -1))


def _is_mask(blocks: Any) -> bool:
    if isinstance(blocks, (Tensor, np.ndarray)):
        return torch.as_tensor(blocks).dtype == torch.bool
    return isinstance(blocks, (list, tuple)) and bool(blocks) and all(isinstance(one, (bool, np.bool_)) for one in blocks)


def _by_name(blocks: Any, count: int, names: tuple[str, ...]) -> Tensor:
    inside = torch.zeros(count, dtype=torch.bool)
    if not isinstance(blocks, (list, tuple, set, Tensor, np.ndarray)):
        raise ValueError(
            f"explain_blocks(..., blocks={blocks!r}): give the features of the first block by name or index, or a mask with "
            f"true or false for each of the {count} features."
        )
    for member in chosen(blocks, count):
        place = names.index(member) if isinstance(member, str) and member in names else member
        if not is_index(place) or not 0 <= int(place) < count:
            raise ValueError(
                f"explain_blocks(..., blocks=...): there is no feature {member!r}. There are {count}: "
                + ", ".join(names[:20])
                + ("..." if count > 20 else ".")
            )
        inside[int(place)] = True
    return inside
