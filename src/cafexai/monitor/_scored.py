"""Scores that ``cafexai batch`` wrote, read as watched numbers: nothing is explained twice."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._rows import Reader, take_rows
from ._signals import KINDS, LAST, Signals

TRIED = 16  # rows explained again, to see that the scores belong to this monitor
CLOSE = 1e-4  # allowed difference, as a share of the largest number


def read_scored(frame: Any, reader: Reader, call: str) -> Signals:
    """The watched numbers of rows in the form of ``batch``; some rows are explained again and compared.

    Raises:
        ValueError: Columns are missing, or the scores were made by another model, baseline or other settings.
    """
    features = reader.features or ()
    scores = [f"{kind}_{name}" for kind in KINDS[1:] for name in features]
    if lost := [name for name in (*scores, *LAST) if name not in frame.columns]:
        raise ValueError(
            f"{call}(...): the scores have no column {lost[0]!r}. Score the columns of the monitor with scores='all' "
            "and without top=."
        )
    if lost := [name for name in features if name not in frame.columns]:
        raise ValueError(
            f"{call}(...): the scores have no inputs: {', '.join(lost)}. Score with keep= (--keep), which copies these columns."
        )
    if not len(frame):
        raise ValueError(f"{call}(...): there are no rows.")
    numbers = frame[[*scores, *LAST]].to_numpy(dtype=np.float64)
    signals = Signals(features, np.concatenate([reader.read_inputs(frame), numbers], 1))
    places = np.unique(np.linspace(0, len(frame) - 1, TRIED).astype(int))
    again = Signals.join(list(reader.read(take_rows(frame[list(features)], places), None, call)))
    if not _is_close(signals.take(places), again):
        raise ValueError(
            f"{call}(...): {len(places)} rows were explained again, and their scores differ. These scores were made by another "
            "model, target, baseline or other settings than this monitor. Score with those of Monitor.fit."
        )
    return signals


def _is_close(one: Signals, two: Signals) -> bool:
    count = len(one.features)
    for part in (slice(0, count), slice(count, None)):
        first, second = one.values[:, part], two.values[:, part]
        size = float(np.abs(second[np.isfinite(second)]).max(initial=0.0))
        if not np.allclose(first, second, rtol=0.0, atol=CLOSE * size, equal_nan=True):
            return False
    return True
