"""The data as a table: pages, sorted and filtered on this side, and small distributions of its columns."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from .classes import chosen_threshold, class_of, classes_of, predictions, wrong_rows
from .requests import Refused, listing, mapping, number, whole, word
from .rows import Rows, plain
from .scoring import Scoring

PAGE, LONGEST = 50, 80  # rows of a page, letters of a cell
COLUMNS = 60  # that are shown
BINS, TOP = 20, 6  # bars of a distribution: of numbers, of categories
KEPT = 8  # orders and filters that are remembered
SCORES = ("conflict", "share", "chance", "confidence", "error", "output")


class Table:
    """Pages of rows; what was sorted or filtered once is kept for the next page."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.frame = rows.data.rows if rows.data.form == "table" else None
        self.names = rows.data.names if rows.data.form == "table" else ()
        self._kept: dict[Any, np.ndarray] = {}
        self._lock = threading.Lock()

    def page(self, asked: Any, scoring: Scoring) -> dict[str, Any]:
        """``asked``: page, by, down, text, ranges (column -> [low, high]) and only (column -> word)."""
        given = mapping(asked, "table")
        order = self.order(given, scoring)
        pages = max(-(-len(order) // PAGE), 1)
        page = min(whole(given.get("page", 0), "page", 10**9), pages - 1)
        places = order[page * PAGE : (page + 1) * PAGE].tolist()
        threshold = chosen_threshold(scoring.session, given.get("threshold"))
        return {
            "rows": [self._row(place, scoring, threshold) for place in places],
            "accuracy": self._accuracy(order, scoring, threshold),
            "page": page,
            "pages": pages,
            "found": len(order),
            "covered": scoring.done if given.get("by") in SCORES else len(self.rows),
        }

    def cohort(self, asked: Any, scoring: Scoring) -> np.ndarray | None:
        """The places of the rows that fit a filter, in the order of the file; None if all do."""
        if asked is None:
            return None
        wanted = self._select_rows(mapping(asked, "table"), scoring)
        return None if wanted is None else np.flatnonzero(wanted)

    def order(self, given: Mapping[str, Any], scoring: Scoring) -> np.ndarray:
        """The places of the rows that fit, in the order asked for."""
        by, down = given.get("by") or "", bool(given.get("down"))
        if by and by not in SCORES:
            word(by, self.names, "by")
        wanted = self._select_rows(given, scoring)
        places = self._sort_rows(by, down, scoring)
        return places if wanted is None else places[wanted[places]]

    def _sort_rows(self, by: str, down: bool, scoring: Scoring) -> np.ndarray:
        if not by:
            return np.arange(len(self.rows))
        if by in SCORES:
            known = scoring.columns.get(by, np.zeros(0))[: scoring.done]
            order = self._once((by, scoring.choice, scoring.done), lambda: rank_values(known, True))
        else:
            order = self._once((by,), lambda: rank_values(self._numbers(by), self._is_number(by)))
        return order[::-1] if down else order

    def _select_rows(self, given: Mapping[str, Any], scoring: Scoring) -> np.ndarray | None:
        text = given.get("text") or ""
        if not isinstance(text, str) or len(text) > 200:
            raise Refused("Search for at most 200 letters.", "text")
        ranges, only = mapping(given.get("ranges") or {}, "ranges"), mapping(given.get("only") or {}, "only")
        wanted: np.ndarray | None = None
        for name, ends in ranges.items():
            low, high = [*listing(ends, name, 2), None, None][:2]
            found = self._in_range(name, low, high, scoring)
            wanted = found if wanted is None else wanted & found
        for name, value in only.items():
            word(name, self.names, name)
            found = self._once(("only", name, str(value)), lambda n=name, v=value: self._texts(n) == str(v))
            wanted = found if wanted is None else wanted & found
        if given.get("wrong"):
            threshold = chosen_threshold(scoring.session, given.get("threshold"))
            found = wrong_rows(scoring, scoring.truth, threshold)
            wanted = found if wanted is None else wanted & found
        if text.strip():
            found = self._once(("text", text.strip().lower()), lambda: self._holding(text.strip().lower()))
            wanted = found if wanted is None else wanted & found
        return wanted

    def _in_range(self, name: str, low: Any, high: Any, scoring: Scoring) -> np.ndarray:
        values = scoring.columns.get(name) if name in SCORES else None
        if values is None:
            word(name, self.names, name)
            if not self._is_number(name):
                raise Refused("This column holds no numbers.", name)
            values = self._numbers(name)
        found = ~np.isnan(values)
        if low is not None:
            found &= values >= number(low, name)
        if high is not None:
            found &= values <= number(high, name)
        return found

    def _holding(self, text: str) -> np.ndarray:
        """Rows in which some cell holds the text; "column=word" looks at the start of one column."""
        if self.frame is None:
            rows = self.rows.data.rows if self.rows.data.form == "texts" else self.rows.data.labels or ()
            return np.array([text in str(one).lower() for one in rows] or [False] * len(self.rows))
        name, equal, value = text.partition("=")
        one = next((n for n in self.names if equal and n.lower() == name.strip()), None)
        if one is not None:
            return np.char.startswith(np.char.lower(self._texts(one)), value.strip())
        found = np.zeros(len(self.rows), dtype=bool)
        for name in self.names:
            found |= np.char.find(np.char.lower(self._texts(name)), text) >= 0
        return found

    def _texts(self, name: str) -> np.ndarray:
        """A column as words, by way of its distinct values."""
        assert self.frame is not None
        codes, values = self.frame[name].factorize()
        words = np.array([*(str(plain(value)) for value in values), ""])
        return words[codes]

    def _numbers(self, name: str) -> Any:
        assert self.frame is not None
        column = self.frame[name]
        return column.to_numpy(dtype=np.float64, na_value=np.nan) if self._is_number(name) else column

    def _is_number(self, name: str) -> bool:
        return self.rows.data.kinds.get(name) == "number"

    def _once(self, key: Any, make: Any) -> np.ndarray:
        with self._lock:
            if key not in self._kept:
                made = make()
                while len(self._kept) >= KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[key] = made
            return self._kept[key]

    def _row(self, place: int, scoring: Scoring, threshold: float | None) -> dict[str, Any]:
        scores = {name: plain(values[place]) for name, values in scoring.columns.items()}
        names, label = classes_of(scoring.session), self.rows.label
        predicted = int(predictions(scoring, threshold, [place])[0]) if names else -1
        own = None if label is None else plain(self.rows.data.rows[label].iat[place])
        true = class_of(own, names) if own is not None else -1
        return {
            "place": place,
            "name": self.rows.name(place),
            "cells": self._cells(place),
            "scores": scores,
            "predicted": names[predicted] if predicted >= 0 else None,
            "truth": names[true] if true >= 0 else own,
            "wrong": None if predicted < 0 or true < 0 else predicted != true,
        }

    def _accuracy(self, order: np.ndarray, scoring: Scoring, threshold: float | None) -> dict[str, int] | None:
        """How many of these rows are known to be right or wrong, and how many are wrong."""
        if not scoring.done or scoring.truth is None:
            return None
        predicted, truth = predictions(scoring, threshold, order), scoring.truth[order]
        known = (predicted >= 0) & (truth >= 0)
        return {"known": int(known.sum()), "wrong": int((known & (predicted != truth)).sum())}

    def _cells(self, place: int) -> list[Any]:
        data = self.rows.data
        if self.frame is not None:
            return [_short(plain(self.frame[name].iat[place])) for name in self.names[:COLUMNS]]
        return [_short(data.rows[place])] if data.form == "texts" else []

    def columns(self) -> list[dict[str, str]]:
        """The columns that are shown, and what they hold."""
        if self.frame is None:
            return [{"name": "text", "kind": "text"}] if self.rows.data.form == "texts" else []
        return [{"name": name, "kind": self.rows.data.kinds.get(name, "")} for name in self.names[:COLUMNS]]

    def distribution(self, name: str) -> dict[str, Any]:
        """Counts of a column: of equal ranges of numbers, or of the most frequent categories."""
        word(name, self.names, "column")
        assert self.frame is not None
        if self._is_number(name):
            values = self._numbers(name)
            finite = values[np.isfinite(values)]
            if not len(finite):
                return {"name": name, "counts": []}
            counts, edges = np.histogram(finite, BINS)
            return {"name": name, "counts": counts.tolist(), "low": float(edges[0]), "high": float(edges[-1])}
        counted = self.frame[name].value_counts()
        words = [_short(str(plain(one))) for one in counted.index[:TOP]]
        return {"name": name, "words": words, "counts": counted.iloc[:TOP].tolist(), "kinds": len(counted)}


def rank_values(values: Any, numbers: bool) -> np.ndarray:
    """The places by value, smallest first, those without one left out."""
    if numbers:
        order = np.argsort(values, kind="stable")
        return order[: len(values) - int(np.isnan(values).sum())]
    codes, _ = values.astype(str).where(values.notna()).factorize(sort=True)
    order = np.argsort(codes, kind="stable")
    return order[int((codes < 0).sum()) :]


def _short(value: Any) -> Any:
    return value[: LONGEST - 1] + "…" if isinstance(value, str) and len(value) > LONGEST else value
