"""What-if curves: the output of the model while one feature of a row takes other values (ICE)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from .._engine.evaluate import Asked, evaluate
from .._engine.forward import plain_output
from .._engine.job import Job
from .._engine.output_probabilities import probabilities
from .._extras import needs
from .._inputs.prepare import is_frame, row_names_of
from .._inputs.table_values import column_of, is_date_column, is_missing
from .._inputs.target import pick_outputs
from ..explanation import Explanation

if TYPE_CHECKING:
    import pandas

    from ..plotting.picture import Picture

POINTS, CATEGORIES = 41, 50  # values that are tried unless some are given
ENDS = (0.01, 0.99)  # quantiles between which numbers change
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
        probabilities: (rows, values): the probabilities of the explained class, if the model has them.

    Example:
        >>> import torch
        >>> from cafexai import CAFE
        >>> found = CAFE(torch.nn.Linear(2, 1)).what_if(torch.ones(1, 2), "x0", values=[0.0, 1.0, 2.0])
        >>> found.to_frame().shape[0]
        3
    """

    feature: str
    target: str
    values: tuple[Any, ...]
    outputs: Tensor
    own_values: tuple[Any, ...]
    own_outputs: Tensor
    row_names: tuple[str, ...] | None = None
    probabilities: Tensor | None = None

    @property
    def is_number(self) -> bool:
        """The values are numbers."""
        return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in self.values)

    def to_frame(self) -> pandas.DataFrame:
        """One line per row and value; needs pandas.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> found = CAFE(torch.nn.Linear(2, 1)).what_if(torch.ones(1, 2), "x0", values=[0.0, 1.0, 2.0])
            >>> len(found.to_frame())
            3
        """
        count = len(self.values)
        columns: dict[str, Any] = {"row": np.repeat(np.arange(len(self.outputs)), count)}
        if self.row_names is not None:
            columns["name"] = [name for name in self.row_names for _ in range(count)]
        columns |= {self.feature: list(self.values) * len(self.outputs), "output": self.outputs.flatten().tolist()}
        if self.probabilities is not None:
            columns["probability"] = self.probabilities.flatten().tolist()
        return needs("pandas", "tabular").DataFrame(columns)

    def plot(self) -> Picture:
        """A line per row, with a mark where the row is; needs matplotlib.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> found = CAFE(torch.nn.Linear(2, 1)).what_if(torch.ones(1, 2), "x0", values=[0.0, 1.0, 2.0])
            >>> found.plot().savefig("curve.png")
        """
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
    step = max(1, STEP // max(len(e), 1))
    parts = []
    for first in range(0, len(tried), step):
        some = tried[first : first + step]
        parts.append(_outputs(calls.prepare(_replace_column(table, place, some)), e, len(some)))
    outputs = torch.cat([part[0] for part in parts]).T
    chances = None if parts[0][1] is None else torch.cat([cast(Tensor, part[1]) for part in parts]).T
    names = row_names_of(table)
    return WhatIf(name, e.target_name(), tried, outputs, tuple(own), e.output.double().cpu(), names, chances)


def _outputs(job: Job, e: Explanation, times: int) -> tuple[Tensor, Tensor | None]:
    """(times, rows): explained outputs at changed rows, for the targets of the rows as they were, and their probabilities."""
    target, against = (None if one is None else one.repeat(times, 1) for one in (e.target, e.against))
    assert target is not None
    found, chances = [], []
    for start in range(0, len(target), STEP):
        rows = slice(start, min(start + STEP, len(target)))
        asked = Asked(target[rows], None if against is None else against[rows], e.meta.final)
        batch = job.batch(rows)
        found.append(evaluate(job, batch, asked).double().cpu())
        if e.probability is not None:
            raw = plain_output(job, batch)
            likely = probabilities(job, raw, raw if e.meta.final else None)
            chances += [] if likely is None else [pick_outputs(likely, asked.target).double().cpu()]
    return torch.cat(found).view(times, -1), torch.cat(chances).view(times, -1) if chances else None


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
    """Usual values of the background; without a background, of the rows themselves."""
    cells = own
    if background is not None and not isinstance(background, (tuple, list)):
        cells = column_of(background if is_frame(background) else np.asarray(background), place, name).tolist()
    grid = usual_values(cells)
    if len(grid) < 2:
        raise ValueError(f"{call}: which values? The data have one value of {name!r}. Give values=[...], or a background.")
    return grid


def usual_values(cells: Sequence[Any]) -> list[Any]:
    """What a column may hold: few numbers themselves, many as even steps between quantiles; dates; or categories."""
    there = [cell for cell in cells if not is_missing(cell)]
    if not all(isinstance(cell, (int, float)) and not isinstance(cell, bool) for cell in there):
        known = sorted(dict.fromkeys(there), key=str)
        if not is_date_column(known):
            return known[:CATEGORIES]
        return [known[place] for place in np.unique(np.linspace(0, len(known) - 1, POINTS).astype(int)).tolist()]
    known = sorted(set(there))
    if len(known) <= POINTS:
        return known
    low, high = np.quantile(np.array(there, dtype=np.float64), ENDS).tolist()
    grid = np.linspace(low, high, POINTS).tolist()
    return sorted({round(value) for value in grid}) if all(isinstance(cell, int) for cell in there) else grid


def _replace_column(table: Any, place: int, values: Sequence[Any]) -> Any:
    """The table once for each value, with that value in a whole column."""
    rows, times = len(table), len(values)
    if not is_frame(table):
        changed = table.repeat(times, 1)
        changed[:, place] = torch.tensor(values, dtype=changed.dtype).repeat_interleave(rows)
        return changed
    column, cells = table.columns[place], [value for value in values for _ in range(rows)]
    if not hasattr(table, "iloc"):  # polars
        return table[list(range(rows)) * times].with_columns(**{str(column): cells})
    return _assign(table.iloc[list(range(rows)) * times].reset_index(drop=True), column, cells)


def _assign(table: Any, column: Any, values: Sequence[Any]) -> Any:
    """The table with these cells in a column; categories stay categories."""
    pandas = needs("pandas", "tabular")
    kind = table[column].dtype
    cells = pandas.Series(values)
    if isinstance(kind, pandas.CategoricalDtype):
        cells = cells.astype(kind if cells.isin(kind.categories).all() else kind.categories.dtype)
    elif str(kind) == "object":
        cells = cells.astype(object)
    changed = table.copy()
    changed[column] = cells
    return changed
