"""The scores of all rows, made in the background: what the table sorts by, and what the overview shows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ..explanation import Explanation
from ..reporting.summed import by_region
from .requests import Choice, Refused
from .rows import Rows
from .session import Session

STEP = 0.04  # seconds that one step takes, so that a slider is never waited for longer
LARGEST = 20_000  # rows of a step
SAMPLE = 400  # rows whose single scores are kept
MOST_WORDS = 5000


class Scoring:
    """Scores of the rows of one file under one choice; arrays are filled from row 0 on."""

    def __init__(self, session: Session, rows: Rows, choice: Choice) -> None:
        self.session, self.rows, self.choice = session, rows, choice
        total = len(rows)
        self.done, self.total, self.seconds, self.trouble = 0, total, 0.0, ""
        self.columns = {name: np.full(total, np.nan, dtype=np.float32) for name in ("output", "conflict", "share")}
        self.predicted = np.full(total, -1, dtype=np.int32)
        self.names: tuple[str, ...] = ()
        self.categories: dict[str, tuple[str, ...]] = {}
        self.up: Any = None  # sums of scores over the rows, one per feature
        self.down: Any = None
        self.sizes: Any = None  # sums of |net|
        self.by_word: dict[str, list[float]] = {}  # for texts: how often, up, down, |net|
        self.kept: list[tuple[int, np.ndarray, np.ndarray | None]] = []  # place, net scores and values of some rows
        self.sample = set(np.random.default_rng(0).choice(total, min(SAMPLE, total), replace=False).tolist())
        self.kind = "table"

    def run(self) -> Iterator[None]:
        """Step by step; each is short enough not to delay a slider."""
        size, least = 1, STEP
        while self.done < self.total:
            begin = time.perf_counter()
            places = range(self.done, min(self.done + size, self.total))
            try:
                self._score(places)
            except Refused as error:
                self.trouble = str(error)
                return
            except Exception as error:  # of the model, at some row
                self.trouble = f"{type(error).__name__}: {error}"
                return
            took = time.perf_counter() - begin
            self.seconds += took
            self.done = places.stop
            least = max(STEP, 2 * took) if places.start == 0 else least  # what a call takes whatever its rows
            size = min(2 * size, LARGEST) if took < least else max(size // 2, 1) if took > 3 * least else size
            yield

    def _score(self, places: range) -> None:
        e = self.session.explain(places, self.choice, rows=self.rows)
        where = slice(places.start, places.stop)
        self.columns["output"][where] = e.output.cpu().numpy()
        self.columns["conflict"][where] = e.conflict.cpu().numpy()
        self.columns["share"][where] = e.conflict_share.cpu().numpy()
        outputs = self.session.outputs(self.rows.inputs(places)[0])
        likely = self.session.probabilities(outputs, e.meta.final)
        if outputs.ndim == 2 and outputs.shape[1] > 1:
            self.predicted[where] = outputs.argmax(1).numpy()
        if likely is not None:
            best = likely.max(1).values if likely.ndim == 2 and likely.shape[1] > 1 else _sure(likely.reshape(len(likely)))
            self._column("confidence")[where] = best.numpy()
        wrong = _error(self.rows, places, outputs, likely, self.session.output_names)
        if wrong is not None:
            self._column("error")[where] = wrong
        self._sum(e, places)

    def _column(self, name: str) -> np.ndarray:
        if name not in self.columns:
            self.columns[name] = np.full(self.total, np.nan, dtype=np.float32)
        return self.columns[name]

    def _sum(self, e: Explanation, places: range) -> None:
        self.kind = e.kind
        if e.kind == "text":
            self._words(e)
            return
        part = by_region(e) if e.kind == "image" else e
        up, down = (part.flat(one).double().cpu() for one in (part.positive, part.negative))
        self.names, self.categories = part.names(), dict(part.categories)
        self.up = up.sum(0).numpy() if self.up is None else self.up + up.sum(0).numpy()
        self.down = down.sum(0).numpy() if self.down is None else self.down + down.sum(0).numpy()
        sizes = (up - down).abs().sum(0).numpy()
        self.sizes = sizes if self.sizes is None else self.sizes + sizes
        wanted = [place for place in places if place in self.sample]
        if wanted:
            own = torch.tensor([place - places.start for place in wanted])
            values = (
                None if part.grouped and part.features.display is None else part.flat(part.shown).double().cpu()[own].numpy()
            )
            nets = (up - down)[own].float().numpy()
            self.kept += [(p, nets[i], None if values is None else values[i]) for i, p in enumerate(wanted)]

    def _words(self, e: Explanation) -> None:
        up, down = (e.flat(one).double().cpu().tolist() for one in (e.positive, e.negative))
        for row in range(len(e)):
            for place, name in enumerate(e.names(row)):
                if name and (name in self.by_word or len(self.by_word) < MOST_WORDS):
                    entry = self.by_word.setdefault(name, [0, 0.0, 0.0, 0.0])
                    entry[0] += 1
                    entry[1] += up[row][place]
                    entry[2] += down[row][place]
                    entry[3] += abs(up[row][place] - down[row][place])

    def told(self) -> dict[str, Any]:
        """How far it is."""
        rate = self.done / self.seconds if self.seconds else 0.0
        left = (self.total - self.done) / rate if rate else None
        return {"done": self.done, "total": self.total, "left": left, "trouble": self.trouble, "choice": vars(self.choice)}


def _sure(likely: Any) -> Any:
    """The probability of the likelier of two classes."""
    return torch.maximum(likely, 1 - likely)


def _error(rows: Rows, places: range, outputs: Any, likely: Any, names: list[str]) -> np.ndarray | None:
    """How wrong the model is about each row, if labels are known: 1 - probability of the true class, or the distance."""
    if rows.label is None:
        return None
    labels = rows.data.rows[rows.label].iloc[places.start : places.stop]
    if outputs.ndim == 2 and outputs.shape[1] > 1:
        return _of_classes(labels, outputs, likely, names)
    single = outputs.reshape(len(places)) if likely is None else likely.reshape(len(places))
    truth = _as_numbers(labels)
    return None if truth is None else np.abs(single.numpy() - truth)


def _of_classes(labels: Any, outputs: Any, likely: Any, names: list[str]) -> np.ndarray | None:
    places = {name: i for i, name in enumerate(names)}
    codes = np.array([places.get(str(label), -1) for label in labels])
    if (codes < 0).all():
        numbers = _as_numbers(labels)
        if numbers is None:
            return None
        codes = np.where((numbers >= 0) & (numbers < outputs.shape[1]), np.nan_to_num(numbers, nan=-1), -1).astype(int)
    if likely is None:
        wrong = (outputs.argmax(1).numpy() != codes).astype(np.float32)
    else:
        wrong = 1 - likely.numpy()[np.arange(len(codes)), np.clip(codes, 0, None)]
    return np.where(codes < 0, np.nan, wrong)


def _as_numbers(labels: Any) -> np.ndarray | None:
    try:
        return np.asarray(labels, dtype=np.float64)
    except (TypeError, ValueError):
        return None
