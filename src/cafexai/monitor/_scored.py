"""Scores that ``cafexai batch`` wrote, read as watched numbers: nothing is explained twice."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ._rows import Reader
from ._signals import KINDS, LAST, Signals


def read_scored(frame: Any, labels: Any, reader: Reader, call: str) -> Signals:
    """The watched numbers of rows in the form of ``batch``; some rows are explained again and compared.

    Raises:
        ValueError: Columns are missing, or the scores were made by another model, baseline or other settings.
    """
    features = reader.features or tuple(name.removeprefix("net_") for name in frame.columns if name.startswith("net_"))
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
    rows = frame[list(features)].reset_index(drop=True)
    if reader.categories is None:
        reader = dataclasses.replace(reader, features=features, categories=read_categories(reader, rows))
    numbers = frame[[*scores, *LAST]].to_numpy(dtype=np.float64)
    signals = Signals(features, np.concatenate([reader.read_inputs(rows), numbers], 1))
    reader.compare(signals, rows, f"{call}(...)")
    if labels is None:
        return signals
    known = np.asarray(labels)
    if len(known) != len(rows):
        raise ValueError(f"{call}(..., labels=...): {len(known)} labels for {len(rows)} rows. Give one label per row.")
    return Signals(features, signals.values, reader.compare_labels(rows, known, signals.output, call))


def read_categories(reader: Reader, rows: Any) -> dict[str, tuple[str, ...]]:
    """The words for codes of features that are categories."""
    return {name: tuple(words) for name, words in reader.explain_first(rows).features.categories.items()}
