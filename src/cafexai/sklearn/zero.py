"""The baseline zero in the units of the user: what the preprocessing steps turn into 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._inputs.column_sources import column_places, one_hot_widths
from .._inputs.table_values import NO_CATEGORY, NOT_KNOWN, is_missing

SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "PowerTransformer")
Cells = np.ndarray  # of objects: numbers, categories, NO_CATEGORY or NOT_KNOWN


def invert_zero(step: Any, columns: int, features: int) -> Cells:
    """The row of ``columns`` that a fitted step turns into zeros; NOT_KNOWN where there is none, or it cannot be told."""
    zeros = np.empty(features, dtype=object)
    zeros[:] = 0.0
    return _invert(step, zeros, columns)


def _invert(step: Any, made: Cells, columns: int) -> Cells:
    """The row that a step turns into ``made``."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import Pipeline

    from sklearn import preprocessing

    unknown = _nothing(columns)
    if step is None or isinstance(step, str):  # "passthrough"
        return made if len(made) == columns else unknown
    if isinstance(step, Pipeline):
        for _, one in reversed(step.steps):
            made = _invert(one, made, getattr(one, "n_features_in_", len(made)))
        return made if len(made) == columns else unknown
    if isinstance(step, ColumnTransformer):
        return _side_by_side(step, made, columns)
    if isinstance(step, SimpleImputer):
        return _imputed(step, made, columns)
    if isinstance(step, preprocessing.OneHotEncoder):
        return _one_hot(step, made)
    if isinstance(step, preprocessing.OrdinalEncoder):
        codes = zip(_numbers(made), step.categories_, strict=True)
        return _cells(known[int(code)] if code in range(len(known)) else NOT_KNOWN for code, known in codes)
    if type(step) in (getattr(preprocessing, name) for name in SCALERS):
        return _scaled(step, _numbers(made))
    return unknown


def _side_by_side(step: Any, made: Cells, columns: int) -> Cells:
    """The parts of a ColumnTransformer; a column that two of them take must have the same value in both."""
    found, used = _nothing(columns), np.zeros(columns, dtype=bool)
    names = list(getattr(step, "feature_names_in_", ()))
    for name, one, chosen in step.transformers_:
        place = step.output_indices_.get(name, slice(0, 0))
        if place.stop > place.start and not (isinstance(one, str) and one == "drop"):
            places = column_places(chosen, names, columns)
            for column, cell in zip(places, _invert(one, made[place], len(places)), strict=True):
                found[column] = cell if not used[column] or _same(found[column], cell) else NOT_KNOWN
                used[column] = True
    return found


def _imputed(step: Any, made: Cells, columns: int) -> Cells:
    """What an imputer leaves as it is. A column whose mark for missing values is not 0 has no such value."""
    found = _nothing(columns)
    kept = [
        i
        for i, typical in enumerate(step.statistics_)
        if getattr(step, "keep_empty_features", False) or not is_missing(typical)
    ]
    found[kept] = made[: len(kept)]
    marked = [] if step.indicator_ is None else step.indicator_.features_
    for column, mark in zip(marked, _numbers(made[len(kept) :]), strict=True):
        if mark != 0:
            found[column] = NOT_KNOWN
    missing = step.missing_values  # a value of this kind would be replaced
    return _cells(
        NOT_KNOWN if cell is not NOT_KNOWN and cell is not NO_CATEGORY and cell == missing else cell for cell in found
    )


def _one_hot(step: Any, made: Cells) -> Cells:
    """No category where all of a block is 0, or the one that is left out."""
    start, found = 0, []
    for column, width in enumerate(one_hot_widths(step)):
        block, start = _numbers(made[start : start + width]), start + width
        dropped = None if step.drop_idx_ is None else step.drop_idx_[column]
        none: Any = NO_CATEGORY if dropped is None else step.categories_[column][dropped]
        found.append(none if (block == 0).all() else NOT_KNOWN)
    return _cells(found)


def _scaled(step: Any, made: np.ndarray) -> Cells:
    known = ~np.isnan(made)
    found = np.asarray(step.inverse_transform(np.where(known, made, 0.0)[None]), dtype=np.float64)[0]
    again = np.asarray(step.transform(np.nan_to_num(found)[None]), dtype=np.float64)[0]  # a scaler may clip
    known &= np.isclose(again, np.where(known, made, 0.0), atol=1e-6) & np.isfinite(found)
    return _cells(float(cell) if sure else NOT_KNOWN for cell, sure in zip(found, known, strict=True))


def _numbers(cells: Cells) -> np.ndarray:
    """Numbers, NaN for all else."""
    return np.array([float(cell) if isinstance(cell, (int, float)) else np.nan for cell in cells], dtype=np.float64)


def _same(one: Any, other: Any) -> bool:
    numbers = isinstance(one, float) and isinstance(other, float)
    return bool(np.isclose(one, other)) if numbers else one is other or (isinstance(one, str) and one == other)


def _nothing(columns: int) -> Cells:
    return _cells([NOT_KNOWN] * columns)


def _cells(cells: Any) -> Cells:
    listed = list(cells)
    made = np.empty(len(listed), dtype=object)
    made[:] = listed
    return made
