"""One score per group of features: positive and negative are summed separately, so both stay complete."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .explanation import Explanation, Tensors


def grouped(explanation: Explanation, groups: Any) -> Explanation:
    """The explanation with (rows, groups) scores.

    ``{"sex": [3, 4]}`` (indices or names; other features stay alone), or integer masks shaped like one row.
    """
    parts = explanation._each(explanation.positive)
    index, names = places(groups, [part.shape[1:] for part in parts], explanation.names)
    index = index.to(explanation.output.device)

    def summed(scores: Tensors) -> Tensor:
        flat = explanation._flat(scores)
        return flat.new_zeros(len(flat), len(names)).index_add_(1, index, flat)

    return dataclasses.replace(
        explanation,
        positive=summed(explanation.positive),
        negative=summed(explanation.negative),
        combined=summed(explanation.combined),
        feature_names=names,
        settings={**explanation.settings, "grouped": True},
    )


def places(groups: Any, shapes: Sequence[torch.Size], names: Callable[[], tuple[str, ...]]) -> tuple[Tensor, tuple[str, ...]]:
    """The group of every element of rows of these shapes, and the names of the groups."""
    if isinstance(groups, Mapping):
        if len(shapes) > 1:
            raise ValueError("explain(..., feature_groups={...}): there are several inputs; give a tuple of integer masks.")
        return _named(groups, shapes[0].numel(), names())
    masks = groups if isinstance(groups, (tuple, list)) else (groups,)
    if len(masks) != len(shapes):
        raise ValueError(f"explain(..., feature_groups=...): {len(masks)} masks for {len(shapes)} input(s).")
    flat = torch.cat([_flat(mask, shape) for mask, shape in zip(masks, shapes, strict=True)])
    labels, index = flat.unique(return_inverse=True)
    return index, tuple(f"group {label}" for label in labels.tolist())


def _named(groups: Mapping[str, Any], count: int, names: tuple[str, ...]) -> tuple[Tensor, tuple[str, ...]]:
    owner: dict[int, str] = {}
    for group, members in groups.items():
        for member in members:
            place = names.index(member) if isinstance(member, str) and member in names else member
            place = int(place) if isinstance(place, numbers.Integral) else -1
            if not 0 <= place < count:
                raise ValueError(
                    f"explain(..., feature_groups={{{group!r}: ...}}): there is no feature {member!r}. There are {count}: "
                    + ", ".join(names[:20])
                    + ("..." if count > 20 else ".")
                )
            if place in owner:
                raise ValueError(
                    f"explain(..., feature_groups=...): feature {member!r} is in {owner[place]!r} and in {group!r}."
                )
            owner[place] = str(group)
    slots = [owner.get(place, place) for place in range(count)]  # a group by its name, a single feature by its place
    order = list(dict.fromkeys(slots))
    labels = tuple(names[slot] if isinstance(slot, int) else slot for slot in order)
    if len(set(labels)) < len(labels):
        twice = sorted({label for label in labels if labels.count(label) > 1})
        raise ValueError(f"explain(..., feature_groups=...): {twice} would name more than one group or feature. Rename it.")
    return torch.tensor([order.index(slot) for slot in slots]), labels


def _flat(mask: Any, shape: torch.Size) -> Tensor:
    mask = torch.as_tensor(mask)
    if mask.is_floating_point() or mask.dtype == torch.bool:
        raise ValueError(f"explain(..., feature_groups=mask): a mask holds integers, not {mask.dtype}.")
    try:
        return (mask[0] if mask.ndim == len(shape) + 1 and len(mask) == 1 else mask).expand(shape).flatten()
    except RuntimeError:
        raise ValueError(
            f"explain(..., feature_groups=mask): a mask of shape {tuple(mask.shape)} does not fit one row, "
            f"which has shape {tuple(shape)}."
        ) from None
