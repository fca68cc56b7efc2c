"""The scores of all rows, made in the background: what the table sorts by, and what the overview shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from .._engine.pauses import timed_stretches
from ..explanation import Explanation
from ..reporting.summed import by_region
from .classes import errors_of, truth_of
from .requests import Choice, Refused
from .rows import Rows
from .session import Session

STRETCH = 0.04  # seconds of a step without a pause, so that a slider is not waited for longer
STEP = 1.0  # seconds of a step that has pauses
LARGEST = 20_000  # rows of a step
SAMPLE = 400  # rows whose single scores are kept
MOST_WORDS = 5000


@dataclass
class Sums:
    """Sums of the scores of rows that are explained for one output; scores of different outputs are never added."""

    rows: int = 0
    up: Any = 0.0  # one number per feature
    down: Any = 0.0
    sizes: Any = 0.0  # of |net|
    by_word: dict[str, list[float]] = field(default_factory=dict)  # for texts: how often, up, down, |net|


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
        self.sums: dict[int, Sums] = {}  # by the explained output
        self.explained = np.full(total, -1, dtype=np.int32)  # the explained output of each row
        self.kept: list[tuple[int, int, np.ndarray, np.ndarray | None]] = []  # place, output, nets and values of some rows
        self.sample = set(np.random.default_rng(0).choice(total, min(SAMPLE, total), replace=False).tolist())
        self.kind = "table"

    @cached_property
    def truth(self) -> np.ndarray | None:
        """The true class of each row; None without labels of classes."""
        return truth_of(self.session, self.rows)

    def run(self) -> Iterator[None]:
        """Step by step; each is short enough not to delay a slider, or pauses as often."""
        size, stretch, step = 1, STRETCH, STEP
        while self.done < self.total:
            places = range(self.done, min(self.done + size, self.total))
            try:
                with timed_stretches() as took:
                    self._score(places)
            except Refused as error:
                self.trouble = str(error)
                return
            except Exception as error:  # of the model, at some row
                self.trouble = f"{type(error).__name__}: {error}"
                return
            self.seconds += took.total
            self.done = places.stop
            if places.start == 0:  # what a call takes whatever its rows
                stretch, step = max(STRETCH, 2 * took.longest), max(STEP, 2 * took.total)
            used = max(took.longest / stretch, took.total / step)
            size = min(2 * size, LARGEST) if used < 1 else max(size // 2, 1) if used > 3 else size
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
        if likely is not None and likely.numel() == len(likely):
            self._column("chance")[where] = likely.reshape(-1).numpy()
        if self.rows.label is not None:
            labels = self.rows.data.rows[self.rows.label].iloc[where]
            wrong = errors_of(outputs, likely, None if self.truth is None else self.truth[where], labels)
            if wrong is not None:
                self._column("error")[where] = wrong
        self._sum(e, places)

    def _column(self, name: str) -> np.ndarray:
        if name not in self.columns:
            self.columns[name] = np.full(self.total, np.nan, dtype=np.float32)
        return self.columns[name]

    def _sum(self, e: Explanation, places: Sequence[int]) -> None:
        self.kind = e.kind
        targets = e.target[:, 0].cpu() if e.target.shape[1] else torch.zeros(len(e), dtype=torch.long)
        self.explained[np.asarray(places)] = targets.numpy()
        for output in targets.unique().tolist():
            self.sums.setdefault(output, Sums()).rows += int((targets == output).sum())
        if e.kind == "text":
            self._words(e, targets.tolist())
            return
        part = by_region(e) if e.kind == "image" else e
        up, down = (part.flat(one).double().cpu() for one in (part.positive, part.negative))
        self.names, self.categories = part.names(), dict(part.categories)
        for output in targets.unique().tolist():
            sums, own = self.sums[output], targets == output
            sums.up = sums.up + up[own].sum(0).numpy()
            sums.down = sums.down + down[own].sum(0).numpy()
            sums.sizes = sums.sizes + (up - down)[own].abs().sum(0).numpy()
        own_places = [i for i, place in enumerate(places) if place in self.sample]
        wanted = [places[i] for i in own_places]
        if wanted:
            chosen = torch.tensor(own_places)
            values = (
                None if part.grouped and part.features.display is None else part.flat(part.shown).double().cpu()[chosen].numpy()
            )
            nets = (up - down)[chosen].float().numpy()
            outputs = targets[chosen].tolist()
            self.kept += [(p, outputs[i], nets[i], None if values is None else values[i]) for i, p in enumerate(wanted)]

    def _words(self, e: Explanation, targets: list[int]) -> None:
        up, down = (e.flat(one).double().cpu().tolist() for one in (e.positive, e.negative))
        for row, output in enumerate(targets):
            words = self.sums[output].by_word
            for place, name in enumerate(e.names(row)):
                if name and (name in words or len(words) < MOST_WORDS):
                    entry = words.setdefault(name, [0, 0.0, 0.0, 0.0])
                    entry[0] += 1
                    entry[1] += up[row][place]
                    entry[2] += down[row][place]
                    entry[3] += abs(up[row][place] - down[row][place])

    def as_json(self) -> dict[str, Any]:
        """How far it is."""
        rate = self.done / self.seconds if self.seconds else 0.0
        left = (self.total - self.done) / rate if rate else None
        return {"done": self.done, "total": self.total, "left": left, "trouble": self.trouble, "choice": vars(self.choice)}


def _sure(likely: Any) -> Any:
    """The probability of the likelier of two classes."""
    return torch.maximum(likely, 1 - likely)


def score_cohort(whole: Scoring, places: np.ndarray) -> Scoring:
    """The scores of some rows, from a sample of them that is explained now."""
    chosen = places
    if len(places) > SAMPLE:
        chosen = np.sort(np.random.default_rng(0).choice(places, SAMPLE, replace=False))
    made = Scoring(whole.session, whole.rows, whole.choice)
    made.sample = set(chosen.tolist())
    made.total, made.done = len(places), len(chosen)
    explained = whole.session.explain(chosen.tolist(), whole.choice, rows=whole.rows)
    made._sum(explained, chosen.tolist())
    made.columns["share"] = explained.conflict_share.cpu().numpy()
    made.explained = made.explained[chosen]
    return made
