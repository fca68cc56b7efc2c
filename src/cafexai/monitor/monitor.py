"""Monitor: what changed in new rows, and whether it matters to the model."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ..batch._fingerprint import fingerprint
from ..cafe import CAFE
from ._baselines import settle_baselines
from ._batch_files import read_parts
from ._judge import judge
from ._odd_rows import find_odd_rows
from ._reference import Reference, family_statistics, fit_reference
from ._rows import Reader
from ._scored import find_categories, read_scored
from ._signals import Signals
from ._store import fingerprint_fit, load_monitor, save_monitor
from ._verdict import OddRow, Verdict
from ._window import Window, summarise

SMALLEST = 200  # rows of a reference


class Monitor:
    """Compares new rows with a reference: inputs, scores, conflict and output of a model.

    Bins, limits and the output to watch are fixed by ``fit``. ``update`` adds rows to the open window, in constant memory;
    ``check`` judges the open window, or rows that are passed to it. ``Monitor.fit`` makes a monitor.

    Args:
        cafe: The explainer.
        reference: Bins and limits.
        options: Options of ``CAFE.explain``.
        window: The open window; None begins one.

    Example:
        >>> cafe = CAFE(torch.nn.Linear(2, 1))
        >>> monitor = Monitor.fit(cafe, torch.randn(400, 2))
        >>> monitor.check(torch.randn(200, 2)).rows
        200
    """

    def __init__(self, cafe: CAFE, reference: Reference, options: dict[str, Any], window: Window | None = None) -> None:
        self.cafe, self.reference, self.options = cafe, reference, options
        self.window = Window.empty(len(reference.features)) if window is None else window

    @classmethod
    def fit(
        cls,
        cafe: CAFE,
        reference: Any,
        labels: Any = None,
        *,
        target: Any = None,
        baselines: Any = None,
        false_alarms: float = 0.01,
        chunk_rows: int = 500,
        seed: int = 0,
        scored: bool = False,
    ) -> Monitor:
        """A monitor for a model, from rows of a time when all was well.

        Args:
            cafe: The explainer of the model; its variant and c make the scores.
            reference: Rows as ``cafe.explain`` takes them, or an explanation of such rows.
            labels: The true classes of these rows, if known: then ``check`` compares accuracies.
            target: The output to watch, as for ``explain``. A model with several outputs needs it.
            baselines: What rows are compared with, as for ``explain``. "mean", "median" and "mode" become the row that they
                stand for in the background, so that a saved monitor needs no background.
            false_alarms: The share of windows without any change that may raise an alarm.
            chunk_rows: Rows of the chunks of the reference that the limits come from; at most a fourth of the reference.
            seed: Of the draw of these chunks.
            scored: The reference is what ``batch`` wrote, with all scores and the inputs (``keep=``).

        Returns:
            The monitor, with an empty window.

        Raises:
            ValueError: There are too few rows, several outputs and no target, or an argument is not allowed.

        Example:
            >>> Monitor.fit(CAFE(torch.nn.Linear(2, 1)), torch.randn(400, 2)).reference.window.rows
            400
        """
        if not 0 < false_alarms < 1:
            raise ValueError(f"Monitor.fit(..., false_alarms={false_alarms}): give a share between 0 and 1, such as 0.01.")
        options = {"target": target, "baselines": settle_baselines(cafe, baselines)}
        reader = Reader(cafe, options)
        if scored:
            kept = reference["output"].notna().to_numpy() if "output" in reference.columns else slice(None)
            reference, labels = reference[kept], None if labels is None else np.asarray(labels)[kept]
            parts = [read_scored(reference, labels, reader, "Monitor.fit")]
            reference = reference[list(parts[0].features)]
        else:
            parts = list(reader.read(reference, labels, "Monitor.fit"))
        rows = sum(map(len, parts))
        if rows < SMALLEST:
            raise ValueError(
                f"Monitor.fit(...): the reference has {rows} rows. Give at least {SMALLEST}; thousands are better."
            )
        signals = Signals.join(parts)
        if not np.isfinite(signals.values[:, len(signals.features) :]).all():
            raise ValueError("Monitor.fit(...): some scores or outputs of the reference are not finite.")
        words = find_categories(reader, reference)
        return cls(cafe, fit_reference(signals, words, false_alarms, min(chunk_rows, rows // 4), seed), options)

    def read(self, rows: Any, labels: Any = None) -> Signals:
        """The watched numbers of rows: inputs, scores, output and conflict.

        ``update``, ``check`` and ``statistics`` take them instead of rows, so that nothing is explained twice.

        Args:
            rows: Rows as ``cafe.explain`` takes them, or an explanation of them.
            labels: Their true classes, if known.

        Returns:
            The numbers, one line per row.

        Raises:
            ValueError: The rows have other features than the reference.

        Example:
            >>> monitor = Monitor.fit(CAFE(torch.nn.Linear(2, 1)), torch.randn(400, 2))
            >>> monitor.read(torch.randn(50, 2)).values.shape
            (50, 11)
        """
        return Signals.join(list(self._reader.read(rows, labels, "monitor.read")))

    def read_scores(self, frame: Any, labels: Any = None) -> Signals:
        """The watched numbers of rows that ``batch`` scored, without explaining them again.

        Sixteen rows are explained again and compared, so that scores of another model or baseline are refused. Rows without
        scores, which ``batch`` keeps apart, count for the inputs.

        Args:
            frame: What ``pandas.read_parquet`` reads of a folder of ``batch``, with all scores and the inputs (``keep=``).
            labels: The true classes of these rows, if known.

        Returns:
            The numbers, one line per row, for ``update``, ``check`` and ``statistics``.

        Raises:
            ValueError: Columns are missing, or the scores were made by another model, target, baseline or other settings.

        Example:
            >>> monitor.check(monitor.read_scores(pandas.read_parquet("scores")))  # doctest: +SKIP
        """
        return read_scored(frame, labels, self._reader, "monitor.read_scores")

    def update_batch(self, folder: str | os.PathLike[str]) -> Monitor:
        """Add the output of ``batch`` to the open window, file by file, with the rows that were refused.

        Args:
            folder: A folder of this machine that ``batch`` wrote, with all scores and the inputs (``keep=``).

        Returns:
            This monitor.

        Raises:
            DataProblem: The files cannot be read.
            ValueError: Columns are missing, or the scores were made by another model, target, baseline or other settings.

        Example:
            >>> monitor.update_batch("scores").check()  # doctest: +SKIP
        """
        for frame in read_parts(folder):
            if len(frame):
                self.update(read_scored(frame, None, self._reader, "monitor.update_batch"))
        return self

    def statistics(self, rows: Any) -> dict[str, float]:
        """The largest statistic of each family: what ``check`` compares with its limits, for windows of any size.

        Args:
            rows: Rows, an explanation of them, or what ``read`` gave.

        Returns:
            Family -> statistic.

        Example:
            >>> monitor = Monitor.fit(CAFE(torch.nn.Linear(2, 1)), torch.randn(400, 2))
            >>> list(monitor.statistics(torch.randn(50, 2)))
            ['inputs', 'new values', 'correlations', 'scores', 'output', 'conflict', 's_conf']
        """
        return family_statistics(self.reference, self._summarise(rows, None, "monitor.statistics"))

    def update(self, rows: Any, labels: Any = None) -> Monitor:
        """Add rows to the open window. Only counts and sums are kept.

        Args:
            rows: Rows as ``cafe.explain`` takes them, or an explanation of them.
            labels: Their true classes, if known.

        Returns:
            This monitor.

        Raises:
            ValueError: The rows have other features than the reference.

        Example:
            >>> monitor = Monitor.fit(CAFE(torch.nn.Linear(2, 1)), torch.randn(400, 2))
            >>> monitor.update(torch.randn(50, 2)).window.rows
            50
        """
        self.window = self.window + self._summarise(rows, labels, "monitor.update")
        return self

    def reset(self) -> Monitor:
        """Begin a new window.

        Returns:
            This monitor.

        Example:
            >>> monitor = Monitor.fit(CAFE(torch.nn.Linear(2, 1)), torch.randn(400, 2))
            >>> monitor.update(torch.randn(50, 2)).reset().window.rows
            0
        """
        self.window = Window.empty(len(self.reference.features))
        return self

    def check(self, rows: Any = None, labels: Any = None) -> Verdict:
        """Judge a window.

        Args:
            rows: The rows of the window; None judges the open window, which ``update`` filled.
            labels: The true classes of these rows, if known.

        Returns:
            The verdict; ``str(verdict)`` is one sentence.

        Raises:
            ValueError: The window has too few rows for a verdict.

        Example:
            >>> monitor = Monitor.fit(CAFE(torch.nn.Linear(2, 1)), torch.randn(400, 2))
            >>> monitor.check(torch.randn(200, 2) + 3).kind
            'covariate shift'
        """
        window = self.window if rows is None else self._summarise(rows, labels, "monitor.check")
        if window.rows < self.reference.minimum:
            raise ValueError(
                f"monitor.check(...): the window has {window.rows} rows. It needs at least {self.reference.minimum} to show a "
                "clear change of one column beside chance. Collect more rows with monitor.update."
            )
        return judge(self.reference, window)

    def find_odd_rows(self, rows: Any, count: int = 10) -> tuple[OddRow, ...]:
        """The rows of a window to look at first: those most typical of what is new in it.

        Args:
            rows: Rows, an explanation of them, or what ``read`` gave.
            count: How many.

        Returns:
            The rows, the most typical first; none if no column and no pair moved beyond its limit.

        Raises:
            ValueError: The rows have other features than the reference.

        Example:
            >>> monitor = Monitor.fit(CAFE(torch.nn.Linear(2, 1)), torch.randn(400, 2))
            >>> len(monitor.find_odd_rows(torch.randn(200, 2) + 3, count=5))
            5
        """
        signals = rows if isinstance(rows, Signals) else self.read(rows)
        return find_odd_rows(self.reference, self._summarise(signals, None, "monitor.find_odd_rows"), signals, count)

    def merge(self, other: Monitor) -> Monitor:
        """Add the open window of a monitor of the same fit, for example that of another worker.

        Args:
            other: A copy of this monitor that saw other rows.

        Returns:
            This monitor.

        Raises:
            ValueError: The other monitor has another fit, model or other settings.

        Example:
            >>> monitor = Monitor.fit(CAFE(torch.nn.Linear(2, 1)), torch.randn(400, 2))
            >>> monitor.merge(monitor.copy().update(torch.randn(50, 2))).window.rows
            50
        """
        if self.fingerprint != other.fingerprint:
            raise ValueError("monitor.merge(other): the other monitor has another reference, model or settings. Fit only once.")
        self.window = self.window + other.window
        return self

    def copy(self) -> Monitor:
        """The same monitor with an empty window.

        Returns:
            The copy.

        Example:
            >>> Monitor.fit(CAFE(torch.nn.Linear(2, 1)), torch.randn(400, 2)).copy().window.rows
            0
        """
        return Monitor(self.cafe, self.reference, self.options)

    def is_of(self, target: Any, baselines: Any) -> bool:
        """Whether scores for this output, compared with these baselines, are those of the fit.

        Args:
            target: As for ``explain``.
            baselines: As for ``explain``.

        Returns:
            True if both are the same.

        Example:
            >>> Monitor.fit(CAFE(torch.nn.Linear(2, 1)), torch.randn(400, 2)).is_of(None, None)
            True
        """
        other = {"target": target, "baselines": settle_baselines(self.cafe, baselines)}
        return fingerprint_fit(self.cafe, self.reference, other) == self._fingerprints

    @property
    def fingerprint(self) -> str:
        """A short text that is the same only for the same reference, model, schema, background and settings."""
        return fingerprint(self._fingerprints)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the reference and the open window into one safetensors file; the model is not in it.

        Args:
            path: A name that ends in .safetensors.

        Raises:
            ValueError: The name has another ending, or the baselines or target cannot be written as JSON.

        Example:
            >>> import tempfile
            >>> monitor = Monitor.fit(CAFE(torch.nn.Linear(2, 1)), torch.randn(400, 2))
            >>> with tempfile.TemporaryDirectory() as folder: monitor.save(f"{folder}/monitor.safetensors")
        """
        save_monitor(path, self._fingerprints, self.reference, self.window, self.options)

    @classmethod
    def load(cls, path: str | os.PathLike[str], cafe: CAFE) -> Monitor:
        """Read a monitor.

        Args:
            path: What ``save`` wrote.
            cafe: The explainer of the same model with the same settings.

        Returns:
            The monitor with its window.

        Raises:
            ValueError: The file is not a monitor, was changed, or belongs to another model or other settings.

        Example:
            >>> import tempfile
            >>> cafe = CAFE(torch.nn.Linear(2, 1))
            >>> monitor = Monitor.fit(cafe, torch.randn(400, 2))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     monitor.save(f"{folder}/monitor.safetensors")
            ...     again = Monitor.load(f"{folder}/monitor.safetensors", cafe)
            >>> again.fingerprint == monitor.fingerprint
            True
        """
        fingerprints, reference, window, options = load_monitor(path)
        found = cls(cafe, reference, options, window)
        now = found._fingerprints
        if changed := [name for name, value in fingerprints.items() if now[name] != value]:
            raise ValueError(
                f"Monitor.load({os.fspath(path)!r}, cafe): the explainer is another than that of the fit. Changed: "
                f"{', '.join(changed)}. Give the same model, variant, c, schema, preprocessing and background."
            )
        return found

    @property
    def _fingerprints(self) -> dict[str, str]:
        return fingerprint_fit(self.cafe, self.reference, self.options)

    @property
    def _reader(self) -> Reader:
        return Reader(self.cafe, self.options, self.reference.features, self.reference.categories)

    def _summarise(self, rows: Any, labels: Any, call: str) -> Window:
        total = Window.empty(len(self.reference.features))
        for signals in self._reader.read(rows, labels, call):
            if signals.features != self.reference.features:
                raise ValueError(
                    f"{call}(...): the rows have other features than the reference: {', '.join(signals.features)}."
                )
            total = total + summarise(self.reference.bins, self.reference.ranks, signals)
        return total
