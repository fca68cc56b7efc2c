"""The baseline zero in the units of the user: what the preprocessing steps turn into 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._inputs.column_sources import column_places

SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "PowerTransformer")


def invert_zero(step: Any, columns: int, features: int) -> np.ndarray:
    """The row of ``columns`` that a fitted step turns into zeros, (columns,); NaN where there is none, or it is not known."""
    return _invert(step, np.zeros(features), columns)


def _invert(step: Any, made: np.ndarray, columns: int) -> np.ndarray:
    """The row that a step turns into ``made``; NaN stays NaN."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import Pipeline

    from sklearn import preprocessing

    unknown = np.full(columns, np.nan)
    if step is None or isinstance(step, str):  # "passthrough"
        return made if len(made) == columns else unknown
    if isinstance(step, Pipeline):
        for _, one in reversed(step.steps):
            made = _invert(one, made, getattr(one, "n_features_in_", len(made)))
        return made if len(made) == columns else unknown
    if isinstance(step, ColumnTransformer):
        names, used = list(getattr(step, "feature_names_in_", ())), np.zeros(columns, dtype=bool)
        for name, one, chosen in step.transformers_:
            place = step.output_indices_.get(name, slice(0, 0))
            if place.stop > place.start and not (isinstance(one, str) and one == "drop"):
                places = column_places(chosen, names, columns)
                found = _invert(one, made[place], len(places))
                unknown[places] = np.where(~used[places] | np.isclose(unknown[places], found), found, np.nan)
                used[places] = True
        return unknown
    if isinstance(step, SimpleImputer) and len(made) == columns:
        missing = step.missing_values  # a value of this kind would be replaced
        return np.where(made == missing, np.nan, made) if isinstance(missing, (int, float)) else made
    if type(step) in (getattr(preprocessing, name) for name in SCALERS):
        known = ~np.isnan(made)
        found = np.asarray(step.inverse_transform(np.where(known, made, 0.0)[None]), dtype=np.float64)[0]
        again = np.asarray(step.transform(np.nan_to_num(found)[None]), dtype=np.float64)[0]  # a scaler may clip
        known &= np.isclose(again, np.where(known, made, 0.0), atol=1e-6)
        return np.where(known & np.isfinite(found), found, np.nan)
    return unknown
