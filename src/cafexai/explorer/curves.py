"""What-if curves: the output of one row while one of its columns changes (ICE)."""

from __future__ import annotations

from typing import Any

from .._inputs.table_values import word as cell_word
from ..plotting.row_lines import number
from .requests import Choice, Refused, word
from .rows import Edits, plain
from .session import Session


def curve(session: Session, place: int, choice: Choice, edits: Edits, column: Any) -> dict[str, Any]:
    """The output, and its probability where it has one, at values of a column; all others stay as they are."""
    rows = session.rows
    name = word(column, list(rows.editable), "column")
    kind = rows.editable[name].kind
    frame, _ = rows.inputs([place], edits)
    now = plain(frame[name].iloc[0])
    values = rows.usual(name)
    if not values:
        raise Refused("This column holds no values.", name)
    if kind == "number" and now is not None:
        values = sorted({*values, now})
    aimed = session.fix_target(place, choice)
    found = session.cafe.what_if(frame, name, values, aimed.target, session.output, aimed.against)
    outputs = found.outputs[0].tolist()
    return {
        "column": name,
        "kind": kind,
        "values": [plain(value) if kind == "number" else cell_word(value) for value in values],
        "outputs": outputs,
        "told": [number(one) for one in outputs],
        "chances": None if found.probabilities is None else found.probabilities[0].tolist(),
        "now": now if kind == "number" or now is None else cell_word(now),
    }
