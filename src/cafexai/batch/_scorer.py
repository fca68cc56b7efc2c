"""Scores of a table of rows: the same on one machine, in a process beside, or on an engine."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .._engine.request import Request, without_background
from .._extras import needs
from ..cafe import CAFE
from ..explanation import Explanation
from ..loading.file_errors import DataProblem, short
from ..schema import Column, Schema
from ._bad_rows import explained_apart
from ._columns import Form, columns_of, fields_of
from ._partitions import check_partitions, without_folder

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 16384  # rows that are explained and written at a time
FEW = 20  # rows that are tried before all are given up


@dataclass(frozen=True)
class Scored:
    """Some rows with their scores, or why they have none."""

    scores: pa.Table
    refused: pa.Table


@dataclass(frozen=True)
class Scorer:
    """What is asked of every row. It can be sent to other processes once ``ready`` has seen a row."""

    cafe: CAFE
    features: tuple[str, ...]
    keep: tuple[str, ...]
    form: Form
    request: Request = field(default_factory=Request)
    types: Any = None  # of the columns of the result
    numbers: Schema | None = None  # the features, if all are plain numbers

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read of the files."""
        return tuple(dict.fromkeys((*self.keep, *self.features)))

    def ready(self, table: pa.Table, described: Mapping[str, Any]) -> Scorer:
        """Explain the first row that can be: from then on the way of explaining and the columns of the result are settled."""
        plain = self.cafe.schema is None and not hasattr(type(self.cafe.model), "from_raw")
        scorer = dataclasses.replace(self, numbers=Schema(tuple(map(Column, self.features))) if plain else None)
        bad: dict[int, str] = {}
        check_partitions(table.schema, self.form.partition_by, self.keep)
        first = next((rows for rows, _ in scorer._good(table.slice(0, CHUNK), bad)), None)
        if first is None:
            raise DataProblem(f"none of the first {len(bad)} rows can be scored: {next(iter(bad.values()), 'there are none')}.")
        explanation = scorer._one(first)
        arrow = needs("pyarrow", "batch")
        keys = [arrow.field(name, table.schema.field(name).type) for name in self.keep]
        fields = [*fields_of(arrow), *keys, *columns_of(arrow, explanation, self.form)[0]]
        names = [*(one.name for one in fields), "reason"]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"score(..., keep={list(self.keep)!r}): {twice[0]!r} is a column of the result, too. Rename it.")
        about = {**described, "settings": {**described.get("settings", {}), **_plain(explanation.meta.settings)}}
        types = arrow.schema(fields, {b"cafexai": json.dumps(about, default=str).encode()})
        return dataclasses.replace(scorer, types=types)

    def _one(self, rows: Any) -> Explanation:
        """Of the first row that the model takes; if it takes none of some, the reason is not in the rows."""
        bad: dict[int, str] = {}
        for place in range(min(len(rows), FEW)):
            one = rows[place : place + 1]
            for explanation, _ in explained_apart(self._explain, one, np.zeros(1, dtype=np.int64), bad):
                return explanation
        return self._explain(rows[:1])

    def parts(self, table: pa.Table, path: str = "", start: int = 0) -> Iterator[Scored]:
        """The rows in their order, some at a time; ``path`` and ``start`` say where they come from."""
        for at in range(0, table.num_rows, CHUNK):
            yield self(table.slice(at, CHUNK), path, start + at)

    def __call__(self, table: pa.Table, path: str = "", start: int = 0) -> Scored:
        """A row for each row: with scores, or with the reason for which it is refused."""
        arrow = needs("pyarrow", "batch")
        bad: dict[int, str] = {}
        tables = []
        for rows, places in self._good(table, bad):
            for explanation, some in explained_apart(self._explain, rows, places, bad):
                made = dict(zip(*columns_of(arrow, explanation, self.form), strict=True))
                arrays = {one.name: array for one, array in made.items()}
                tables.append(self._table(table, some, path, start, arrays, self.types))
        scores = arrow.concat_tables(tables) if tables else self.types.empty_table()
        reasons = sorted(bad)
        fields = [self.types.field(name) for name in (*(f.name for f in fields_of(arrow)), *self.keep)]
        types = arrow.schema([*fields, ("reason", arrow.string())])
        told = {"reason": arrow.array([bad[place] for place in reasons], arrow.string())}
        return Scored(scores, self._table(table, np.array(reasons, dtype=np.int64), path, start, told, types))

    def _table(
        self, table: pa.Table, places: np.ndarray, path: str, start: int, more: Mapping[str, Any], types: pa.Schema
    ) -> pa.Table:
        arrow = needs("pyarrow", "batch")
        where = arrow.repeat(arrow.scalar(path), len(places))
        whole = len(places) == table.num_rows
        keys = {name: table[name] if whole else table[name].take(arrow.array(places)) for name in self.keep}
        columns = {"source_file": where, "source_row": arrow.array(places + start), **keys, **more}
        return arrow.table([_cast(columns[one.name], one, path) for one in types], schema=types)

    def _good(self, table: pa.Table, bad: dict[int, str]) -> Iterator[tuple[Any, np.ndarray]]:
        """The rows that can be given to the model, in the form that it takes, and their places; others are told in ``bad``."""
        schema = self.numbers or self.cafe.schema
        bad |= without_folder(table, self.form.partition_by)
        matrix = _numbers(table, self.features) if self.numbers is not None else None
        whole = matrix is not None and (np.isfinite(matrix) | (np.isnan(matrix) & self.cafe.allow_nan)).all()
        if bad or not whole:
            frame = table.select(list(dict.fromkeys(self.features))).to_pandas()
            if schema is not None:
                bad |= schema.check(frame, self.cafe.allow_nan)
            places = np.array([place for place in range(len(frame)) if place not in bad], dtype=np.int64)
            rows = frame.iloc[places].reset_index(drop=True)
            if self.numbers is not None and len(rows):
                rows = self.numbers.encode(rows, allow_nan=self.cafe.allow_nan)[0]
        else:
            rows, places = matrix, np.arange(table.num_rows)
        if len(places):
            yield rows, places

    def _explain(self, rows: Any) -> Explanation:
        cafe = self.cafe
        if self.numbers is not None and cafe.feature_names is None:
            cafe = cafe.replace(feature_names=self.features)
        asked = without_background(self.request, cafe.background, cafe.tokenizer)
        return cafe.explain(rows, **vars(asked.replace(show_progress=False)))


def _numbers(table: pa.Table, names: Sequence[str]) -> np.ndarray | None:
    """Columns of numbers side by side, with NaN for what is missing; None if some are words that are no numbers."""
    arrow = needs("pyarrow", "batch")
    kinds = [table.schema.field(name).type for name in names]
    small = all(arrow.types.is_float32(kind) or arrow.types.is_float16(kind) for kind in kinds)
    matrix = np.empty((table.num_rows, len(names)), dtype=np.float32 if small else np.float64)
    for place, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        column = table[name]
        if not (arrow.types.is_floating(kind) or arrow.types.is_integer(kind)):
            words = arrow.types.is_string(kind) or arrow.types.is_large_string(kind)
            if not (words or arrow.types.is_decimal(kind) or arrow.types.is_boolean(kind)):
                return None
            try:
                column = column.cast(arrow.uint8()) if arrow.types.is_boolean(kind) else column.cast(arrow.float64())
            except arrow.ArrowInvalid:
                return None
        matrix[:, place] = column.to_numpy()
    return matrix


def _cast(column: Any, field: Any, path: str) -> Any:
    """As in the first file."""
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (ValueError, NotImplementedError) as error:  # Arrow's are such
        raise DataProblem(
            f"{path}: {field.name!r} is {column.type} here and {field.type} in the first file ({short(error, 100)}). "
            "Write both alike."
        ) from error


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that are words and numbers."""
    return {name: value for name, value in settings.items() if isinstance(value, (str, int, float, bool, dict, type(None)))}
