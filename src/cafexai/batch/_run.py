"""Scores for more rows than memory holds, written beside them; started again, it goes on."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager
from typing import Any

import torch

from .. import __version__
from .._cluster import check_address
from .._engine.request import Request, make_request
from .._extras import needs
from ..cafe import CAFE
from ..loading.file_errors import DataProblem
from ..loading.model_inputs import columns_of_model
from ..loading.tables import choose_columns
from . import _kernels
from ._columns import Form
from ._fingerprint import fingerprint
from ._manifest import Manifest
from ._part import Done
from ._progress import Progress, Summary
from ._ray import OnRay, on_ray
from ._scorer import Scorer
from ._sink import HIDDEN, Sink, sink_at, write, writing
from ._source import Source, Unit
from ._spark import OnSpark, on_spark
from ._workers import Beside, Here, working

ENGINES = ("local", "ray", "spark")
ROWS = 1 << 16  # in a part
SMALL = 1 << 20  # bytes of CSV that are scored before another process has begun


def score(
    cafe: CAFE,
    source: Any,
    sink: str | os.PathLike[str],
    *,
    keep: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    request: Request | None = None,
    scores: str = "all",
    top: int | None = None,
    workers: int | None = None,
    rows_per_part: int = ROWS,
    max_bad: float | None = None,
    encoding: str | None = None,
    engine: str = "local",
    address: str | None = None,
    kernels: str = "auto",
    say: Callable[[str], object] | None = None,
    **options: Any,
) -> Summary:
    """Scores of all rows of Parquet, CSV or Arrow files as Parquet files in the folder ``sink``; memory stays the same.

    ``source`` is a file, a folder, a glob, an address that fsspec knows, or a list of these. ``keep`` columns go to the result
    and are no features; ``columns`` are the features: those of the schema or of the model if it knows them, else all others in
    the order of the file. Further keywords (``target``, ``baselines``, ...) are options of ``CAFE.explain``. ``scores``:
    "net", "signed" (positive and negative) or "all", a column for each feature, or lists of the ``top`` strongest. Rows that
    cannot be scored are put aside with the reason; more than ``max_bad`` of them (a number, or a share below 1) end the run.

    Parts get their names when they are complete, and a manifest knows them: started again with the same arguments it goes on;
    anything else is refused. ``workers`` processes score (0: this one). With ``engine="ray"`` these are actors of the cluster
    at ``address``, with "spark" tasks (``address`` is the master); their machines see the folder ``sink``, too. The bits are
    the same, as long as ``kernels`` are: "always", "never", or for "auto" those runs of the local engine that are so long that
    making compiled kernels pays, if there is a C++ compiler. ``say`` is told now and then how far it is.
    """
    place = sink_at(sink)
    asked = make_request("score", request, options)
    if isinstance(asked.target, str) and asked.target == "all":
        raise ValueError('score(..., target="all"): a row of the result is about one output. Score each class into its folder.')
    if rows_per_part < 1 or (workers is not None and workers < 0):
        raise ValueError(f"score(..., rows_per_part={rows_per_part}, workers={workers}): at least 1 row, 0 workers.")
    if engine not in ENGINES:
        raise ValueError(f"score(..., engine={engine!r}): the words are {', '.join(map(repr, ENGINES))}.")
    if engine == "local" and address is not None:
        raise ValueError(f"score(..., address={address!r}): of which engine? Give engine='ray' or engine='spark', too.")
    if not place.shared:
        if workers or engine != "local":
            raise ValueError(f"score(..., {place.place!r}, workers={workers}): other processes do not see it. Give workers=0.")
        workers = 0
    if max_bad is not None and not max_bad >= 0:
        raise ValueError(f"score(..., max_bad={max_bad}): give a number of rows, or a share below 1.")
    word = _kernels.asked(kernels)
    keep = [keep] if isinstance(keep, str) else keep
    form = Form(scores, top)
    found = Source(source, encoding)
    found.apart_from(place)
    features = features_of(cafe, found.names, (*found.names, *found.extra), found.files[0].path, keep, columns)
    scorer = Scorer(cafe, features, tuple(keep), form, asked)
    with place.locked():
        manifest = Manifest(place)
        manifest.drop_damaged_lines()
        progress = Progress(found, say)
        scorer, first = _settled(scorer, found, rows_per_part)
        if word == "auto" and manifest.head is not None:
            word = manifest.head["settings"]["kernels"]
        elif word == "auto" and not (engine == "local" and _kernels.worth_it(scorer, first, found.rows)):
            word = "never"
        del first
        head = functools.partial(_head, scorer, found, rows_per_part)
        if word != "auto":
            manifest.begin(head(word))
            manifest.drop_changed_units()
            _same_rows(manifest, found, scorer, rows_per_part)
        found.known_rows |= manifest.ends
        progress.resume(manifest)
        small = found.size < SMALL if found.rows is None else found.rows <= rows_per_part
        alone = small and workers is None
        with _engine(engine, scorer, 0 if alone else workers, address) as pool:
            if word == "auto":  # it is worth it, if it can be done
                assert isinstance(pool, (Here, Beside))
                word = "always" if pool.can_make_kernels() else "never"
                manifest.begin(head(word))
            _all_units(_Loop(pool, place, manifest, progress, found, max_bad, word), scorer, rows_per_part)
        summary, reasons = progress.summary(manifest), f"{place.place}/{HIDDEN}/refused"
        if not summary.rows:
            raise DataProblem(f"{source}: none of its {summary.refused} rows could be scored. Reasons: {reasons}.")
        text = json.dumps(dataclasses.asdict(summary), indent=1)
        with writing(place):
            write(place, f"{HIDDEN}/summary.json", f"{text}\n".encode())
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
            result, name = future.result(), _name(unit)
            self.manifest.add(
                {"unit": unit.key, "read": unit.rows, "input": checksum, "part": name, **dataclasses.asdict(result)}
            )
        self.progress.done(unit, result)
        refused, seen = self.progress.refused, self.progress.rows + self.progress.refused
        if self.max_bad is not None and refused > (self.max_bad if self.max_bad >= 1 else self.max_bad * seen):
            raise DataProblem(
                f"{self.source.files[unit.file].path}: {refused} of {seen} rows refused, more than max_bad={self.max_bad:g}."
                f" Reasons: {self.sink.place}/{HIDDEN}/refused. Mend the rows, or allow more."
            )


def _all_units(loop: _Loop, scorer: Scorer, rows: int) -> None:
    ipc, source = needs("pyarrow.ipc", "batch"), loop.source
    begin, ended = time.perf_counter(), set(loop.manifest.ends)
    for unit, table in source.units(scorer.columns, rows, loop.manifest.units):
        payload = _packed(ipc, table)
        del table
        loop.progress.reading += time.perf_counter() - begin
        rest = (loop.kernels, source.files[unit.file].path, unit.start, loop.sink, _name(unit))
        loop.waiting[loop.pool.submit(payload, *rest)] = unit, _checksum(payload)
        del payload
        needs("pyarrow", "batch").default_memory_pool().release_unused()
        loop.finish(loop.pool.count + 1)
        begin = time.perf_counter()
    loop.finish(0)
    for place in set(source.known_rows) - ended if source.kind == "csv" else ():
        loop.manifest.add({"end": place, "rows": source.known_rows[place]})


def features_of(
    cafe: CAFE, names: Sequence[str], there: Sequence[str], where: str, keep: Sequence[str], columns: Sequence[str] | None
) -> tuple[str, ...]:
    """The columns that the model takes: those that were chosen or that it knows, else all of ``names`` that are not kept."""
    choose_columns(there, list(keep), f"{where}, keep", "column")
    if len(set(keep)) < len(keep):
        raise ValueError(f"score(..., keep={list(keep)!r}): a column is named twice.")
    known = columns or (cafe.schema.names if cafe.schema is not None else cafe.feature_names or columns_of_model(cafe.model))
    if known is not None:
        return tuple(choose_columns(there, list(known), where, "column"))
    return tuple(name for name in names if name not in keep)


def _settled(scorer: Scorer, source: Source, rows: int) -> tuple[Scorer, Any]:
    """A scorer that has seen the first rows, and these."""
    first = next((table for _, table in source.units(scorer.columns, rows, ())), None)
    if first is None:
        raise DataProblem(f"{source.files[0].path}: there are no rows.")
    source.known_rows = {} if source.kind == "csv" else source.known_rows
    described = {"version": __version__, "model": fingerprint(scorer.cafe.model), "settings": {}}
    try:
        return scorer.ready(first, described), first
    except DataProblem as error:
        raise DataProblem(f"{source.files[0].path}: {error}") from error


def _head(scorer: Scorer, source: Source, rows: int, kernels: str) -> dict[str, Any]:
    """What must be the same when the run goes on."""
    about = json.loads(scorer.types.metadata[b"cafexai"])
    plain = (str, int, type(None))
    asked = {name: value for name, value in vars(scorer.request).items() if name != "show_progress"}
    named = {name: value if isinstance(value, plain) else fingerprint(value) for name, value in asked.items()}
    settings = {name: value for name, value in about["settings"].items() if name not in ("version", "torch")}
    return {
        "model": about["model"],
        "versions": {"cafexai": __version__, "torch": str(torch.__version__)},
        "settings": {
            **settings,
            **named,
            "background": None if scorer.cafe.background is None else fingerprint(scorer.cafe.background),
            "schema": None if scorer.cafe.schema is None else fingerprint(scorer.cafe.schema),
            "keep": list(scorer.keep),
            "columns": list(scorer.features),
            "scores": scorer.form.scores,
            "top": scorer.form.top,
            "rows_per_part": rows,
            "kernels": kernels,
        },
        "files": {file.path: file.size for file in source.files},
        "times": {file.path: file.time for file in source.files},
    }


def _same_rows(manifest: Manifest, source: Source, scorer: Scorer, rows: int) -> None:
    """Files that were written anew must hold the same rows wherever these have been scored."""
    assert manifest.head is not None
    ipc, times = needs("pyarrow.ipc", "batch"), manifest.head["times"]
    anew = {place for place, file in enumerate(source.files) if times.get(file.path) != file.time}
    if not anew:
        return
    others = {key for key, unit in manifest.units.items() if int(key.partition("-")[0]) not in anew}
    for unit, table in source.units(scorer.columns, rows, others):
        known = manifest.units.get(unit.key)
        if unit.file in anew and known is not None and known["input"] != _checksum(_packed(ipc, table)):
            raise DataProblem(
                f"{source.files[unit.file].path}: rows from {unit.start} on have changed since they were scored. Put the file "
                "back as it was, or give another folder for the results."
            )


def _packed(ipc: Any, table: Any) -> bytes:
    sink = needs("pyarrow", "batch").BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def _checksum(payload: bytes) -> str:
    """To notice changes, not forgers: processors have instructions for this one."""
    return hashlib.sha1(payload, usedforsecurity=False).hexdigest()


def _name(unit: Unit) -> str:
    return f"part-{unit.key}.parquet"
