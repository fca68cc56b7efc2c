"""The verdict on a window: what changed, whether it matters to the model, and how sure that is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KINDS = ("none", "new values", "missing or frozen column", "correlation shift", "covariate shift", "output shift")
SEVERITIES = ("none", "warn", "alert")


@dataclass(frozen=True)
class Moved:
    """One watched column that moved.

    Args:
        kind: "input", "positive", "negative", "net", "output", "conflict" or "s_conf".
        feature: The feature; "" for output, conflict and s_conf.
        distance: Kolmogorov-Smirnov, 0 to 1.
        p: Corrected for the number of columns.
        wasserstein: How far values moved on average, in the units of the column.
        psi: The population stability index.
    """

    kind: str
    feature: str
    distance: float
    p: float
    wasserstein: float
    psi: float


@dataclass(frozen=True)
class MovedPair:
    """Two inputs whose correlation changed.

    Args:
        first: A feature.
        second: Another feature.
        before: The correlation of ranks in the reference (Spearman's, from bins).
        now: The same in the window.
        p: Corrected for the number of pairs.
    """

    first: str
    second: str
    before: float
    now: float
    p: float


@dataclass(frozen=True)
class Effect:
    """How far values moved: Wasserstein's distance in standard deviations of the reference.

    Args:
        size: The estimate.
        low: The lower end of a 90 % bootstrap interval.
        high: Its upper end.
        spread: One standard deviation, in the units of the model's output; ``size * spread`` is the distance in these units.
        mean_before: The mean in the reference.
        mean_now: The mean in the window.
    """

    size: float
    low: float
    high: float
    spread: float
    mean_before: float
    mean_now: float

    @property
    def in_units(self) -> float:
        """The distance in the units of the output."""
        return self.size * self.spread

    def __str__(self) -> str:
        return f"{self.size:.2f} standard deviations ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class Histogram:
    """Shares of the reference and of the window in the bars of one column.

    Args:
        kind: As in ``Moved``.
        feature: The feature; "" for the output.
        edges: Edges of the first bars, of columns with many values; the first and the last bar take what lies beyond.
        labels: Values of the other bars, also "new" and "missing".
        before: Shares of the reference, one for each bar.
        now: Shares of the window.
    """

    kind: str
    feature: str
    edges: tuple[float, ...]
    labels: tuple[str, ...]
    before: tuple[float, ...]
    now: tuple[float, ...]


@dataclass(frozen=True)
class OddRow:
    """A row of the window to look at.

    Args:
        row: Its position in the window.
        size: How much more typical it is of the window than of the reference: logarithm of the ratio, mean of the columns
            that moved.
        output: The output; None if it could not be scored.
        values: The columns that say so, and their values.
    """

    row: int
    size: float
    output: float | None
    values: Mapping[str, str]


@dataclass(frozen=True)
class Performance:
    """How good predictions are, by labels: in the reference and in the window.

    Args:
        labelled: Rows of the window with a label.
        accuracy_before: Share of right predictions in the reference.
        accuracy_now: The same in the window.
        auc_before: Area under the ROC curve of the watched output, from its bins; None if one class has no rows.
        auc_now: The same in the window.
    """

    labelled: int
    accuracy_before: float
    accuracy_now: float
    auc_before: float | None
    auc_now: float | None


@dataclass(frozen=True)
class Verdict:
    """What a monitor says of a window; ``str(verdict)`` is one sentence.

    Args:
        kind: The kind of change.
        severity: "none", "warn" (something changed) or "alert" (and the output of the model moved, a column is lost, or
            labels show a loss).
        harm: Whether predictions are worse. "none": no change was found. "unknown": something changed, and there are no labels;
            the output keeps its distribution, which says little about single predictions. "likely": the output moved or a
            column is lost. "seen", "not seen": labels show a loss of accuracy, or none.
        sentence: The verdict in words.
        rows: Rows of the window.
        scored: Rows that the model took.
        alarms: Family -> statistic and limit, where the limit was exceeded.
        statistics: The same for all families.
        p: The smallest p-value of all columns and pairs, corrected for their number.
        moved: Columns that moved, by distance, the largest first.
        pairs: Pairs of inputs whose correlation changed.
        output: How far the output moved; None if no row could be scored.
        conflict: How far the conflict moved.
        columns: Feature -> "missing", "not finite", "frozen", "new values", "new missing" or "new infinite" (few rows, and none
            in the reference).
        missing: Feature -> share of rows without a finite value, for features in which it grew.
        ranking: nDCG of the order of features by mean |net|, 1 for the same order.
        performance: If labels are known.
        false_alarms: The share of windows without a change that raise an alarm.
        histograms: Of the output and of the features that moved, if there is an alarm.
    """

    kind: str
    severity: str
    harm: str
    sentence: str
    rows: int
    scored: int
    alarms: Mapping[str, tuple[float, float]]
    statistics: Mapping[str, tuple[float, float]]
    p: float
    moved: tuple[Moved, ...]
    pairs: tuple[MovedPair, ...]
    output: Effect | None
    conflict: Effect | None
    columns: Mapping[str, str]
    missing: Mapping[str, float]
    ranking: float
    performance: Performance | None
    false_alarms: float
    histograms: tuple[Histogram, ...] = ()

    def html(self, rows: Sequence[OddRow] = (), title: str = "Shift monitor") -> str:
        """A page: the sentence, what moved, and the rows to look at.

        Args:
            rows: What ``monitor.find_odd_rows`` gave.
            title: The title of the page.

        Returns:
            The page as HTML, one file that loads nothing.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> from cafexai.monitor import Monitor
            >>> monitor = Monitor.fit(CAFE(torch.nn.Linear(2, 1)), torch.randn(400, 2))
            >>> monitor.check(torch.randn(200, 2)).html().startswith("<!doctype html>")
            True
        """
        from ._page import write_page  # it needs this class

        return write_page({"": self}, {"": rows}, title)

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
