"""What-if curves: the output of one row while one of its columns changes (ICE)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._inputs.table_values import word as cell_word
from ..plotting.row_lines import number
from .requests import Choice, Refused, word
from .rows import Edits, plain
from .session import Session

POINTS, WORDS = 41, 30  # of a curve: numbers, categories
ENDS = (0.01, 0.99)  # quantiles of the data between which numbers change


def curve(session: Session, place: int, choice: Choice, edits: Edits, column: Any) -> dict[str, Any]:
    """The output, and its probability where it has one, at values of a column; all others stay as they are."""
    rows = session.rows
    name = word(column, list(rows.editable), "column")
    values = points(session, name)
    now = edits.get("cells", {}).get(name, plain(rows.data.rows[name].iloc[place]))
    kind = rows.editable[name].kind
    if kind == "number" and isinstance(now, (int, float)):
        values = sorted({*values, float(now)})
    aimed = session.aimed(place, choice)
    outputs = session.outputs(rows.varied(place, edits, name, values))
    likely = session.probabilities(outputs, session.of_row(place, choice).meta.final)
    chosen = outputs.reshape(len(values), -1)
    target = aimed.target or 0
    numbers = chosen[:, target] if aimed.against is None else chosen[:, target] - chosen[:, aimed.against]
    chances = None if likely is None else likely.reshape(len(values), -1)[:, target].tolist()
    return {
        "column": name,
        "kind": kind,
        "values": [plain(value) if kind == "number" else cell_word(value) for value in values],
        "outputs": numbers.tolist(),
        "told": [number(one) for one in numbers.tolist()],
        "chances": chances,
        "now": now if kind == "number" or now is None else cell_word(now),
    }


def points(session: Session, name: str) -> list[Any]:
    """The values that a column takes: between quantiles of the data, or its categories, the most frequent first."""
    rows = session.rows
    column = rows.editable[name]
    cells = rows.data.rows[name]
    if column.kind == "number":
        known = cells.to_numpy(dtype=np.float64, na_value=np.nan)
        known = known[np.isfinite(known)]
        if not len(known):
            raise Refused("This column holds no numbers.", name)
        low, high = np.quantile(known, ENDS)
        return np.linspace(low, high, POINTS).tolist() if high > low else [float(low)]
    if column.kind == "date":
        known = np.sort(cells.dropna().unique())
        return [rows.cell_of(name, known[i]) for i in np.unique(np.linspace(0, len(known) - 1, POINTS).astype(int))]
    return [rows.cell_of(name, one) for one in column.words[:WORDS]]
