"""How much conflict is usual: background rows, explained in the background as the rows of the table are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..explanation.conflict_scale import ConflictScale, describe_settings
from .requests import Choice, Refused
from .session import Session

ROWS, STEP = 200, 10  # background rows; of these at a time, so that requests do not wait long
ENOUGH = 20  # rows, below which a rank says nothing


def make_scale(session: Session, choice: Choice) -> Iterator[None]:
    """Fill ``session.scales`` for a choice, step by step, with what ``CAFE.conflict_scale`` gives."""
    rows = session.typical_rows(ROWS)
    first = rows[0] if isinstance(rows, (tuple, list)) and not isinstance(rows[0], str) else rows
    count = len(first)
    shares: list[float] = []
    kinds: set[str] = set()
    for start in range(0, count if count >= ENOUGH else 0, STEP):
        try:
            e = session.explain_inputs(_slice_rows(rows, slice(start, start + STEP)), choice)
        except Refused:  # the rows that are shown say why
            return
        shares += e.conflict_share.tolist()
        kinds.add(e.conflict_kind)
        yield
    if len(kinds) == 1:
        about = "" if choice.target is None else e.target_name()
        among = "rows of the data" if session.cafe.background is None else "background rows"
        session.scales[choice] = ConflictScale(tuple(shares), kinds.pop(), about, describe_settings(e), among)


def _slice_rows(rows: Any, part: slice) -> Any:
    """Some rows of a frame, of a tensor or array, of texts, or of each of several inputs."""
    if isinstance(rows, tuple):
        return tuple(_slice_rows(one, part) for one in rows)
    return rows.iloc[part] if hasattr(rows, "iloc") else rows[part]
