"""Rows that cannot be explained together are explained apart: one that fails harms no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..errors import InternalError, ModelChanged
from ..explanation import Explanation
from ..loading.file_errors import short

Explained = Iterator[tuple[Explanation, np.ndarray]]


def explained_apart(explain: Callable[[Any], Explanation], rows: Any, places: np.ndarray, bad: dict[int, str]) -> Explained:
    """Explanations of the rows and the places of these; rows that fail alone are told in ``bad``, with the reason."""
    try:
        explanation = explain(rows)
    except (MemoryError, ModuleNotFoundError, InternalError, ModelChanged):
        raise
    except Exception as error:
        if len(rows) == 1:
            bad[int(places[0])] = f"{type(error).__name__}: {short(error)}"
            return
        half = len(rows) // 2
        for part in (slice(0, half), slice(half, None)):
            some = rows.iloc[part].reset_index(drop=True) if hasattr(rows, "iloc") else rows[part]
            yield from explained_apart(explain, some, places[part], bad)
        return
    yield explanation, places
