"""Groups of features: by name, or as integer masks shaped like a row."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import different
from .images import channels_last, is_image


@dataclass(frozen=True)
class Grouping:
    """Which elements of a row are one feature, input after input, and how people know these features."""

    index: Tensor  # (elements,), or (rows, elements) where rows differ: the feature of every element
    names: tuple[str, ...]
    values: Tensor | None = None  # (rows, features): numbers, or codes of words; NaN is missing
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # feature -> the words of its codes
    baselines: Tensor | None = None  # like values: what the rows are compared with


def join_groups(known: Grouping, groups: Any, call: str = "explain") -> Grouping:
    """Groups of features that are known already: a feature that stays alone keeps its value, several have none."""
    own, names = places(groups, [torch.Size([len(known.names)])], lambda: known.names, call)
    values, categories = values_of_groups(own, names, known.names, known.values, known.categories)
    baselines, _ = values_of_groups(own, names, known.names, known.baselines, known.categories)
    return Grouping(own[known.index], names, values, categories, baselines)


def groups_of_rows(masks: Any, known: Grouping | None, shapes: Sequence[torch.Size], rows: int, call: str) -> Grouping | None:
    """Masks that differ from row to row; None if one mask, or groups by name, are given for all rows.

    ``known``: the features as people know them, where masks are about these.
    """
    shapes = shapes if known is None else [torch.Size([len(known.names)])]
    given = masks if isinstance(masks, (tuple, list)) and not all(isinstance(one, int) for one in masks) else (masks,)
    if isinstance(masks, (Mapping, Grouping)) or len(given) != len(shapes):
        return None
    own = [_mask_per_row(mask, shape, rows, call) for mask, shape in zip(given, shapes, strict=True)]
    if all(mask is None for mask in own):
        return None
    parts = [
        (_flat(one, shape, call).expand(rows, -1) if mask is None else mask).cpu()
        for one, mask, shape in zip(given, own, shapes, strict=True)
    ]
    labels, index = torch.cat(parts, 1).unique(return_inverse=True)
    return Grouping(index if known is None else index[:, known.index], tuple(f"group {label}" for label in labels.tolist()))


def _mask_per_row(mask: Any, shape: torch.Size, rows: int, call: str) -> Tensor | None:
    """A mask for every row, (rows, elements); None if it is one for all rows. A mask with two meanings is refused."""
    mask = torch.as_tensor(mask)
    whole = mask
    if is_image(shape) and mask.ndim == 3:  # (rows, height, width), for all channels
        whole = mask[..., None] if channels_last(shape) else mask[:, None]
    if rows == 1 or whole.ndim != len(shape) + 1 or len(whole) != rows or not _broadcasts(whole.shape[1:], shape):
        return None
    _check_integers(mask, call)
    own = whole.expand(rows, *shape)
    if not _broadcasts(mask.shape, shape):
        return own.flatten(1)
    if not own.equal(mask.expand(own.shape)):  # as many rows as channels, or as high as there are rows
        last = "mask[..., None]" if channels_last(shape) else "mask[:, None]"
        raise ValueError(
            f"{call}(..., feature_groups=mask): a mask of shape {tuple(mask.shape)} for {rows} rows of shape {tuple(shape)} "
            f"may be one mask for all rows, or one per row. Give mask[None] for one mask, {last} for one per row."
        )
    return None


def _broadcasts(mask: Sequence[int], shape: Sequence[int]) -> bool:
    """A mask of this shape has an entry for every element of that shape."""
    return len(mask) == len(shape) and all(size in (1, own) for size, own in zip(mask, shape, strict=True))


def _check_integers(mask: Tensor, call: str) -> None:
    if mask.is_floating_point() or mask.dtype == torch.bool:
        raise ValueError(f"{call}(..., feature_groups=mask): a mask holds integers, not {mask.dtype}.")


def values_of_groups(
    index: Tensor,
    names: Sequence[str],
    before: Sequence[str],
    values: Tensor | None,
    categories: Mapping[str, tuple[str, ...]],
) -> tuple[Tensor | None, dict[str, tuple[str, ...]]]:
    """The values of groups of features, (rows, groups), with the words of codes; of several features together the word ""."""
    if index.ndim == 2:  # a group has other members in each row
        return None, {}
    members = index.bincount(minlength=len(names)).tolist()
    if values is None or 1 not in members:
        return None, {}
    found = torch.zeros(len(values), len(names), dtype=torch.float64)
    words: dict[str, tuple[str, ...]] = {name: ("",) for name, count in zip(names, members, strict=True) if count > 1}
    for place, group in enumerate(index.tolist()):
        if members[group] == 1:
            found[:, group] = values[:, place]
            if before[place] in categories:
                words[names[group]] = categories[before[place]]
    return found, words


def places(
    groups: Any, shapes: Sequence[torch.Size], names: Callable[[], tuple[str, ...]], call: str = "explain"
) -> tuple[Tensor, tuple[str, ...]]:
    """The group of every element of rows of these shapes, and the names of the groups."""
    if isinstance(groups, Grouping):
        return groups.index, groups.names
    if isinstance(groups, Mapping):
        return _name_groups(groups, sum(shape.numel() for shape in shapes), names(), call)
    one = not isinstance(groups, (tuple, list)) or all(isinstance(number, int) for number in groups)
    if one and isinstance(groups, (tuple, list)) and any(isinstance(number, bool) for number in groups):
        raise ValueError(f"{call}(..., feature_groups={groups}): a mask holds integers, not true and false.")
    masks = (groups,) if one else groups
    if len(masks) != len(shapes):
        raise ValueError(f"{call}(..., feature_groups=...): {len(masks)} masks for {len(shapes)} input(s).")
    flat = torch.cat([_flat(mask, shape, call) for mask, shape in zip(masks, shapes, strict=True)])
    labels, index = flat.unique(return_inverse=True)
    return index, tuple(f"group {label}" for label in labels.tolist())


def _name_groups(groups: Mapping[str, Any], count: int, names: tuple[str, ...], call: str) -> tuple[Tensor, tuple[str, ...]]:
    owner: dict[int, str] = {}
    for group, members in groups.items():
        for member in list_features(members, count):
            if isinstance(member, str) and names.count(member) > 1:
                different(names, f"{call}(..., feature_groups={{{group!r}: [{member!r}]}})")
            place = names.index(member) if isinstance(member, str) and member in names else member
            place = int(place) if is_index(place) else -1
            if not 0 <= place < count:
                raise ValueError(
                    f"{call}(..., feature_groups={{{group!r}: ...}}): there is no feature {member!r}. There are {count}: "
                    + ", ".join(names[:20])
                    + ("..." if count > 20 else ".")
                )
            if place in owner:
                raise ValueError(
                    f"{call}(..., feature_groups=...): feature {member!r} is in {owner[place]!r} and in {group!r}."
                )
            owner[place] = str(group)
    slots = [owner.get(place, place) for place in range(count)]  # a group by its name, a single feature by its place
    order = list(dict.fromkeys(slots))
    labels = tuple(names[slot] if isinstance(slot, int) else slot for slot in order)
    if len(set(labels)) < len(labels):
        twice = sorted({label for label in labels if labels.count(label) > 1})
        raise ValueError(f"{call}(..., feature_groups=...): {twice} would name more than one group or feature. Rename it.")
    return torch.tensor([order.index(slot) for slot in slots]), labels


def list_features(members: Any, count: int) -> list[Any]:
    """A set of features as a list: of indices and names, as they are, or from a mask of true and false for each feature."""
    listed = members.flatten().tolist() if isinstance(members, (Tensor, np.ndarray)) else list(members)
    if len(listed) == count and all(isinstance(member, (bool, np.bool_)) for member in listed):
        return [place for place, inside in enumerate(listed) if inside]
    return listed


def is_index(member: Any) -> bool:
    """It is an integer; true and false are none."""
    return isinstance(member, numbers.Integral) and not isinstance(member, bool)


def _flat(mask: Any, shape: torch.Size, call: str) -> Tensor:
    mask = torch.as_tensor(mask)
    _check_integers(mask, call)
    try:
        return (mask[0] if mask.ndim == len(shape) + 1 and len(mask) == 1 else mask).expand(shape).flatten()
    except RuntimeError:
        raise ValueError(
            f"{call}(..., feature_groups=mask): a mask of shape {tuple(mask.shape)} does not fit one row, "
            f"which has shape {tuple(shape)}. explain also takes a mask per row."
        ) from None


def default_names(shapes: Sequence[torch.Size]) -> tuple[str, ...]:
    """x0, x1, ... for the elements of rows of these shapes."""
    names = []
    for place, shape in enumerate(shapes):
        head = "x" if len(shapes) == 1 else f"x{place}_"
        if len(shape) <= 1:
            names += [f"{head}{i}" for i in range(shape.numel())]
        else:
            names += [f"{head}[{','.join(map(str, i))}]" for i in torch.cartesian_prod(*map(torch.arange, shape)).tolist()]
    return tuple(names)
