"""Rows of any form, explained chunk by chunk. Rows that the model does not take keep their inputs and have no scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._inputs.table_values import is_missing, number_of, word
from ..cafe import CAFE
from ..explanation import Explanation
from ._bins import Numbers
from ._signals import Signals, read_explanation

CHUNK = 4096  # rows explained at once, so that memory stays constant


@dataclass(frozen=True)
class Reader:
    """Reads rows for a monitor.

    ``features`` and ``categories`` are those of the reference; while one is fitted, they are not known yet.
    """

    cafe: CAFE
    options: Mapping[str, Any]
    features: tuple[str, ...] | None = None
    categories: Mapping[str, tuple[str, ...]] | None = None

    def read(self, rows: Any, labels: Any, call: str) -> Iterator[Signals]:
        """The watched numbers of rows, chunk by chunk; of an explanation, all at once."""
        if isinstance(rows, (Signals, Explanation)):
            if labels is not None:
                raise ValueError(f"{call}(..., labels=...): labels need the rows themselves. Pass rows and labels together.")
            yield rows if isinstance(rows, Signals) else read_explanation(rows, f"{call}(...)")
            return
        count = len(rows[0]) if isinstance(rows, tuple) else len(rows)
        known = None if labels is None else np.asarray(labels)
        if known is not None and len(known) != count:
            raise ValueError(f"{call}(..., labels=...): {len(known)} labels for {count} rows. Give one label per row.")
        for start in range(0, count, CHUNK):
            places = slice(start, start + CHUNK)
            yield self._read_part(take_rows(rows, places), None if known is None else known[places], call)

    def _read_part(self, rows: Any, labels: Any, call: str) -> Signals:
        rows = self._choose_columns(rows)
        good = self._find_good(rows)
        if good.all():
            signals = self._explain(rows, call)
        else:
            if self.features is None:
                bad = int((~good).sum())
                raise ValueError(
                    f"{call}(...): {bad} rows of the reference have values that the model does not take (missing, not finite, "
                    "or unknown categories). Drop these rows."
                )
            values = np.full((len(good), 4 * len(self.features) + 2), np.nan)
            values[:, : len(self.features)] = self.read_inputs(rows)
            if good.any():
                values[good] = self._explain(take_rows(rows, np.flatnonzero(good)), call).values
            signals = Signals(self.features, values)
        if labels is None:
            return signals
        told = np.full((len(good), 2), np.nan)
        if good.any():
            told[good] = self._compare_labels(take_rows(rows, np.flatnonzero(good)), labels[good], signals.output[good], call)
        return Signals(signals.features, signals.values, told)

    def _explain(self, rows: Any, call: str) -> Signals:
        return read_explanation(self.cafe.explain(rows, show_progress=False, **self.options), f"{call}(...)")

    def _choose_columns(self, rows: Any) -> Any:
        """A frame with the columns of the reference; a column that is lost has missing values."""
        if self.features is None or not hasattr(rows, "reindex") or hasattr(type(self.cafe.model), "from_raw"):
            return rows
        names = self.features if self.cafe.schema is None else self.cafe.schema.names
        own = list(map(str, rows.columns))
        if own == list(names) or not set(own) & set(names):
            return rows
        return rows.set_axis(own, axis=1).reindex(columns=list(names))

    def _find_good(self, rows: Any) -> np.ndarray:
        """Which rows the model takes, as far as values alone say so."""
        count, allowed = len(rows[0]) if isinstance(rows, tuple) else len(rows), self.cafe.allow_nan
        if isinstance(rows, tuple) or hasattr(type(self.cafe.model), "from_raw"):
            return np.ones(count, bool)
        if hasattr(rows, "columns"):
            if self.cafe.schema is not None:
                bad = self.cafe.schema.check(rows, allowed)
                return ~np.isin(np.arange(count), list(bad))
            values = self._read_numbers(rows)
        else:
            values = torch.as_tensor(rows).detach().cpu().double().reshape(count, -1).numpy()
        return np.all(np.isfinite(values) | (np.isnan(values) & allowed), axis=1)

    def _read_numbers(self, frame: Any) -> Numbers:
        return np.array([[number_of(cell)[0] for cell in frame[name]] for name in frame.columns], dtype=np.float64).T

    def read_inputs(self, rows: Any) -> Numbers:
        """Inputs of rows that need no scores: NaN for what is missing, infinity for a category never seen."""
        if not hasattr(rows, "columns"):
            values = torch.as_tensor(rows).detach().cpu().double().reshape(len(rows), -1).numpy()
            return np.where(np.isfinite(values), values, np.nan)
        columns = []
        for name in self.features or ():
            words = (self.categories or {}).get(name)
            cells = list(rows[name]) if name in rows.columns else [None] * len(rows)
            columns.append([_read_cell(cell, words) for cell in cells])
        return np.array(columns, dtype=np.float64).T

    def _compare_labels(self, rows: Any, labels: np.ndarray, output: Numbers, call: str) -> Numbers:
        """(rows, 2): whether the prediction is right, and whether the true class is the watched one."""
        names = list(self.cafe.class_names)
        known = np.array([names.index(str(one)) if str(one) in names else one for one in labels.tolist()])
        if has_single_output(self.cafe, take_rows(rows, slice(0, 1))):
            if not np.isin(known, (0, 1)).all():
                raise ValueError(f"{call}(..., labels=...): the model has one output, so labels are 0 or 1.")
            return np.stack([(output > 0) == known, known == 1], 1).astype(np.float64)
        e = self.cafe.explain(rows, conflict="net", show_progress=False)
        target = self.options.get("target")
        watched = names.index(target) if target in names else target
        return np.stack([e.target[:, 0].cpu().numpy() == known, known == watched], 1).astype(np.float64)


def has_single_output(cafe: CAFE, rows: Any) -> bool:
    """Whether the model has one number per row."""
    if cafe.explain(rows, conflict="net", show_progress=False).target.shape[1] == 0:
        return True
    try:
        cafe.explain(rows, target=1, conflict="net", show_progress=False)
    except ValueError:  # there is no second output
        return True
    return False


def take_rows(rows: Any, places: Any) -> Any:
    """Some rows of a tensor, an array, a frame, or a tuple of them."""
    if isinstance(rows, tuple):
        return tuple(take_rows(part, places) for part in rows)
    if isinstance(rows, Tensor) and isinstance(places, np.ndarray):
        return rows[torch.from_numpy(places)]
    return rows.iloc[places].reset_index(drop=True) if hasattr(rows, "iloc") else rows[places]


def _read_cell(cell: Any, words: tuple[str, ...] | None) -> float:
    if words is None:
        value = number_of(cell)[0]
        return value if np.isfinite(value) else np.nan
    if is_missing(cell):
        return np.nan
    return float(words.index(word(cell))) if word(cell) in words else np.inf
