"""What a run would cost: ``cafexai batch --dry-run``. Some rows are scored and written to memory; nothing is kept."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from ..cafe import CAFE
from ._manifest import Manifest
from ._part import make_part
from ._prepare_run import make_plan
from ._progress import span
from ._scorer import CHUNK
from ._sink import Staged
from ._workers import one_thread, suggested

SECONDS = 3.0  # that may be spent on scoring
FIRST = 64  # rows of the first try


@dataclass(frozen=True)
class Estimate:
    """What a run would cost.

    Args:
        rows: Rows that are left to score; an estimate for CSV, None for compressed CSV.
        finished: Rows that earlier starts have scored or refused.
        columns: Columns of the result.
        bytes_per_row: Of the result, compressed.
        size: Bytes of the result of the rows that are left.
        seconds_per_row: Of one processor.
        seconds: Of the run with ``workers`` processes, without the start of some 5 s.
        workers: Processes.
        parts: Units of work.
        refused_share: Share of the rows tried that would be refused.
        tried: Rows that were scored for this.
        fingerprint: Of the model, the schema, the baseline and the settings.
    """

    rows: int | None
    finished: int
    columns: int
    bytes_per_row: float
    size: int | None
    seconds_per_row: float
    seconds: float | None
    workers: int
    parts: int | None
    refused_share: float
    tried: int
    fingerprint: dict[str, str]

    def __str__(self) -> str:
        each = f"{self.columns} columns, {self.bytes_per_row:,.0f} bytes and {self.seconds_per_row * 1e3:.3g} ms a row"
        refused = f", {self.refused_share:.1%} of them refused" if self.refused_share else ""
        before = f" ({self.finished:,} are finished)" if self.finished else ""
        tried = f"measured on {self.tried:,} rows{refused}"
        if self.rows is None or self.size is None or self.seconds is None:
            return f"rows of unknown number{before}; {each}, {tried}."
        return (
            f"about {self.rows:,} rows{before} in {self.parts:,} parts; {_bytes(self.size)} and {span(self.seconds)} with "
            f"{self.workers} process(es); {each}, {tried}."
        )


def estimate(cafe: CAFE, source: Any, sink: str | os.PathLike[str], **options: Any) -> Estimate:
    """Estimate the size of the results of ``score`` and the time it takes, without writing anything.

    Args:
        cafe: The explainer.
        source: As for ``score``.
        sink: As for ``score``: what is finished there is not counted again.
        **options: As for ``score``.

    Returns:
        The estimate, from some of the first rows: rows of another kind further on cost something else.

    Raises:
        DataProblem: The input cannot be read.
        ValueError: An argument is wrong.

    Example:
        >>> print(estimate(CAFE(model), "transactions", "scores", keep=["id"], top=10))  # doctest: +SKIP
    """
    options.pop("say", None)
    plan = make_plan("estimate", cafe, source, sink, **options)
    manifest = Manifest(plan.sink)
    finished = sum(unit["rows"] + unit["refused"] for unit in manifest.units.values())
    with one_thread():
        made = seconds = 0.0
        count = FIRST
        while made < SECONDS / 4:  # twice as many each time, until it takes long enough to be measured
            table, begin = plan.first.slice(0, count), time.perf_counter()
            done = make_part(plan.scorer, table, "", 0, _Nowhere(), "0", lambda: None)
            made, seconds = time.perf_counter() - begin, done.scoring + done.writing
            if count >= min(plan.first.num_rows, CHUNK):
                break
            count *= 4 if made < SECONDS / 32 else 2
    size = sum(file.size for file in done.files) / table.num_rows
    rows = plan.source.rows if plan.source.rows is not None else plan.source.guess_rows()
    left = None if rows is None else max(rows - finished, 0)
    workers = suggested(cafe) if plan.workers is None else max(plan.workers, 1)
    each = seconds / table.num_rows
    return Estimate(
        rows=left,
        finished=finished,
        columns=len(plan.scorer.types),
        bytes_per_row=size,
        size=None if left is None else round(left * size),
        seconds_per_row=each,
        seconds=None if left is None else left * each / workers,
        workers=workers,
        parts=None if left is None else -(-left // plan.rows_per_part),
        refused_share=done.refused / table.num_rows,
        tried=table.num_rows,
        fingerprint=plan.fingerprints,
    )


class _Nowhere:
    """Takes what is written and forgets it."""

    def stage(self, name: str) -> Staged:
        return self

    def write(self, data: Any) -> None:
        """Nothing is kept."""

    def publish(self) -> None:
        """Nothing is shown."""

    def discard(self) -> None:
        """Nothing is left."""


def _bytes(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"
