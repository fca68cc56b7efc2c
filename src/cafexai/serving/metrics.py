"""What the server has done, as text that Prometheus reads."""

from __future__ import annotations

from collections import Counter

BOUNDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # seconds


class Counts:
    """Requests, rows and seconds so far."""

    def __init__(self) -> None:
        self._requests: Counter[int] = Counter()
        self._within: Counter[float] = Counter()
        self._seconds = self._busy = 0.0
        self._answered = self._rows = self._refused = self._batches = 0

    def request(self, status: int, seconds: float) -> None:
        """One request is answered."""
        self._requests[status] += 1
        self._answered += 1
        self._seconds += seconds
        for bound in BOUNDS:
            self._within[bound] += seconds <= bound

    def batch(self, rows: int, refused: int, seconds: float) -> None:
        """One batch is explained."""
        self._batches += 1
        self._rows += rows
        self._refused += refused
        self._busy += seconds

    def text(self, waiting: int) -> str:
        """All counts."""
        lines = ["# HELP cafexai_requests_total Requests by status.", "# TYPE cafexai_requests_total counter"]
        lines += [f'cafexai_requests_total{{status="{status}"}} {count}' for status, count in sorted(self._requests.items())]
        name = "cafexai_request_seconds"
        lines += [f"# HELP {name} Time to answer a request.", f"# TYPE {name} histogram"]
        lines += [f'{name}_bucket{{le="{bound:g}"}} {self._within[bound]}' for bound in BOUNDS]
        lines += [f'{name}_bucket{{le="+Inf"}} {self._answered}', f"{name}_sum {self._seconds:.6f}"]
        lines += [f"{name}_count {self._answered}"]
        for name, kind, meaning, value in (
            ("cafexai_rows_total", "counter", "Rows asked for.", self._rows),
            ("cafexai_rows_refused_total", "counter", "Rows that could not be explained.", self._refused),
            ("cafexai_batches_total", "counter", "Batches of rows explained together.", self._batches),
            ("cafexai_explain_seconds_total", "counter", "Time spent explaining.", f"{self._busy:.6f}"),
            ("cafexai_rows_waiting", "gauge", "Rows that wait.", waiting),
        ):
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", f"{name} {value}"]
        return "\n".join(lines) + "\n"
