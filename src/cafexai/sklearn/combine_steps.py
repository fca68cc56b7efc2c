"""Preprocessing steps one after the other, and those of several estimators side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .layers import names_of


class SideBySide:
    """The steps of several estimators on the same rows: their features stand side by side. None stands for no steps."""

    def __init__(self, members: Sequence[tuple[Any, int]]) -> None:
        self.side_by_side = list(members)  # steps, and how many features they make
        owners = [steps for steps, _ in members if steps is not None]
        for name in ("feature_names_in_", "n_features_in_"):
            known = next((getattr(one, name) for one in owners if hasattr(one, name)), None)
            if known is not None:
                setattr(self, name, known)

    def transform(self, rows: Any) -> np.ndarray:
        """(rows, all features)."""
        parts = [rows if steps is None else steps.transform(rows) for steps, _ in self.side_by_side]
        return np.concatenate([numbers(part) for part in parts], axis=1)

    def get_feature_names_out(self) -> list[str]:
        """Names with the number of their estimator in front."""
        found = []
        for place, (steps, width) in enumerate(self.side_by_side):
            own = None if steps is None else names_of(steps, "get_feature_names_out")
            found += [f"{place + 1}__{name}" for name in own or [f"feature {i}" for i in range(width)]]
        return found


class Chain:
    """Steps before other steps."""

    def __init__(self, first: Any, then: Any, between: int) -> None:
        self.first, self.then, self.between = first, then, between  # how many features stand between them
        for name in ("feature_names_in_", "n_features_in_"):
            if hasattr(first, name):
                setattr(self, name, getattr(first, name))

    def transform(self, rows: Any) -> Any:
        """Both, one after the other."""
        return self.then.transform(self.first.transform(rows))

    def get_feature_names_out(self) -> Any:
        """Those of the last."""
        return self.then.get_feature_names_out()


def chain_steps(first: Any, then: Any, width: int) -> Any:
    """Steps and, behind them, those of the last estimator, if it has some."""
    if not len(first):
        return then
    return first if then is None else Chain(first, then, getattr(then, "n_features_in_", width))


def numbers(data: Any, call: str = "explain(...)") -> np.ndarray:
    """Arrays, sparse arrays and data frames as dense float64."""
    try:
        return np.asarray(data.toarray() if hasattr(data, "toarray") else data, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{call}: what the model gets is not all numbers ({error}). Encode it as for estimator.predict."
        ) from error
