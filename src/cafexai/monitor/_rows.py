"""Rows of any form, explained chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..cafe import CAFE
from ..explanation import Explanation
from ._signals import Signals, read_signals

CHUNK = 4096  # rows explained at once, so that memory stays constant


def explain_rows(cafe: CAFE, rows: Any, options: dict[str, Any], call: str) -> Iterator[Signals]:
    """The watched numbers of rows, chunk by chunk; of an explanation, all at once."""
    if isinstance(rows, Explanation):
        yield read_signals(rows, f"{call}(...)")
        return
    count = len(rows[0]) if isinstance(rows, tuple) else len(rows)
    for start in range(0, count, CHUNK):
        part = take_rows(rows, slice(start, start + CHUNK))
        yield read_signals(cafe.explain(part, show_progress=False, **options), f"{call}(...)")


def take_rows(rows: Any, places: slice) -> Any:
    """Some rows of a tensor, an array, a frame, or a tuple of them."""
    if isinstance(rows, tuple):
        return tuple(take_rows(part, places) for part in rows)
    return rows.iloc[places] if hasattr(rows, "iloc") else rows[places]
