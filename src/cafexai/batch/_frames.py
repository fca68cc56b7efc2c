"""Scores of what engines hold already: datasets of Ray, frames of Spark. They care for where and when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .._engine.request import make_request
from .._extras import needs
from ..cafe import CAFE
from ._columns import Form
from ._prepare_run import describe, features_of
from ._ray import SHARE, put
from ._scorer import CHUNK, Scorer
from ._source import cut
from ._spark import Sent
from ._workers import Surroundings


def score_ray(
    dataset: Any,
    cafe: CAFE,
    *,
    keep: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    scores: str = "all",
    top: int | None = None,
    workers: int | None = None,
    **options: Any,
) -> Any:
    """Scores of a dataset of Ray.

    Rows that cannot be scored have a ``reason`` and no scores. The first rows are read now, all others when the result is used.
    An actor that is lost is replaced, and its rows are scored again.

    Args:
        dataset: The dataset.
        cafe: The explainer.
        keep: See ``score``.
        columns: See ``score``.
        scores: See ``score``.
        top: See ``score``.
        workers: Actors that score; None takes one for each processor of the cluster.
        **options: Options of ``CAFE.explain``.

    Returns:
        A dataset of the ``keep`` columns and the scores.
    """
    ray = needs("ray", "ray")
    names = tuple(dataset.columns() or ())

    def first(chosen: Sequence[str]) -> Any:
        return dataset.select_columns(list(chosen)).take_batch(CHUNK, batch_format="pyarrow")

    scorer = _ready(cafe, names, "score_ray(dataset, ...)", first, keep, columns, options, Form(scores, top))
    count = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    return dataset.select_columns(list(scorer.columns)).map_batches(
        _Actor,
        fn_constructor_args=(put(ray, scorer), Surroundings()),
        batch_size=CHUNK,
        batch_format="pyarrow",
        concurrency=count,
        num_cpus=SHARE,
    )


class _Actor:
    def __init__(self, weights: Any, around: Surroundings) -> None:
        self._scorer = around.unpacked(needs("ray", "ray").get(weights))

    def __call__(self, table: Any) -> Any:
        """The rows of a batch."""
        return _in_order(self._scorer, table)


def score_spark(
    frame: Any,
    cafe: CAFE,
    *,
    keep: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    scores: str = "all",
    top: int | None = None,
    **options: Any,
) -> Any:
    """Scores of a frame of Spark.

    Rows that cannot be scored have a ``reason`` and no scores. Spark repeats tasks that fail.

    Args:
        frame: The frame.
        cafe: The explainer.
        keep: See ``score``.
        columns: See ``score``.
        scores: See ``score``.
        top: See ``score``.
        **options: Options of ``CAFE.explain``.

    Returns:
        A frame of the ``keep`` columns and the scores.
    """
    arrow, types = needs("pyarrow", "batch"), needs("pyspark.sql.pandas.types", "spark")

    def first(chosen: Sequence[str]) -> Any:
        return frame.select(*chosen).limit(CHUNK).toArrow()

    names = tuple(frame.columns)
    scorer = _ready(cafe, names, "score_spark(frame, ...)", first, keep, columns, options, Form(scores, top))
    sent = Sent.by(frame.sparkSession.sparkContext, scorer)

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        own = sent.scorer()
        for table in cut(arrow, batches, CHUNK):  # Spark's batches have other sizes, on which last digits would depend
            yield from _in_order(own, table).to_batches()

    return frame.select(*scorer.columns).mapInArrow(run, types.from_arrow_schema(_told(arrow, scorer)))


def _ready(
    cafe: CAFE,
    names: tuple[str, ...],
    call: str,
    first: Callable[[Sequence[str]], Any],
    keep: Sequence[str],
    columns: Sequence[str] | None,
    options: dict[str, Any],
    form: Form,
) -> Scorer:
    """A scorer that has seen the first rows."""
    keep = [keep] if isinstance(keep, str) else keep
    features = features_of(cafe, names, names, call, keep, columns)
    scorer = Scorer(cafe, features, tuple(keep), form, make_request(call.partition("(")[0], None, options))
    return scorer.ready(first(scorer.columns), describe(scorer))


def _told(arrow: Any, scorer: Scorer) -> Any:
    """The columns: those of a part without its files, and the reason."""
    own = [scorer.types.field(place) for place in range(2, len(scorer.types))]
    return arrow.schema([*own, arrow.field("reason", arrow.string())], scorer.types.metadata)


def _in_order(scorer: Scorer, table: Any) -> Any:
    """Rows with scores, and those without with the reason, as they came."""
    arrow = needs("pyarrow", "batch")
    told = _told(arrow, scorer)
    scored = scorer(table)
    tables = []
    for part in (scored.scores, scored.refused):
        arrays = [part[one.name] if one.name in part.column_names else arrow.nulls(len(part), one.type) for one in told]
        tables.append(arrow.table([part["source_row"], *arrays], schema=told.insert(0, part.schema.field("source_row"))))
    both = arrow.concat_tables(tables)
    ordered = both.sort_by("source_row") if scored.refused.num_rows else both
    return ordered.drop_columns(["source_row"])
