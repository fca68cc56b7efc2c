"""What the server has done, as text that Prometheus reads. Several processes of one server count together."""

from __future__ import annotations

import json
import math
import os
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SIGNED = (-100.0, -30.0, -10.0, -3.0, -1.0, -0.3, -0.1, 0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
SIZES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
NAMED = 200  # features that are counted by name; more would be too many series
HISTOGRAMS: dict[str, tuple[str, tuple[float, ...]]] = {
    "cafexai_request_seconds": ("Time to answer a request.", SECONDS),
    "cafexai_output": ("Outputs explained.", SIGNED),
    "cafexai_conflict": ("Conflict of rows, in units of the output.", SIZES),
    "cafexai_conflict_share": ("Share of the influence of a row that is in conflict.", SHARES),
}
COUNTERS = {
    "cafexai_requests_total": "Requests by status.",
    "cafexai_rows_total": "Rows asked for.",
    "cafexai_rows_refused_total": "Rows that could not be explained.",
    "cafexai_batches_total": "Batches of rows explained together.",
    "cafexai_explain_seconds_total": "Time spent explaining.",
    "cafexai_strongest_feature_total": "Rows in which the net score of a feature is the largest, up or down.",
    "cafexai_reloads_total": "Times the model was loaded again, by result.",
}
LABELLED = ("cafexai_requests_total", "cafexai_strongest_feature_total", "cafexai_reloads_total")
GAUGES = {"cafexai_rows_waiting": "Rows that wait."}


class Counts:
    """Requests, rows, scores and seconds so far; with a folder, those of all processes that share it.

    Args:
        folder: Where each process keeps its counts for the others. None for a server of one process.
        place: Which of the processes this is. One that is started again goes on with the counts of its place.
    """

    def __init__(self, folder: str | None = None, place: int = 0) -> None:
        self._folder, self._file = folder, None if folder is None else Path(folder) / f"{place}.json"
        self._values: Counter[str] = Counter(_read(self._file) if self._file is not None else {})
        self._features: set[str] = set()
        self._changing, self._writing = threading.Lock(), threading.Lock()
        for name in COUNTERS:
            if name not in LABELLED:
                self._values.setdefault(name, 0)
        self.gauge("cafexai_rows_waiting", 0)

    def request(self, status: int, seconds: float) -> None:
        """One request is answered."""
        self.count("cafexai_requests_total", status=str(status))
        self._observe("cafexai_request_seconds", seconds)

    def batch(self, results: Sequence[Mapping[str, Any]], seconds: float) -> None:
        """One batch is explained."""
        self.count("cafexai_batches_total")
        self.count("cafexai_rows_total", len(results))
        self.count("cafexai_rows_refused_total", sum("error" in result for result in results))
        self.count("cafexai_explain_seconds_total", seconds)
        for result in results:
            for name in ("output", "conflict", "conflict_share"):
                if result.get(name) is not None:
                    self._observe(f"cafexai_{name}", result[name])
            if features := result.get("features"):
                strongest = max(features, key=lambda one: abs(one["net"]))["name"]
                known = strongest in self._features or len(self._features) < NAMED
                self._features |= {strongest} if known else set()
                self.count("cafexai_strongest_feature_total", feature=strongest if known else "(others)")

    def count(self, name: str, more: float = 1, **labels: str) -> None:
        """More of something."""
        with self._changing:
            self._values[_series(name, labels)] += more  # type: ignore[assignment]

    def gauge(self, name: str, value: float) -> None:
        """How much there is of something now."""
        with self._changing:
            self._values[name] = value  # type: ignore[assignment]

    def _observe(self, name: str, value: float) -> None:
        with self._changing:
            for bound in HISTOGRAMS[name][1]:
                self._values[_series(f"{name}_bucket", {"le": f"{bound:g}"})] += value <= bound
            self._values[_series(f"{name}_bucket", {"le": "+Inf"})] += 1
            self._values[f"{name}_sum"] += value  # type: ignore[assignment]
            self._values[f"{name}_count"] += 1

    def keep(self) -> None:
        """Write the counts where the other processes read them."""
        if self._file is None:
            return
        with self._writing:
            with self._changing:
                values = dict(self._values)
            draft = self._file.with_suffix(".new")  # always the same: a write that fails leaves one file at most
            draft.write_text(json.dumps(values))
            os.replace(draft, self._file)

    def text(self, info: Mapping[str, str]) -> str:
        """All counts; ``info`` says which model answers."""
        self.keep()
        with self._changing:
            values = self._values.copy()
        if self._folder is not None:
            values = Counter()
            for file in sorted(Path(self._folder).glob("*.json")):
                values.update(_read(file))
        lines = [
            "# HELP cafexai_model_info Which model answers: fingerprints.",
            "# TYPE cafexai_model_info gauge",
            f"{_series('cafexai_model_info', info)} 1",
        ]
        for names, kind in ((COUNTERS, "counter"), (GAUGES, "gauge")):
            for name, meaning in names.items():
                own = sorted(series for series in values if series.partition("{")[0] == name)
                lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
                lines += [f"{series} {_number(values[series])}" for series in own]
        for name, (meaning, bounds) in HISTOGRAMS.items():
            if f"{name}_count" in values:
                buckets = [_series(f"{name}_bucket", {"le": bound}) for bound in (*(f"{one:g}" for one in bounds), "+Inf")]
                lines += [f"# HELP {name} {meaning}", f"# TYPE {name} histogram"]
                lines += [f"{series} {_number(values[series])}" for series in (*buckets, f"{name}_sum", f"{name}_count")]
        return "\n".join(lines) + "\n"


def _series(name: str, labels: Mapping[str, str]) -> str:
    told = ",".join(f'{key}="{_escape(value)}"' for key, value in labels.items())
    return f"{name}{{{told}}}" if told else name


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if not math.isfinite(value):  # as Prometheus calls them
        return "NaN" if math.isnan(value) else f"{'+' if value > 0 else '-'}Inf"
    return str(int(value)) if value == int(value) else f"{value:.6f}"


def _read(file: Path) -> dict[str, float]:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):  # not there yet
        return {}
    return dict(found)
