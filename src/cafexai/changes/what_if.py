"""What-if curves: the output of the model while one feature of a row takes other values (ICE)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .._engine.evaluate import Asked, evaluate
from .._engine.job import Job
from .._extras import needs
from .._inputs.prepare import is_frame, row_names_of
from .._inputs.table_values import column_of, is_missing
from ..explanation import Explanation

if TYPE_CHECKING:
    import pandas

    from ..plotting.picture import Picture

POINTS, CATEGORIES = 25, 50  # values that are tried unless some are given
STEP = 1024  # rows that are evaluated at once


@dataclass(frozen=True)
class WhatIf:
    """The explained output of some rows while one feature takes other values; ``CAFE.what_if`` makes it.

    Args:
        feature: The feature.
        target: The explained output of the first row.
        values: What was tried: numbers in ascending order, or categories.
        outputs: (rows, values): the outputs there; all other features stay as they are.
        own_values: The values of the rows as they are.
        own_outputs: (rows,): the outputs of the rows as they are.
        row_names: The names of the rows, if they have some.
    """

    feature: str
    target: str
    values: tuple[Any, ...]
    outputs: Tensor
    own_values: tuple[Any, ...]
    own_outputs: Tensor
    row_names: tuple[str, ...] | None = None

    @property
    def is_number(self) -> bool:
        """The values are numbers."""
        return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in self.values)

    def to_frame(self) -> pandas.DataFrame:
        """One line per row and value; needs pandas."""
        count = len(self.values)
        columns: dict[str, Any] = {"row": np.repeat(np.arange(len(self.outputs)), count)}
        if self.row_names is not None:
            columns["name"] = [name for name in self.row_names for _ in range(count)]
        columns |= {self.feature: list(self.values) * len(self.outputs), "output": self.outputs.flatten().tolist()}
        return needs("pandas", "tabular").DataFrame(columns)

    def plot(self) -> Picture:
        """A line per row, with a mark where the row is; needs matplotlib."""
        from ..plotting.change_plots import what_if_picture

        return what_if_picture(self)


@dataclass(frozen=True)
class Calls:
    """What is needed of an explainer."""

    explain: Callable[[Any], Explanation]  # rows as they are
    prepare: Callable[[Any], Job]  # changed rows
    background: Any = None
    feature_names: tuple[str, ...] | None = None


def vary_feature(calls: Calls, rows: Any, feature: str | int, values: Sequence[Any] | None) -> WhatIf:
    """The outputs of rows with one of their columns replaced, value by value."""
    call = "what_if(rows, feature)"
    table, place, name = _column(rows, feature, calls.feature_names, call)
    own = column_of(table, place, name).tolist()
    tried = tuple(_values(calls.background, own, place, name, call) if values is None else values)
    if not tried:
        raise ValueError(f"{call}: there are no values to try. Give values=[...].")
    e = calls.explain(table)
    outputs = torch.stack([_outputs(calls.prepare(_replaced(table, place, value)), e) for value in tried], 1)
    names = row_names_of(table)
    return WhatIf(name, e.target_name(), tried, outputs, tuple(own), e.output.double().cpu(), names)


def _outputs(job: Job, e: Explanation) -> Tensor:
    """The explained output at changed rows, for the targets of the rows as they were."""
    found = []
    for start in range(0, len(e), STEP):
        rows = slice(start, min(start + STEP, len(e)))
        asked = Asked(e.target[rows], None, e.meta.final)
        found.append(evaluate(job, job.batch(rows), asked).double().cpu())
    return torch.cat(found)


def _column(rows: Any, feature: str | int, known: Sequence[str] | None, call: str) -> tuple[Any, int, str]:
    """The rows as a table, the place of the feature in it, and its name."""
    if isinstance(rows, dict):
        rows = needs("pandas", "tabular").DataFrame([rows])
    if is_frame(rows):
        names = [str(column) for column in rows.columns]
    else:
        rows = torch.as_tensor(rows)
        if rows.ndim != 2:
            raise ValueError(f"{call}: the rows have shape {tuple(rows.shape)}. Give a table: a frame, or (rows, features).")
        names = list(known or [f"x{i}" for i in range(rows.shape[1])])
    if isinstance(feature, str) and feature in names:
        return rows, names.index(feature), feature
    if isinstance(feature, int) and not isinstance(feature, bool) and 0 <= feature < len(names):
        return rows, feature, names[feature]
    raise ValueError(f"{call}: there is no feature {feature!r}. Features: {', '.join(names[:20])}{' ...' * (len(names) > 20)}")


def _values(background: Any, own: list[Any], place: int, name: str, call: str) -> list[Any]:
    """Quantiles of a number, or all categories, in the background; without a background, in the rows themselves."""
    cells = own
    if background is not None and not isinstance(background, (tuple, list)):
        cells = column_of(background if is_frame(background) else np.asarray(background), place, name).tolist()
    there = [cell for cell in cells if not is_missing(cell)]
    if all(isinstance(cell, (int, float)) and not isinstance(cell, bool) for cell in there):
        grid = np.unique(np.quantile(np.array(there, dtype=np.float64), np.linspace(0, 1, POINTS))).tolist() if there else []
        whole = all(float(cell).is_integer() for cell in there)
        grid = sorted({round(value) for value in grid}) if whole and any(isinstance(cell, int) for cell in there) else grid
    else:
        grid = sorted(dict.fromkeys(there), key=str)[:CATEGORIES]
    if len(grid) < 2:
        raise ValueError(f"{call}: which values? The data have one value of {name!r}. Give values=[...], or a background.")
    return grid


def _replaced(table: Any, place: int, value: Any) -> Any:
    """The table with one value in a whole column."""
    if not is_frame(table):
        changed = table.clone()
        changed[:, place] = value
        return changed
    column = table.columns[place]
    if not hasattr(table, "iloc"):  # polars
        return table.with_columns(**{str(column): [value] * len(table)})
    return _assign(table, column, value)


def _assign(table: Any, column: Any, value: Any) -> Any:
    """A column of one value; categories stay categories."""
    pandas = needs("pandas", "tabular")
    kind = table[column].dtype
    cells = pandas.Series([value] * len(table), index=table.index)
    if isinstance(kind, pandas.CategoricalDtype):
        cells = cells.astype(kind if value in kind.categories else kind.categories.dtype)
    elif str(kind) == "object":
        cells = cells.astype(object)
    changed = table.copy()
    changed[column] = cells
    return changed
