"""Rows of any form, explained chunk by chunk. Rows that the model does not take keep their inputs and have no scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._extras import needs
from .._inputs.table_values import is_missing, number_of, word
from ..cafe import CAFE
from ..explanation import Explanation
from ._bins import Numbers
from ._signals import LAST, Signals, read_explanation

CHUNK = 4096  # rows explained at once, so that memory stays constant
TRIED = 16  # rows explained again, to see that scores belong to this monitor
CLOSE = 1e-4  # allowed difference, as a share of the largest number


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
        if isinstance(rows, Signals):
            if labels is not None:
                raise ValueError(f"{call}(..., labels=...): give labels together with the rows, to monitor.read.")
            yield rows
            return
        count = len(rows[0]) if isinstance(rows, tuple) else len(rows)
        known = None if labels is None else np.asarray(labels)
        if known is not None and len(known) != count:
            raise ValueError(f"{call}(..., labels=...): {len(known)} labels for {count} rows. Give one label per row.")
        if isinstance(rows, Explanation):
            yield self._read_explained(rows, known, call)
            return
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
            values = np.full((len(good), 4 * len(self.features) + len(LAST)), np.nan)
            values[:, : len(self.features)] = self.read_inputs(rows)
            if good.any():
                values[good] = self._explain(take_rows(rows, np.flatnonzero(good)), call).values
            signals = Signals(self.features, values)
        if labels is None:
            return signals
        told = np.full((len(good), 2), np.nan)
        if good.any():
            told[good] = self.compare_labels(take_rows(rows, np.flatnonzero(good)), labels[good], signals.output[good], call)
        return Signals(signals.features, signals.values, told)

    def _read_explained(self, e: Explanation, labels: Any, call: str) -> Signals:
        """The watched numbers of an explanation; some of its rows are explained again and compared."""
        signals, rows = read_explanation(e, f"{call}(...)"), _rows_of(e, self.cafe)
        if self.features is not None and signals.features != self.features:
            raise ValueError(
                f"{call}(...): the explanation has other features than the reference: {', '.join(signals.features)}."
            )
        self.compare(signals, rows, f"{call}(explanation)")
        if labels is None or not len(signals):
            return signals
        return Signals(signals.features, signals.values, self.compare_labels(rows, labels, signals.output, call))

    def compare(self, signals: Signals, rows: Any, call: str) -> None:
        """Explain some of the rows again; refuse scores of another model, baseline or of other settings."""
        places = np.unique(np.linspace(0, len(signals) - 1, TRIED).astype(int)) if len(signals) else np.array([], int)
        if len(places) and not _is_close(signals.take(places), self._explain(take_rows(rows, places), call)):
            raise ValueError(
                f"{call}: {len(places)} rows were explained again, and their scores differ. These scores were made by another "
                "model, target, baseline or other settings than this monitor. Score with those of Monitor.fit."
            )

    def _explain(self, rows: Any, call: str) -> Signals:
        return read_explanation(self.cafe.explain(rows, show_progress=False, **self.options), f"{call}(...)")

    def explain_first(self, rows: Any) -> Explanation:
        """The first row, explained."""
        first = take_rows(rows, slice(0, 1))
        return self.cafe.explain(first, show_progress=False, **self.options)

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
        """Inputs of rows that need no scores: NaN is missing, infinity a new category, minus infinity a number not finite."""
        if not hasattr(rows, "columns"):
            values = torch.as_tensor(rows).detach().cpu().double().reshape(len(rows), -1).numpy()
            return np.where(np.isposinf(values), -np.inf, values)
        columns = []
        for name in self.features or ():
            words = (self.categories or {}).get(name)
            cells = list(rows[name]) if name in rows.columns else [None] * len(rows)
            columns.append([_read_cell(cell, words) for cell in cells])
        return np.array(columns, dtype=np.float64).T

    def compare_labels(self, rows: Any, labels: np.ndarray, output: Numbers, call: str) -> Numbers:
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
        return -np.inf if np.isinf(value) else value
    if is_missing(cell):
        return np.nan
    return float(words.index(word(cell))) if word(cell) in words else np.inf


def _rows_of(e: Explanation, cafe: CAFE) -> Any:
    """The rows of an explanation, as ``explain`` takes them."""
    if cafe.schema is None and not hasattr(type(cafe.model), "from_raw"):
        return e.inputs
    words, shown = e.features.categories, e.flat(e.shown).cpu().tolist()
    columns: dict[str, list[Any]] = {}
    for place, name in enumerate(e.names()):
        cells = [row[place] for row in shown]
        known = words.get(name)
        columns[name] = cells if known is None else [known[int(cell)] if np.isfinite(cell) else None for cell in cells]
    return needs("pandas", "tabular").DataFrame(columns)


def _is_close(one: Signals, two: Signals) -> bool:
    """Whether numbers are the same but for rounding."""
    count = len(one.features)
    if one.values.shape != two.values.shape:
        return False
    for part in (slice(0, count), slice(count, None)):
        first, second = one.values[:, part], two.values[:, part]
        size = float(np.abs(second[np.isfinite(second)]).max(initial=0.0))
        if not np.allclose(first, second, rtol=0.0, atol=CLOSE * size, equal_nan=True):
            return False
    return True
