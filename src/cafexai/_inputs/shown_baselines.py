"""Baselines in the units of the user: a value for every feature, as the rows themselves are shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .prepare import Inputs, has_own_columns
from .table_values import NO_CATEGORY, NOT_KNOWN, is_date_column, is_missing, word

MISSING = -1.0  # the code of what is missing in a column of categories; NaN stands for no category
UNKNOWN = float("inf")  # stands for a value that cannot be told in the units of the column
Stack = Sequence[tuple[Tensor | None, ...]]  # references: one for each input; None stands for zeros


def with_baseline_values(given: Inputs, stack: Stack, raw: Any, model: Any) -> Inputs:
    """The inputs with the baselines in the units in which their features are shown, where these are known.

    ``raw`` is the baseline as the user gave it. Of several baselines a number is the mean, a date the median, a category the
    most frequent one.
    """
    if given.schema is not None:
        found = _by_schema(given, stack)
    elif raw is not None and has_own_columns(model):
        found = _by_pipeline(given, stack, raw, model)
    elif _shows_given_values(given):
        found = (
            _typical([_one_or_all(one, given.tensors[0]).double().cpu() for (one,) in stack], [None]),
            dict(given.categories),
        )
    else:
        return given
    if found is None:
        return given
    values, categories = found
    shown = values.expand(given.rows, -1) if len(values) == 1 else values
    if given.grouping is None:
        return dataclasses.replace(given, baseline_values=shown, categories=categories)
    grouping = dataclasses.replace(given.grouping, baselines=shown, categories=categories)
    return dataclasses.replace(given, grouping=grouping)


def same_as_baseline(tensors: Sequence[Tensor], stack: Stack) -> Tensor:
    """Which elements of the rows, input after input, are as in every baseline: (rows, elements)."""
    rows = len(tensors[0])
    found = []
    for place, x in enumerate(tensors):
        same = torch.ones_like(x, dtype=torch.bool)
        for references in stack:
            reference = references[place]
            if reference is not None:
                same &= x == reference
            elif x.is_floating_point():
                same &= x == 0
            else:  # a code for nothing does not exist
                same.zero_()
        found.append(same.reshape(rows, -1))
    return torch.cat(found, 1)


def _shows_given_values(given: Inputs) -> bool:
    """The values that are shown are those that the model gets, perhaps with more digits."""
    if given.display is None or given.grouping is not None or given.tokens is not None or len(given.tensors) > 1:
        return False
    x = given.tensors[0]
    return x.ndim == 2 and x.is_floating_point() and torch.allclose(given.display.to(x), x, rtol=1e-5, atol=0, equal_nan=True)


def _one_or_all(reference: Tensor | None, x: Tensor) -> Tensor:
    """The rows of a baseline, or the one row that all of them share."""
    return torch.zeros_like(x[:1]) if reference is None else reference if _differ(reference) else reference[:1]


def _by_schema(given: Inputs, stack: Stack) -> tuple[Tensor, dict[str, tuple[str, ...]]] | None:
    """Values of the columns of a schema, read from the references."""
    own = given.schema.names
    names, merged = _features(given)
    several: list[Tensor] = []
    unknown: set[int] = set()
    for references in stack:
        tensors = []
        for place, (reference, x) in enumerate(zip(references, given.tensors, strict=True)):
            if reference is None and not x.is_floating_point():
                unknown.update(i for i, column in enumerate(given.schema.columns) if column.input == given.schema.inputs[place])
            tensors.append(_one_or_all(reference, x))
        rows = max(len(one) for one in tensors)
        try:
            _, values, words = given.schema.match_columns([one.expand(rows, *one.shape[1:]) for one in tensors], "explain(...)")
        except ValueError:  # codes between two categories, as means are
            return None
        for name, labels in words.items():
            shown = names[own.index(name)]
            merged[shown] = max(merged.get(shown, ()), labels, key=len)
        several.append(values)
    values = _typical(several, [merged.get(name) for name in names])
    values[:, sorted(unknown)] = torch.nan
    return values, merged


def _features(given: Inputs) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """The names of the features that are shown, and the words of their codes."""
    if given.grouping is not None:
        return given.grouping.names, dict(given.grouping.categories)
    return given.names or (), dict(given.categories)


def _differ(reference: Tensor) -> bool:
    """A baseline of its own for each row."""
    return len(reference) > 1 and reference.stride(0) != 0 and bool((reference != reference[:1]).any())


def _by_pipeline(given: Inputs, stack: Stack, raw: Any, model: Any) -> tuple[Tensor, dict[str, tuple[str, ...]]] | None:
    """Values of the columns before the steps of a pipeline, as the user gave them."""
    cells = model.known_cells(raw)
    if cells is None:
        return None
    if cells.ndim == 2:  # rows of one baseline, or one row of each of several
        cells = cells[:, None] if len(stack) > 1 else cells[None]
    cells = cells.reshape(-1, *cells.shape[-2:])  # (baselines, rows, features)
    names, merged = _features(given)
    values = np.empty(cells.shape, dtype=np.float64)
    for place, name in enumerate(names):
        values[..., place] = _encode_cells(cells[..., place], name, merged)
    for place, element in model.mixed_features().items():  # shown as the model gets them
        for number, (reference,) in enumerate(stack):
            values[number, :, place] = 0.0 if reference is None else reference[: cells.shape[1], element].cpu().numpy()
    return _typical(list(torch.from_numpy(values)), [merged.get(name) for name in names]), merged


def _encode_cells(cells: np.ndarray, name: str, categories: dict[str, tuple[str, ...]]) -> np.ndarray:
    """Cells of one column as numbers, or as codes of words; words that no row has are added."""
    if name not in categories:
        plain = [UNKNOWN if cell is NOT_KNOWN else np.nan if is_missing(cell) else float(cell) for cell in cells.flat]
        return np.array(plain).reshape(cells.shape)
    words = list(categories[name])
    codes = []
    for cell in cells.flat:
        if cell is NO_CATEGORY or cell is NOT_KNOWN:
            codes.append(np.nan if cell is NO_CATEGORY else UNKNOWN)
            continue
        label = None if is_missing(cell) else word(cell)
        if label is not None and label not in words:
            words.append(label)
        codes.append(MISSING if label is None else float(words.index(label)))
    categories[name] = tuple(words)
    return np.array(codes).reshape(cells.shape)


def _typical(several: Sequence[Tensor], words: Sequence[Sequence[str] | None]) -> Tensor:
    """One value for each feature: of several baselines the mean of numbers, the median of dates, the most frequent category.

    ``words`` are those of the codes of each feature, None for numbers.
    """
    if len(several) == 1:
        return several[0]
    rows = max(len(one) for one in several)
    whole = torch.stack([one.expand(rows, -1) for one in several])
    found = whole.nanmean(0)
    for place, known in enumerate(words):
        if known is not None:
            codes = whole[..., place]
            found[:, place] = _middle_date(codes, known) if is_date_column(known) else _most_frequent(codes)
    return found


def _most_frequent(codes: Tensor) -> Tensor:
    """The most frequent code of each row, (baselines, rows); no category is one, too."""
    common = torch.where(codes.isnan(), torch.full_like(codes, MISSING - 1), codes).mode(0).values
    return torch.where(common < MISSING, torch.full_like(common, torch.nan), common)


def _middle_date(codes: Tensor, words: Sequence[str]) -> Tensor:
    """The code of the median of dates for each row; one that is missing is left out, if not all are."""
    order = sorted(range(len(words)), key=words.__getitem__)
    ranks = torch.tensor([order.index(code) for code in range(len(words))], dtype=codes.dtype)
    known = codes >= 0
    ranked = torch.where(known, ranks[codes.nan_to_num(0).clamp_min(0).long()], torch.full_like(codes, torch.nan))
    middle = ranked.nanmedian(0).values
    back = torch.tensor(order, dtype=codes.dtype)[middle.nan_to_num(0).long()]
    return torch.where(middle.isnan(), torch.full_like(back, MISSING), back)
