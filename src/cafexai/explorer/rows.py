"""The rows of the data as the model takes them, also with changes that the user tries."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .._extras import needs
from .._inputs.prepare import row_names_of
from .._inputs.table_values import is_date_column, word
from ..changed_rows.what_if import usual_values
from ..loading import Data, columns_of_model, model_inputs
from ..loading.tables import kinds_of
from .requests import Refused, listing, mapping, number, whole

CATEGORIES = 1000  # of a column that can be chosen from
WORDS = 30  # of these in a what-if curve
Edits = Mapping[str, Any]  # "cells" of a table, "regions" of a picture or words "struck" from a text


@dataclass(frozen=True)
class Column:
    """A column that can be changed."""

    name: str
    kind: str  # "number", "date", "category" or "yes or no"
    words: tuple[str, ...] = ()


class Rows:
    """``data`` is all that is shown; the model gets ``columns`` of it (None: all but the labels)."""

    def __init__(
        self,
        model: Any,
        data: Data,
        *,
        columns: Sequence[str] | None = None,
        label: str | None = None,
        schema: Any = None,
        preprocess: Any = None,
    ) -> None:
        self.model, self.data, self.label = model, data, label
        self.schema, self.preprocess = schema, preprocess
        self._usual: dict[str, list[Any]] = {}
        if data.form == "table":
            wanted = list(columns) if columns is not None else None
            if wanted is None:
                wanted = list(schema.names) if schema is not None else columns_of_model(model)
            if wanted is None:
                wanted = [name for name in data.names if name != label]
            self.columns: tuple[str, ...] = tuple(wanted)
        else:
            self.columns = ()

    def __len__(self) -> int:
        return len(self.data)

    def inputs(self, places: Sequence[int], edits: Edits | None = None) -> tuple[Any, Any]:
        """Rows in the form that the model takes, and as they are shown; ``edits`` change all of them."""
        some = self.data.take(places)
        changes = edits or {}
        if some.form == "table":
            some = self._for_model(_with_cells(some, changes.get("cells", {})))
        elif some.form == "texts" and changes.get("struck"):
            some = dataclasses.replace(some, rows=[_without(text, changes["struck"]) for text in some.rows])
        return model_inputs(self.model, some, schema=self.schema, preprocess=self.preprocess)

    def all(self) -> Any:
        """Everything, as the background of baselines."""
        return self.inputs(range(len(self)))[0]

    def _for_model(self, data: Data) -> Data:
        kinds = {name: data.kinds[name] for name in self.columns if name in data.kinds}
        missing = [name for name in self.columns if name not in data.names]
        if missing:
            return data  # model_inputs says so
        return dataclasses.replace(data, rows=data.rows[list(self.columns)], names=self.columns, kinds=kinds)

    def name(self, place: int) -> str:
        """What a row is called."""
        return self.data.labels[place] if self.data.labels is not None else f"Row {self.data.places[place]}"

    @cached_property
    def editable(self) -> dict[str, Column]:
        """The columns that can be changed, by name."""
        if self.data.form != "table":
            return {}
        known = _encoded_categories(self.model)
        known |= {} if self.schema is None else {column.name: column.labels for column in self.schema.columns}
        found = {}
        for name in self.columns:
            kind = self.data.kinds.get(name, "nothing")
            labels = known.get(name) or ()
            if not labels and kind in ("category", "yes or no"):
                values = self.data.rows[name].dropna().unique()
                labels = tuple(sorted(map(str, values))) if len(values) <= CATEGORIES else ()
            if labels:
                found[name] = Column(name, "yes or no" if kind == "yes or no" else "category", tuple(labels))
            elif kind in ("number", "date"):
                found[name] = Column(name, kind)
        return found

    def cells(self, place: int) -> dict[str, Any]:
        """The values of the columns of one row that can be changed; None if missing."""
        row = self.data.rows.iloc[place] if self.data.form == "table" else {}
        return {name: plain(row[name]) for name in self.editable}

    def words(self, place: int, struck: Sequence[int] = ()) -> list[dict[str, Any]]:
        """The words of a text, which can be struck."""
        if self.data.form != "texts":
            return []
        return [{"text": text, "struck": i in struck} for i, text in enumerate(self.data.rows[place].split())]

    def text(self, place: int, edits: Edits) -> str:
        """A text without the words that are struck."""
        own = str(self.data.rows[place])
        return _without(own, edits["struck"]) if edits.get("struck") else own

    def check_edits(self, given: Any) -> Edits:
        """The changes of a request."""
        edits = mapping({} if given is None else given, "edits")
        found: dict[str, Any] = {}
        cells = mapping(edits.get("cells", {}), "cells")
        if cells:
            found["cells"] = {name: self._cell(name, value) for name, value in cells.items()}
        if edits.get("regions"):
            found["regions"] = [self._region(one) for one in listing(edits["regions"], "regions", 200)]
        if edits.get("struck"):
            found["struck"] = tuple(whole(one, "struck", 100_000) for one in listing(edits["struck"], "struck", 10_000))
        return found

    def _cell(self, name: str, value: Any) -> Any:
        column = self.editable.get(name)
        if column is None:
            raise Refused(f"There is no column {name!r} that can be changed.", name)
        if column.kind == "number":
            return number(value, name)
        if column.kind == "date":
            return self._date(name, value)
        if value not in column.words:
            raise Refused(f"Choose one of the {len(column.words)} categories.", name)
        return self.cell_of(name, value)

    def _date(self, name: str, value: Any) -> Any:
        if not isinstance(value, str) or len(value) > 40 or not is_date_column([value]):
            raise Refused("Give a date, such as 2024-01-31.", name)
        try:
            return self.cell_of(name, value)
        except ValueError as error:
            raise Refused("There is no such day.", name) from error

    def cell_of(self, name: str, value: Any) -> Any:
        """A value of a column in the form that the column has: dates as dates, codes of categories as they are."""
        column = self.data.rows[name]
        if self.data.kinds.get(name) == "yes or no":
            return str(value) == "True"
        if str(column.dtype).startswith("datetime"):
            return needs("pandas", "tabular").Timestamp(value)
        if self.data.kinds.get(name) == "date":
            day = datetime.datetime.fromisoformat(str(value))  # refuses days that there are not
            return word(day)
        return _like(column, value)

    def usual(self, name: str) -> list[Any]:
        """Values that a what-if curve of a column tries: usual ones of the data, or the categories that can be chosen."""
        if name not in self._usual:
            column = self.editable[name]
            known = list(column.words[:WORDS]) if column.words else usual_values(self.data.rows[name].tolist())
            self._usual[name] = known if column.kind == "number" else [self.cell_of(name, value) for value in known]
        return self._usual[name]

    @staticmethod
    def _region(given: Any) -> tuple[int, int, int, int]:
        top, left, bottom, right = (whole(one, "regions", 100_000) for one in [*listing(given, "regions", 4), *[None] * 4][:4])
        if bottom <= top or right <= left:
            raise Refused("A region has a height and a width.", "regions")
        return top, left, bottom, right


def _encoded_categories(model: Any) -> dict[str, tuple[str, ...]]:
    """The categories that encoders of a pipeline know, by column; these may be numbers."""
    names = getattr(model, "raw_names", None) or ()
    return {names[place]: labels for place, labels in getattr(model, "labels", {}).items()}


def table_of(values: Any) -> Data:
    """Data from what people have in Python: a frame, an array or tensor, several, or a list of texts or pictures."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    if hasattr(values, "columns") and hasattr(values, "iloc"):
        frame = values.rename(columns=str)
        return Data("table", frame, tuple(frame.columns), kinds_of(frame), tuple(range(len(frame))), row_names_of(values))
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype.kind == "f":
        frame = needs("pandas", "tabular").DataFrame(values, columns=[f"x{i}" for i in range(values.shape[1])])
        return Data("table", frame, tuple(frame.columns), kinds_of(frame), tuple(range(len(frame))))
    if isinstance(values, np.ndarray):
        return Data("arrays", {"x": values}, ("x",), {}, tuple(range(len(values))))
    if isinstance(values, tuple) and values:
        arrays = {f"x{i}": np.asarray(part) for i, part in enumerate(values)}
        return Data("arrays", arrays, tuple(arrays), {}, tuple(range(len(arrays["x0"]))))
    if isinstance(values, list) and values and all(isinstance(one, str) for one in values):
        return Data("texts", values, places=tuple(range(len(values))))
    if isinstance(values, list) and values:
        return Data("images", values, places=tuple(range(len(values))))
    raise ValueError(
        f"explore(cafe, {type(values).__name__}): give a data frame, an array or tensor, a tuple of arrays, or a list of texts "
        "or pictures."
    )


def plain(value: Any) -> Any:
    """A cell for JSON: a number, a word, true or false; None if missing."""
    if hasattr(value, "item") and not isinstance(value, np.datetime64):
        value = value.item()
    if value is None or value != value:
        return None
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, float)):
        return value if abs(value) < float("inf") else None
    return None if str(value) == "<NA>" else word(value)


def paint_regions(inputs: Any, display: Any, regions: Sequence[tuple[int, int, int, int]], baseline: Any) -> tuple[Any, Any]:
    """A picture with regions as they are in the baseline."""

    def paint(picture: Any, start: Any) -> Any:
        tensor = np.array(picture, dtype=np.float64 if np.asarray(picture).dtype == np.float64 else np.float32)
        last = tensor.shape[-1] <= 4 < tensor.shape[1]
        other = np.broadcast_to(np.zeros(()) if start is None else np.asarray(start, dtype=tensor.dtype), tensor.shape)
        for top, left, bottom, right in regions:
            where = (slice(None), slice(top, bottom), slice(left, right)) if last else (
                slice(None), slice(None), slice(top, bottom), slice(left, right)
            )  # fmt: skip
            tensor[where] = other[where]
        return tensor

    shown = None if display is None else paint(display, None)
    made = paint(inputs, baseline)
    if hasattr(inputs, "new_tensor"):
        return inputs.new_tensor(made), shown
    return made, shown


def _with_cells(data: Data, cells: Mapping[str, Any]) -> Data:
    if not cells:
        return data
    frame = data.rows.copy()
    for name, value in cells.items():
        kind = frame[name].dtype
        frame[name] = [value] * len(frame)
        if not isinstance(value, (float, datetime.date)):  # words and true or false stay of the kind they were
            with contextlib.suppress(TypeError, ValueError):
                frame[name] = frame[name].astype(kind)
    return dataclasses.replace(data, rows=frame)


def _like(column: Any, text: str) -> Any:
    """The value of the column that is written like this."""
    kinds = column.cat.categories if hasattr(column, "cat") else column.dropna().unique() if column.dtype.kind in "iuf" else ()
    return next((value for value in kinds if word(value) == text), text)


def _without(text: str, struck: Sequence[int]) -> str:
    return " ".join(part for i, part in enumerate(text.split()) if i not in set(struck))
