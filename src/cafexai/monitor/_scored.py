"""Scores that ``cafexai batch`` wrote, read as watched numbers: nothing is explained twice."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..explanation import Explanation
from ._rows import Reader
from ._signals import KINDS, LAST, Signals


def read_scored(frame: Any, labels: Any, reader: Reader, call: str) -> Signals:
    """The watched numbers of rows in the form of ``batch``; some rows are explained again and compared.

    Raises:
        ValueError: Columns are missing, or the scores were made by another model, baseline or other settings.
    """
    if "reason" in frame.columns and "output" not in frame.columns:  # a file of refused rows alone
        frame = frame.assign(**dict.fromkeys(_score_columns(reader.features or ()), np.nan))
    features = reader.features or tuple(name.removeprefix("net_") for name in frame.columns if name.startswith("net_"))
    scores = _score_columns(features)
    if lost := [name for name in scores if name not in frame.columns]:
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
        first = rows[frame["output"].notna().to_numpy()]
        reader = dataclasses.replace(reader, features=features, categories=find_categories(reader, first))
    numbers = frame[scores].to_numpy(dtype=np.float64)
    signals = Signals(features, np.concatenate([reader.read_inputs(rows), numbers], 1))
    good = np.flatnonzero(np.isfinite(signals.output))  # the others were refused
    reader.compare(signals.take(good), rows.iloc[good].reset_index(drop=True), f"{call}(...)")
    if labels is None:
        return signals
    known = np.asarray(labels)
    if len(known) != len(rows):
        raise ValueError(f"{call}(..., labels=...): {len(known)} labels for {len(rows)} rows. Give one label per row.")
    told = np.full((len(rows), 2), np.nan)
    if len(good):
        some = rows.iloc[good].reset_index(drop=True)
        told[good] = reader.compare_labels(some, known[good], signals.output[good], call)
    return Signals(features, signals.values, told)


def _score_columns(features: tuple[str, ...]) -> list[str]:
    return [*(f"{kind}_{name}" for kind in KINDS[1:] for name in features), *LAST]


def find_categories(reader: Reader, rows: Any) -> dict[str, tuple[str, ...]]:
    """The words for codes of features that are categories."""
    if isinstance(rows, Signals):
        return {}
    one = rows if isinstance(rows, Explanation) else reader.explain_first(rows)
    return {name: tuple(words) for name, words in one.features.categories.items()}
