"""Scores for more rows than memory holds, written beside them; started again, it goes on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager
from typing import Any

from .. import __version__
from .._cluster import check_address
from .._engine.request import Request
from .._extras import needs
from ..cafe import CAFE
from ..errors import InternalError, ResultsWarning, warn
from ..loading.file_errors import DataProblem, OutputProblem
from . import _kernels
from ._manifest import Manifest
from ._part import Done
from ._prepare_run import ROWS, Plan, make_plan
from ._progress import Progress, Summary
from ._ray import OnRay, on_ray
from ._scorer import Scorer
from ._sink import SUMMARY, Sink, write, writing
from ._source import Source, Unit
from ._spark import OnSpark, on_spark
from ._workers import Beside, Here, working

SMALL = 1 << 20  # bytes of CSV that are scored before another process has begun
logger = logging.getLogger("cafexai.batch")


def score(
    cafe: CAFE,
    source: Any,
    sink: str | os.PathLike[str],
    *,
    keep: Sequence[str] | str = (),
    columns: Sequence[str] | None = None,
    request: Request | None = None,
    scores: str = "all",
    top: int | None = None,
    partition_by: Sequence[str] | str = (),
    compression: str = "snappy",
    workers: int | None = None,
    rows_per_part: int = ROWS,
    max_bad: float | None = None,
    encoding: str | None = None,
    engine: str = "local",
    address: str | None = None,
    kernels: str = "auto",
    append: bool = False,
    say: Callable[[str], object] | None = None,
    **options: Any,
) -> Summary:
    """Score all rows of Parquet, CSV or Arrow files into a folder of Parquet files, at constant memory.

    A part gets its name when it is complete, and a manifest beside the folder knows it. Started again with the same arguments,
    a run goes on; other arguments are refused. The bits do not depend on processes, engine or restarts.

    Args:
        cafe: The explainer.
        source: A file, a folder, a glob, an address that fsspec knows, or a list of these.
        sink: The folder, or ``s3://...``, of the results. Bookkeeping is kept beside it, in ``_NAME.cafexai``.
        keep: Columns that are copied to the result and are no features.
        columns: The features. None takes those of the schema or of the model, else all columns that are not kept.
        request: Options of ``CAFE.explain`` as one object.
        scores: "net", "signed" (positive and negative) or "all": a column for each feature.
        top: Write lists of so many strongest features instead.
        partition_by: Kept columns that become folders such as ``day=3``.
        compression: "snappy", "zstd" or "none".
        workers: Processes; 0 is this one alone. None chooses one for each processor, if memory allows.
        rows_per_part: Rows of one unit of work.
        max_bad: Stop if more rows are refused: a number, or a share below 1. Refused rows are kept with the reason.
        encoding: Of CSV files, if not UTF-8.
        engine: "local", "ray" (actors of the cluster at ``address``) or "spark" (tasks; ``address`` is the master). Their
            machines must see the folder ``sink``.
        address: Of the cluster.
        kernels: Compiled formulas: "always", "never" or "auto" (long local runs, if there is a C++ compiler).
        append: Also score files that were added to the input since the run was begun.
        say: Called with the progress as text now and then.
        **options: Options of ``CAFE.explain``: ``target``, ``baselines``, ...

    Returns:
        The number of rows, refused rows and parts, the times, and the fingerprints of what made the scores.

    Raises:
        DataProblem: The input cannot be read, has changed, or more than ``max_bad`` rows are refused.
        OutputProblem: The results cannot be written, or were begun with something else.
        ValueError: An argument is wrong.

    Example:
        >>> from cafexai.batch import score
        >>> summary = score(CAFE(model), "transactions", "scores", keep=["id", "day"], top=5)  # doctest: +SKIP
    """
    plan = make_plan(
        "score",
        cafe,
        source,
        sink,
        keep=keep,
        columns=columns,
        request=request,
        scores=scores,
        top=top,
        partition_by=partition_by,
        compression=compression,
        workers=workers,
        rows_per_part=rows_per_part,
        max_bad=max_bad,
        encoding=encoding,
        engine=engine,
        address=address,
        kernels=kernels,
        append=append,
        **options,
    )
    with plan.sink.locked():
        return _run(plan, say)


def _run(plan: Plan, say: Callable[[str], object] | None) -> Summary:
    place, scorer, found, word = plan.sink, plan.scorer, plan.source, plan.kernels
    manifest = Manifest(place)
    manifest.drop_damaged_lines()
    progress = Progress(found, say)
    if word == "auto" and manifest.head is not None:
        word = manifest.head["settings"]["kernels"]
    elif word == "auto" and not (plan.engine == "local" and _kernels.worth_it(scorer, plan.first, found.rows)):
        word = "never"
    if word != "auto":
        manifest.begin(plan.head(word), plan.append)
        manifest.drop_changed_units()
        _same_rows(manifest, found, scorer, plan.rows_per_part)
    progress.resume(manifest)
    logger.info("%s: %d units are finished; fingerprint %s", place.place, len(manifest.units), plan.fingerprints["id"])
    small = found.size < SMALL if found.rows is None else found.rows <= plan.rows_per_part
    with _engine(plan.engine, scorer, 0 if small and plan.workers is None else plan.workers, plan.address) as pool:
        if word == "auto":  # it is worth it, if it can be done
            assert isinstance(pool, (Here, Beside))
            word = "always" if pool.can_make_kernels() else "never"
            manifest.begin(plan.head(word))
        place.remove(SUMMARY)
        _all_units(_Loop(pool, place, manifest, progress, found, plan.max_bad, word), scorer, plan.rows_per_part)
    with writing(place):
        _all_there(manifest, found)
    summary = progress.summary(manifest, plan.fingerprints)
    if not summary.rows:
        raise DataProblem(
            f"{found.address}: none of its {summary.refused} rows could be scored. Reasons: {place.side}/refused."
        )
    with writing(place):
        write(place, SUMMARY, f"{json.dumps(dataclasses.asdict(summary), indent=1)}\n".encode())
    logger.info("%s: %s", place.place, summary)
    return summary


Pool = Here | Beside | OnRay | OnSpark


def _engine(engine: str, scorer: Scorer, workers: int | None, address: str | None) -> AbstractContextManager[Pool]:
    if engine == "local":
        return working(scorer, workers)
    if engine == "ray":
        return on_ray(scorer, workers, address)
    if address is not None:
        check_address("score", address)
    return on_spark(scorer, workers, address)


@dataclasses.dataclass
class _Loop:
    pool: Pool
    sink: Sink
    manifest: Manifest
    progress: Progress
    source: Source
    max_bad: float | None
    kernels: str
    waiting: dict[Future[Done], tuple[Unit, str]] = dataclasses.field(default_factory=dict)

    def finish(self, most: int) -> None:
        """Wait until at most so many units are under way; note those that are done."""
        while self.waiting:
            done, _ = wait(self.waiting, None if len(self.waiting) > most else 0, FIRST_COMPLETED)
            if not done:
                return
            for future in done:
                self._note(future, *self.waiting.pop(future))

    def _note(self, future: Future[Done], unit: Unit, checksum: str) -> None:
        with writing(self.sink):
            result, name = future.result(), self.source.files[unit.file].name
            if result.rows + result.refused != unit.rows:
                told = f"of {unit.rows} rows of unit {unit.key}, {result.rows} were scored and {result.refused} refused"
                raise InternalError(f"score(...): {told}. This is a fault of cafexai {__version__}: please report it.")
            line = {"unit": unit.key, "file": name, "read": unit.rows, "input": checksum}
            self.manifest.add({**line, **dataclasses.asdict(result)})
        self.progress.done(unit, result)
        logger.debug("%s: unit %s has %d rows, %d refused", self.sink.place, unit.key, result.rows, result.refused)
        refused, seen = self.progress.refused, self.progress.rows + self.progress.refused
        if self.max_bad is not None and refused > (self.max_bad if self.max_bad >= 1 else self.max_bad * seen):
            raise DataProblem(
                f"{self.source.files[unit.file].path}: {refused} of {seen} rows refused, more than max_bad={self.max_bad:g}."
                f" Reasons: {self.sink.side}/refused. Mend the rows, or allow more."
            )


def _all_units(loop: _Loop, scorer: Scorer, rows: int) -> None:
    ipc, source = needs("pyarrow.ipc", "batch"), loop.source
    begin, ended = time.perf_counter(), set(loop.manifest.ends)
    for unit, table in source.units(scorer.columns, rows, loop.manifest.units):
        payload = _pack(ipc, table)
        del table
        loop.progress.reading += time.perf_counter() - begin
        rest = (loop.kernels, source.files[unit.file].name, unit.start, loop.sink, unit.key)
        loop.waiting[loop.pool.submit(payload, *rest)] = unit, _checksum(payload)
        del payload
        needs("pyarrow", "batch").default_memory_pool().release_unused()
        loop.finish(loop.pool.count + 1)
        begin = time.perf_counter()
    loop.finish(0)
    for place in set(source.known_rows) - ended if source.kind == "csv" else ():
        loop.manifest.add({"end": place, "rows": source.known_rows[place]})


def _same_rows(manifest: Manifest, source: Source, scorer: Scorer, rows: int) -> None:
    """Files that were written anew must hold the same rows wherever these have been scored."""
    assert manifest.head is not None
    names = {f"{place:05d}": file.name for place, file in enumerate(source.files)}
    if odd := next((unit for key, unit in manifest.units.items() if names.get(key.partition("-")[0]) != unit["file"]), None):
        raise OutputProblem(
            f"{manifest.sink.place}: its manifest does not know of {odd['file']} any more; a line of added files is damaged. "
            "Give another folder."
        )
    ipc, times = needs("pyarrow.ipc", "batch"), manifest.head["times"]
    anew = {place for place, file in enumerate(source.files) if times.get(file.name) != file.time}
    source.known_rows |= {place: rows for place, rows in manifest.ends.items() if place not in anew}
    if not anew:
        return
    others = {key for key, unit in manifest.units.items() if int(key.partition("-")[0]) not in anew}
    for unit, table in source.units(scorer.columns, rows, others):
        known = manifest.units.get(unit.key)
        if unit.file in anew and known is not None and known["input"] != _checksum(_pack(ipc, table)):
            raise DataProblem(
                f"{source.files[unit.file].path}: rows from {unit.start} on have changed since they were scored. Put the file "
                "back as it was, or give another folder for the results."
            )


def _all_there(manifest: Manifest, source: Source) -> None:
    """Every row of every file is in the manifest, and readers find nothing else."""
    read: Counter[int] = Counter()
    for key, unit in manifest.units.items():
        read[int(key.partition("-")[0])] += unit["read"]
    for place, file in enumerate(source.files):
        if read[place] != source.known_rows[place]:
            told = f"{file.path} has {source.known_rows[place]} rows, and {read[place]} were scored or refused"
            raise InternalError(f"score(...): {told}. This is a fault of cafexai {__version__}: please report it.")
    if unknown := manifest.unknown_files(manifest.sink.sizes()):
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        warn(f"{manifest.sink.place}: {unknown[0]}{more}: not of this run, but readers of the folder read it.", ResultsWarning)


def _pack(ipc: Any, table: Any) -> bytes:
    sink = needs("pyarrow", "batch").BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def _checksum(payload: bytes) -> str:
    """To notice changes, not forgers: processors have instructions for this one."""
    return hashlib.sha1(payload, usedforsecurity=False).hexdigest()
