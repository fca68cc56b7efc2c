"""Verdicts as Prometheus text, for the textfile collector of the node exporter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ._verdict import SEVERITIES, Verdict

Sample = tuple[dict[str, str], float]
HELP = {
    "severity": "0 none, 1 warn, 2 alert",
    "harm_unknown": "1 if something changed, the output kept its distribution, and there are no labels",
    "rows": "rows of the window",
    "unscored_rows": "rows that the model did not take",
    "output_moved": "Wasserstein distance of the output, in standard deviations of the reference",
    "statistic": "largest statistic of a family",
    "limit": "limit of a family; a statistic above it is an alarm",
    "accuracy": "share of right predictions, if labels are known",
}


def write_metrics(verdicts: Mapping[str, Verdict]) -> str:
    """Gauges of verdicts by the name of their window, in the text format of Prometheus.

    Args:
        verdicts: Name of a window -> its verdict.

    Returns:
        The text. Write it to a new file and rename it, so that no half of it is read.

    Example:
        >>> import torch
        >>> from cafexai import CAFE
        >>> from cafexai.monitor import Monitor
        >>> monitor = Monitor.fit(CAFE(torch.nn.Linear(2, 1)), torch.randn(400, 2))
        >>> print(write_metrics({"monday": monitor.check(torch.randn(200, 2))}).splitlines()[1])
        # TYPE cafexai_monitor_severity gauge
    """
    lines = []
    for name, meaning in HELP.items():
        samples = [sample for window, verdict in verdicts.items() for sample in _samples(name, window, verdict)]
        if samples:
            lines += [f"# HELP cafexai_monitor_{name} {meaning}", f"# TYPE cafexai_monitor_{name} gauge"]
            lines += [f"cafexai_monitor_{name}{{{_labels(labels)}}} {value!r}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _samples(name: str, window: str, verdict: Verdict) -> Iterator[Sample]:
    labels = {"window": window}
    if name == "severity":
        yield labels | {"kind": verdict.kind}, float(SEVERITIES.index(verdict.severity))
    elif name == "harm_unknown":
        yield labels, float(verdict.harm == "unknown")
    elif name == "rows":
        yield labels, float(verdict.rows)
    elif name == "unscored_rows":
        yield labels, float(verdict.rows - verdict.scored)
    elif name == "output_moved" and verdict.output is not None:
        yield labels, verdict.output.size
    elif name == "accuracy" and verdict.performance is not None:
        yield labels, verdict.performance.accuracy_now
    elif name in ("statistic", "limit"):
        for family, pair in verdict.statistics.items():
            yield labels | {"family": family}, float(pair[name == "limit"])


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
