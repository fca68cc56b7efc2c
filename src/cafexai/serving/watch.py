"""Rows that the server answers, counted for a monitor; a verdict for each full window."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._extras import needs
from ..monitor import Monitor, Signals, Verdict, write_metrics
from ..monitor._rows import Reader
from ..monitor._signals import KINDS, LAST

ROWS = 1000  # of a window, unless the monitor needs more
logger = logging.getLogger("cafexai.serve")


class Watch:
    """Counts answered rows; when so many are there, the window is judged and a new one begins.

    Args:
        monitor: The monitor, of the same explainer, target and baselines as the server.
        rows: Rows of a window.
    """

    def __init__(self, monitor: Monitor, rows: int = ROWS) -> None:
        self._monitor, self._rows, self._lock = monitor.copy(), max(rows, monitor.reference.minimum), threading.Lock()
        reference = monitor.reference
        self._reader = Reader(monitor.cafe, monitor.options, reference.features, reference.categories)
        self.verdict: Verdict | None = None

    def see(self, rows: Sequence[Any], results: Sequence[Mapping[str, Any]]) -> None:
        """Rows in the form of a request, each with its answer; those that ask for another output must not be among them."""
        signals = self._read(rows, results)
        if signals is None:
            return
        with self._lock:
            self._monitor.update(signals)
            if self._monitor.window.rows >= self._rows:
                self.verdict = self._monitor.check()
                self._monitor.reset()
                if self.verdict.kind != "none" or self.verdict.severity != "none":
                    logger.warning("monitor: %s: %s", self.verdict.severity, self.verdict)

    def text(self) -> str:
        """The last verdict as Prometheus text, and how many rows the open window has."""
        name = "cafexai_monitor_open_rows"
        head = f"# HELP {name} rows of the open window\n# TYPE {name} gauge\n{name} {self._monitor.window.rows}\n"
        return head + (write_metrics({"last": self.verdict}) if self.verdict is not None else "")

    def _read(self, rows: Sequence[Any], results: Sequence[Mapping[str, Any]]) -> Signals | None:
        features = self._monitor.reference.features
        known = [
            (row if isinstance(row, Mapping) else dict(zip(features, row, strict=False)), result)
            for row, result in zip(rows, results, strict=True)
            if "error" in result or len(result["features"]) == len(features)
        ]
        if not known:
            return None
        frame = needs("pandas", "serve").DataFrame([row for row, _ in known]).reindex(columns=list(features))
        scores = np.full((len(known), 3 * len(features) + len(LAST)), np.nan)
        for place, (_, result) in enumerate(known):
            if "error" not in result:
                by_name = {one["name"]: one for one in result["features"]}
                scores[place] = [*(by_name[name][kind] for kind in KINDS[1:] for name in features), *(result[x] for x in LAST)]
        return Signals(features, np.concatenate([self._reader.read_inputs(frame), scores], 1))
