"""Scores of a Spark frame: the same work, batch after batch of Arrow, wherever Spark runs it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .. import __version__
from .._extras import needs
from ..explain import CAFE
from ._columns import Form
from ._fingerprint import fingerprint
from ._run import features_of
from ._scorer import Scorer
from ._workers import settle


def score_spark(
    frame: Any,
    cafe: CAFE,
    *,
    keep: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    target: Any = None,
    baselines: Any = None,
    scores: str = "all",
    top: int | None = None,
) -> Any:
    """A Spark frame of the ``keep`` columns and the scores; rows that cannot be scored have a ``reason`` and no scores.

    The arguments are those of ``score``. Spark itself cares for what fails and is done again.
    """
    arrow, types = needs("pyarrow", "batch"), needs("pyspark.sql.pandas.types", "spark")
    there = tuple(frame.columns)
    features = features_of(cafe, there, there, "score_spark(frame, ...)", keep, columns)
    options = {} if target is None else {"target": target}
    scorer = Scorer(cafe, features, tuple(keep), Form(scores, top), baselines, options)
    wanted = frame.select(*scorer.columns)
    described = {"version": __version__, "model": fingerprint(cafe.model)}
    scorer = scorer.ready(wanted.limit(100).toArrow(), described)
    fields = [scorer.types.field(place) for place in range(2, len(scorer.types))]  # Spark has no files
    told = arrow.schema([*fields, arrow.field("reason", arrow.string())])
    packed = io.BytesIO()
    torch.save(scorer, packed)
    weights = frame.sparkSession.sparkContext.broadcast(packed.getvalue())

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        settle()
        own = torch.load(io.BytesIO(weights.value), weights_only=False)  # what this function has packed
        for batch in batches:
            yield from _both(arrow, own, batch, told).to_batches()

    return wanted.mapInArrow(run, types.from_arrow_schema(told))


def _both(arrow: Any, scorer: Scorer, batch: Any, told: Any) -> Any:
    """Rows with scores, and those without with the reason."""
    scored = scorer(arrow.Table.from_batches([batch]))
    tables = []
    for part in (scored.scores, scored.refused):
        arrays = [part[one.name] if one.name in part.column_names else arrow.nulls(len(part), one.type) for one in told]
        tables.append(arrow.table(arrays, schema=told))
    return arrow.concat_tables(tables)
