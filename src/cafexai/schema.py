"""The columns of a table as people know them: names, categories, and which input of the model they go to."""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._inputs.table_values import encode_column, labels_of, word

KINDS = ("number", "category", "one-hot")
NO_CATEGORY = ("(none)", "(several)")  # what a one-hot block without just one 1 is


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: Its name.
        kind: "number"; "category", whose codes are the positions of its ``labels``; or "one-hot", a block of 0 and 1, one
            per label.
        labels: The categories in the order of their codes.
        input: The input of the model that the column goes to, if there are several.

    Raises:
        ValueError: A value is not allowed.

    Example:
        >>> from cafexai import Column
        >>> Column("sex", "one-hot", ["female", "male"]).width
        2
    """

    name: str
    kind: str = "number"
    labels: tuple[str, ...] = ()
    input: str = ""

    def __post_init__(self) -> None:
        call = f"Column({self.name!r}, kind={self.kind!r})"
        if not isinstance(self.name, str) or not self.name or not isinstance(self.input, str):
            raise ValueError(f"{call}: the name of a column, and of its input, is a text.")
        if self.kind not in KINDS:
            raise ValueError(f"{call}: unknown kind. Allowed values: {', '.join(map(repr, KINDS))}.")
        if isinstance(self.labels, str) or not isinstance(self.labels, Sequence):
            raise ValueError(f"{call}: labels={self.labels!r} is no list of words.")
        object.__setattr__(self, "labels", tuple(map(word, self.labels)))
        if (self.kind == "number") == bool(self.labels):
            needed = (
                "a number has no labels" if self.labels else "give labels=[...], the categories in the order of their codes"
            )
            raise ValueError(f"{call}: {needed}.")
        _different(self.labels, call, "label")

    @property
    def width(self) -> int:
        """How many numbers the model gets for it."""
        return len(self.labels) if self.kind == "one-hot" else 1


@dataclass(frozen=True)
class Schema:
    """The columns of a table in the order in which the model takes them.

    Columns of the same ``input`` stand together. An input of categories alone is given as integer codes, others as numbers.

    Args:
        columns: The columns.
        classes: Names of the outputs.
        probability: The function that turns logits into probabilities: "softmax" or "sigmoid".

    Raises:
        ValueError: A value is not allowed.

    Example:
        >>> from cafexai import Column, Schema
        >>> Schema((Column("age"), Column("sex", "category", ["female", "male"]))).names
        ('age', 'sex')
    """

    columns: tuple[Column, ...]
    classes: tuple[str, ...] = ()
    probability: str | None = None

    def __post_init__(self) -> None:
        if not self.columns or not all(isinstance(column, Column) for column in self.columns):
            raise ValueError("Schema(columns): give a list of cafexai.Column, at least one.")
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "classes", tuple(map(word, self.classes)))
        _different(self.names, "Schema(columns)", "column")
        _different(self.classes, "Schema(..., classes=...)", "class")
        if self.probability not in (None, "softmax", "sigmoid"):
            raise ValueError(
                f'Schema(..., probability={self.probability!r}): unknown value. Allowed values: "softmax", "sigmoid".'
            )
        places = [self.inputs.index(column.input) for column in self.columns]
        if places != sorted(places):
            raise ValueError(
                f"Schema(columns): columns of one input stand together; here they go to {[c.input for c in self.columns]}."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Of all columns."""
        return tuple(column.name for column in self.columns)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs of the model, in order; one without a name if there is only that."""
        return tuple(dict.fromkeys(column.input for column in self.columns))

    def of_input(self, name: str) -> tuple[Column, ...]:
        """The columns of one input.

        Args:
            name: The name of the input.

        Returns:
            Its columns.
        """
        return tuple(column for column in self.columns if column.input == name)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        one_hot: bool = False,
        categories: Sequence[str] = (),
        inputs: Mapping[str, Sequence[str]] | None = None,
        classes: Sequence[Any] = (),
        probability: str | None = None,
    ) -> Schema:
        """The schema of a data frame. Words, true and false, and categories of pandas are categories; all else is a number.

        Args:
            frame: The data frame.
            one_hot: Make one-hot blocks of all categories.
            categories: Columns that are categories although they hold numbers.
            inputs: Which columns go to which input: ``{"numbers": ["age"], ...}``.
            classes: Names of the outputs.
            probability: See ``Schema``.

        Returns:
            The schema.

        Raises:
            ValueError: The frame lacks a column.

        Example:
            >>> import pandas
            >>> from cafexai import Schema
            >>> Schema.from_frame(pandas.DataFrame({"age": [41.0], "city": ["Oslo"]})).columns[1].labels
            ('Oslo',)
        """
        known = list(map(str, frame.columns))
        where = {column: name for name, members in (inputs or {"": known}).items() for column in members}
        if missing := [name for name in (*where, *categories) if name not in known]:
            raise ValueError(f"Schema.from_frame(frame, ...): the frame has no column {missing[0]!r}; it has {known}.")
        own = dict(zip(known, frame.columns, strict=True))
        columns = []
        for name, place in where.items():
            labels = labels_of(frame[own[name]], name in categories)
            kind = "number" if labels is None else "one-hot" if one_hot else "category"
            columns.append(Column(name, kind, labels or (), place))
        return cls(tuple(columns), tuple(classes), probability)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a schema from a TOML file with a table ``[[columns]]`` for each column.

        Args:
            path: The file, which ``write`` or a person wrote.

        Returns:
            The schema.

        Raises:
            ValueError: The file cannot be read, or is not a schema.

        Example:
            >>> import pandas
            >>> from cafexai import Column, Schema
            >>> schema = Schema((Column("age"), Column("sex", "category", ["female", "male"])))
            >>> schema.write("schema.toml")
            >>> Schema.read("schema.toml").names
            ('age', 'sex')
        """
        call = f"Schema.read({os.fspath(path)!r})"
        try:
            found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"{call}: the file cannot be read ({error.strerror}).") from error
        except RecursionError:
            raise ValueError(f"{call}: it is nested too deeply. A schema is a list of columns.") from None
        except ValueError as error:  # no TOML, or no UTF-8
            raise ValueError(f"{call}: it is no TOML file ({error}).") from error
        columns = found.pop("columns", [])
        fields = {field.name for field in dataclasses.fields(Column)}
        odd = [key for key in found if key not in ("classes", "probability")]
        if (
            odd
            or not isinstance(columns, list)
            or not all(isinstance(c, dict) and "name" in c and set(c) <= fields for c in columns)
        ):
            raise ValueError(
                f"{call}: a schema has classes = [...], probability = ... and, for each column, [[columns]] with "
                f"{', '.join(sorted(fields))}; this has {', '.join(map(repr, odd)) or f'columns = {columns!r}'[:200]}."
            )
        try:
            return cls(tuple(Column(**column) for column in columns), **found)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{call}: {error}") from None

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a TOML file that people can read and change.

        Args:
            path: The file.
        """
        lines = [f"classes = {_toml(self.classes)}"] * bool(self.classes)
        lines += [f"probability = {_toml(self.probability)}"] * (self.probability is not None)
        for column in self.columns:
            lines += ["", "[[columns]]", f"name = {_toml(column.name)}", f"kind = {_toml(column.kind)}"]
            lines += [f"labels = {_toml(column.labels)}"] * bool(column.labels)
            lines += [f"input = {_toml(column.input)}"] * bool(column.input)
        Path(path).write_text("\n".join(lines).lstrip("\n") + "\n", encoding="utf-8")

    def check(self, frame: Any, allow_nan: bool = False) -> dict[int, str]:
        """Find the rows that cannot be encoded.

        Args:
            frame: The data frame.
            allow_nan: Whether numbers may be missing.

        Returns:
            Position of the row -> what is missing, not a number, or not a known category.

        Raises:
            ValueError: The frame lacks a column.

        Example:
            >>> import pandas
            >>> from cafexai import Column, Schema
            >>> schema = Schema((Column("age"), Column("sex", "category", ["female", "male"])))
            >>> schema.check(pandas.DataFrame({"age": [41.0, 30.0], "sex": ["male", "other"]}))
            {1: "'sex' is 'other', which is none of 'female', 'male'"}
        """
        reasons: dict[int, list[str]] = {}
        for column, cells in self._cells(frame, "schema.check(frame)"):
            for row, reason in encode_column(column.labels, cells, allow_nan)[1].items():
                reasons.setdefault(row, []).append(f"{column.name!r} {reason}")
        return {row: "; ".join(reasons[row]) for row in sorted(reasons)}

    def encode(self, frame: Any, call: str = "schema.encode(frame)", allow_nan: bool = False) -> tuple[np.ndarray, ...]:
        """The rows as the model takes them.

        Args:
            frame: The data frame.
            call: A name for the call in messages.
            allow_nan: Whether numbers may be missing.

        Returns:
            One array for each input: numbers, or integers if all columns are codes.

        Raises:
            ValueError: The frame lacks a column, or a row cannot be encoded.

        Example:
            >>> import pandas
            >>> from cafexai import Column, Schema
            >>> schema = Schema((Column("age"), Column("sex", "category", ["female", "male"])))
            >>> frame = pandas.DataFrame({"age": [41.0, 30.0], "sex": ["male", "female"]})
            >>> [part.tolist() for part in schema.encode(frame)]
            [[[41.0, 1.0], [30.0, 0.0]]]
        """
        parts: dict[str, list[np.ndarray]] = {name: [] for name in self.inputs}
        for column, cells in self._cells(frame, call):
            codes, bad = encode_column(column.labels, cells, allow_nan)
            if bad:
                row, reason = min(bad.items())
                more = f" ({len(bad)} such rows; schema.check(frame) lists them)" if len(bad) > 1 else ""
                raise ValueError(f"{call}: row {row}, column {column.name!r} {reason}{more}. Fill, drop or rename it first.")
            if column.kind == "one-hot":
                codes = np.eye(column.width)[codes.astype(np.int64)]
            parts[column.input].append(codes.reshape(len(codes), column.width))
        whole = {name: all(column.kind == "category" for column in self.of_input(name)) for name in self.inputs}
        return tuple(np.concatenate(part, 1).astype(np.int64 if whole[name] else np.float64) for name, part in parts.items())

    def _cells(self, frame: Any, call: str) -> Iterator[tuple[Column, Any]]:
        own = {str(name): name for name in frame.columns}
        if missing := [name for name in self.names if name not in own]:
            raise ValueError(
                f"{call}: the frame lacks the columns {', '.join(map(repr, missing))}; it has {', '.join(map(repr, own))}."
            )
        for column in self.columns:
            yield column, frame[own[column.name]]

    def match_columns(self, tensors: Sequence[Tensor], call: str) -> tuple[Tensor, Tensor, dict[str, tuple[str, ...]]]:
        """Match the numbers of rows with the columns.

        Args:
            tensors: One tensor for each input.
            call: A name for the call in messages.

        Returns:
            The column of every number of a row, input after input; a value for each column; the labels of codes.

        Raises:
            ValueError: The rows do not fit the schema.
        """
        index: list[Tensor] = []
        values: list[Tensor] = []
        words: dict[str, tuple[str, ...]] = {}
        self._fits(tensors, call)
        for name, x in zip(self.inputs, tensors, strict=True):
            columns = self.of_input(name)
            for column, part in zip(columns, x.reshape(len(x), -1).split([c.width for c in columns], 1), strict=True):
                index.append(torch.full((column.width,), len(values)))
                value = part[:, 0].detach().cpu().double()
                if column.kind == "one-hot":
                    value = _ones(part)
                elif column.labels and bool((odd := (value < 0) | (value >= len(column.labels)) | (value % 1 != 0)).any()):
                    row = int(odd.nonzero()[0])
                    raise ValueError(
                        f"{call}: row {row} has the code {value[row].item():g} in column {column.name!r}, which has "
                        f"{len(column.labels)} labels, for the codes 0 to {len(column.labels) - 1}."
                    )
                values.append(value)
                if column.labels:
                    words[column.name] = column.labels + NO_CATEGORY * bool((value >= len(column.labels)).any())
        return torch.cat(index), torch.stack(values, 1), words

    def _fits(self, tensors: Sequence[Tensor], call: str) -> None:
        widths = [sum(column.width for column in self.of_input(name)) for name in self.inputs]
        found = [x[0].numel() for x in tensors]
        if widths != found:
            what = ", ".join(
                f"{width} for input {name!r}" if name else str(width) for name, width in zip(self.inputs, widths, strict=True)
            )
            raise ValueError(
                f"{call}: the rows have {', '.join(map(str, found))} number(s), in {len(found)} input(s), and the schema "
                f"describes {what}. Its columns are {', '.join(map(repr, self.names[:20]))}."
            )

    def typical(self, statistic: str, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """A typical row.

        Args:
            statistic: "mean", "median" or "mode" of numbers; categories always have their most frequent value.
            tensors: One tensor for each input.

        Returns:
            One row for each input.
        """
        rows = []
        for name, x in zip(self.inputs, tensors, strict=True):
            columns, parts = self.of_input(name), []
            for column, part in zip(
                columns, x.reshape(len(x), -1).split([c.width for c in self.of_input(name)], 1), strict=True
            ):
                if column.kind == "one-hot":
                    kinds, counts = part.unique(dim=0, return_counts=True)
                    parts.append(kinds[counts.argmax()])
                else:
                    way = statistic if column.kind == "number" else "mode"
                    parts.append(part.mean(0) if way == "mean" else getattr(part, way)(0).values)
            rows.append(torch.cat(parts).reshape(1, *x.shape[1:]))
        return tuple(rows)


def _ones(block: Tensor) -> Tensor:
    """The place of the 1 in each row of a one-hot block; beyond the last if there is none, or more than one."""
    block = block.detach().cpu().double()
    width = block.shape[1]
    one = ((block == 1).sum(1) == 1) & ((block == 0).sum(1) == width - 1)
    odd = torch.where((block == 0).all(1), width, width + 1)
    return torch.where(one, block.argmax(1), odd).double()


def _different(names: Sequence[str], call: str, what: str) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"{call}: more than one {what} is called {twice[0]!r}.")


def _toml(value: Any) -> str:
    """Words as TOML has them, which are those of JSON but for one control character."""
    listed = f"[{', '.join(map(_toml, value))}]" if isinstance(value, tuple) else json.dumps(value, ensure_ascii=False)
    return listed.replace("\x7f", "\\u007f")
