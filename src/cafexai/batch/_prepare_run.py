"""What a run is to do, settled before anything is written: the arguments of ``score``, its input, and how rows are scored."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from .. import __version__
from .._engine.request import Request, make_request
from ..cafe import CAFE
from ..loading.file_errors import DataProblem
from ..loading.model_inputs import columns_of_model
from ..loading.tables import choose_columns
from . import _kernels
from ._columns import Form
from ._fingerprint import Fingerprints, fingerprint
from ._manifest import known_files
from ._scorer import Scorer
from ._sink import Sink, sink_at
from ._source import Source

ENGINES = ("local", "ray", "spark")
ROWS = 1 << 16  # in a part


@dataclass(frozen=True)
class Plan:
    """A run that can begin: the model has explained a first row."""

    scorer: Scorer
    source: Source
    sink: Sink
    first: Any  # the first rows, as a table
    rows_per_part: int
    workers: int | None
    max_bad: float | None
    engine: str
    address: str | None
    kernels: str
    append: bool

    @property
    def fingerprints(self) -> dict[str, str]:
        """What made the scores."""
        return dict(json.loads(self.scorer.types.metadata[b"cafexai"])["fingerprint"])

    def head(self, kernels: str) -> dict[str, Any]:
        """What must be the same when the run goes on."""
        scorer, files = self.scorer, self.source.files
        about = json.loads(scorer.types.metadata[b"cafexai"])
        plain, cafe = (str, int, type(None)), scorer.cafe
        asked = {name: value for name, value in vars(scorer.request).items() if name != "show_progress"}
        named = {name: value if isinstance(value, plain) else fingerprint(value) for name, value in asked.items()}
        settings = {name: value for name, value in about["settings"].items() if name not in ("version", "torch")}
        return {
            "model": about["model"],
            "versions": {"cafexai": __version__, "torch": str(torch.__version__)},
            "settings": {
                **settings,
                **named,
                "background": None if cafe.background is None else fingerprint(cafe.background),
                "schema": None if cafe.schema is None else fingerprint(cafe.schema),
                "class_names": cafe.class_names,
                "probability": cafe.probability,
                "allow_nan": cafe.allow_nan,
                "encoding": self.source.letters,
                "keep": list(scorer.keep),
                "columns": list(scorer.features),
                **asdict(scorer.form),
                "rows_per_part": self.rows_per_part,
                "kernels": kernels,
            },
            "files": {file.name: file.size for file in files},
            "times": {file.name: file.time for file in files},
        }


def make_plan(
    call: str,
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
    **options: Any,
) -> Plan:
    """Check the arguments of ``score``, look at the input, and explain a first row."""
    place = sink_at(sink)
    asked = make_request(call, request, options)
    if isinstance(asked.target, str) and asked.target == "all":
        raise ValueError(
            f'{call}(..., target="all"): a row of the result is about one output. Score each class into its folder.'
        )
    if rows_per_part < 1 or (workers is not None and workers < 0):
        raise ValueError(f"{call}(..., rows_per_part={rows_per_part}, workers={workers}): at least 1 row, 0 workers.")
    if engine not in ENGINES:
        raise ValueError(f"{call}(..., engine={engine!r}): unknown. Allowed values: {', '.join(map(repr, ENGINES))}.")
    if engine == "local" and address is not None:
        raise ValueError(f"{call}(..., address={address!r}): of which engine? Give engine='ray' or engine='spark', too.")
    if not place.shared:
        if workers or engine != "local":
            raise ValueError(f"{call}(..., {place.place!r}, workers={workers}): other processes do not see it. Give workers=0.")
        workers = 0
    if max_bad is not None and not max_bad >= 0:
        raise ValueError(f"{call}(..., max_bad={max_bad}): give a number of rows, or a share below 1.")
    word = _kernels.asked(kernels)
    kept = (keep,) if isinstance(keep, str) else tuple(keep)
    folders = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    form = Form(scores, top, folders, compression)
    found = Source(source, encoding, known_files(place), kept)
    found.apart_from(place)
    features = features_of(cafe, found.names, (*found.names, *found.extra), found.files[0].path, kept, columns)
    scorer, first = _settle(Scorer(cafe, features, kept, form, asked), found, rows_per_part)
    return Plan(scorer, found, place, first, rows_per_part, workers, max_bad, engine, address, word, append)


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


def describe(scorer: Scorer) -> dict[str, Any]:
    """What a part says of what made it; settings follow with the first row."""
    made = Fingerprints.of(scorer.cafe, scorer.request, scorer.features)
    return {"version": __version__, "model": made.model, "fingerprint": made.as_dict(), "settings": {}}


def _settle(scorer: Scorer, source: Source, rows: int) -> tuple[Scorer, Any]:
    """A scorer that has seen the first rows, and these."""
    first = next((table for _, table in source.units(scorer.columns, rows, ())), None)
    if first is None:
        raise DataProblem(f"{source.files[0].path}: there are no rows.")
    source.known_rows = {} if source.kind == "csv" else source.known_rows
    try:
        return scorer.ready(first, describe(scorer)), first
    except DataProblem as error:
        raise DataProblem(f"{source.files[0].path}: {error}") from error
