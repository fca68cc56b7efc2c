"""How far a run is, and what it was like."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._manifest import Manifest
    from ._part import Done
    from ._source import Source, Unit


@dataclass(frozen=True)
class Summary:
    """A finished run.

    Args:
        rows: Rows with scores.
        refused: Rows that were refused.
        parts: Files of results.
        mean_conflict: The mean conflict of the rows.
        seconds: The time of this start.
        scored_now: Rows of this start.
        reading: Seconds of work, which overlap; scoring and writing are sums over the workers.
        scoring: See ``reading``.
        writing: See ``reading``.
        fingerprint: Of the model, the schema, the baseline and the settings.
    """

    rows: int
    refused: int
    parts: int
    mean_conflict: float
    seconds: float
    scored_now: int
    reading: float
    scoring: float
    writing: float
    fingerprint: Mapping[str, str]

    @property
    def slowest(self) -> str:
        """The stage that took most work."""
        stages = {"reading": self.reading, "scoring": self.scoring, "writing": self.writing}
        return max(stages, key=lambda name: stages[name])

    def __str__(self) -> str:
        speed = f", {self.scored_now / self.seconds:,.0f} rows/s" if self.scored_now and self.seconds else ""
        earlier = self.rows + self.refused - self.scored_now
        before = f" ({earlier:,} of them earlier)" if earlier else ""
        return (
            f"{self.rows:,} rows scored, {self.refused:,} refused{before}, in {self.parts:,} parts; {self.seconds:.1f} s{speed}"
            f"; mean conflict {self.mean_conflict:.4g}; slowest stage: {self.slowest}."
        )


class Progress:
    """Counts rows while they are scored, and says so now and then."""

    def __init__(self, source: Source, say: Callable[[str], object] | None) -> None:
        self._source, self._say = source, say
        self._begin = time.monotonic()
        self.rows = self.refused = self.now = 0
        self.reading = self.scoring = self.writing = 0.0

    def resume(self, manifest: Manifest) -> None:
        """What earlier starts have done."""
        self.rows = sum(unit["rows"] for unit in manifest.units.values())
        self.refused = sum(unit["refused"] for unit in manifest.units.values())

    def done(self, unit: Unit, result: Done) -> None:
        """One more unit."""
        self.rows += result.rows
        self.refused += result.refused
        self.now += unit.rows
        self.scoring += result.scoring
        self.writing += result.writing
        if self._say is not None:
            self._say(self.line())

    def line(self) -> str:
        """Rows, rows per second and the time that is left."""
        total, seen = self._source.rows, self.rows + self.refused
        speed = self.now / max(time.monotonic() - self._begin, 1e-9)
        of = "" if total is None else f" of {total:,}"
        left = "" if total is None or not speed else f", {span((total - seen) / speed)} left"
        bad = f", {self.refused:,} refused" if self.refused else ""
        return f"{seen:,}{of} rows{bad}, {speed:,.0f} rows/s{left}"

    def summary(self, manifest: Manifest, fingerprint: Mapping[str, str]) -> Summary:
        """All of it."""
        units = manifest.units.values()
        conflict = sum(unit["conflict"] for unit in units) / max(self.rows, 1)
        seconds = time.monotonic() - self._begin
        return Summary(
            self.rows,
            self.refused,
            len(units),
            conflict,
            seconds,
            self.now,
            self.reading,
            self.scoring,
            self.writing,
            fingerprint,
        )


def span(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
