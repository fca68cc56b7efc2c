"""The verdict on a window: what changed, whether it matters to the model, and how sure that is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KINDS = ("none", "new values", "missing or frozen column", "correlation shift", "covariate shift", "output shift")
SEVERITIES = ("none", "warn", "alert")


@dataclass(frozen=True)
class Moved:
    """One watched column that moved."""

    kind: str  # "input", "positive", "negative", "net", "output" or "conflict"
    feature: str
    distance: float  # Kolmogorov-Smirnov, 0 to 1
    p: float  # corrected for the number of columns
    wasserstein: float  # how far values moved on average, in the units of the column
    psi: float  # population stability index


@dataclass(frozen=True)
class MovedPair:
    """Two inputs whose correlation changed."""

    first: str
    second: str
    before: float
    now: float
    p: float  # corrected for the number of pairs


@dataclass(frozen=True)
class Effect:
    """How far values moved, in standard deviations of the reference, with a 90 % bootstrap interval."""

    size: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.size:.2f} standard deviations ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class Verdict:
    """What a monitor says of a window.

    ``str(verdict)`` is one sentence. ``severity`` is "none", "warn" (something changed) or "alert" (and the output of the model
    moved, a column is lost, or labels show a loss).
    """

    kind: str
    severity: str
    sentence: str
    rows: int
    alarms: Mapping[str, tuple[float, float]]  # family -> statistic and limit, where the limit was exceeded
    statistics: Mapping[str, tuple[float, float]]  # the same for all families
    moved: tuple[Moved, ...]  # by distance, the largest first
    pairs: tuple[MovedPair, ...]
    output: Effect
    conflict: Effect
    columns: Mapping[str, str]  # feature -> "missing", "frozen" or "new values"
    ranking: float  # nDCG of the order of features by mean |net|, 1 for the same order
    accuracy: tuple[float, float] | None = None  # of the reference and of the window, if labels are known
    false_alarms: float = 0.0  # the share of windows without a change that raise an alarm

    def __str__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON.

        Returns:
            All fields by name.

        Example:
            >>> import json; json.dumps({"kind": "none"})
            '{"kind": "none"}'
        """
        return dataclasses.asdict(self)
