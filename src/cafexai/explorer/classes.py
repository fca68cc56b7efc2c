"""What the model predicts for each row and what is true: class by class, with a threshold for models of one output."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .._inputs.table_values import word
from .requests import Refused, number
from .rows import Rows
from .session import Session


def classes_of(session: Session) -> list[str]:
    """The classes in words; two for a single output, of which the second is the positive one; empty for numbers."""
    if session.count > 1:
        return session.output_names
    names = session.cafe.class_names
    return list(names) if len(names) == 2 else []


def usual_threshold(session: Session) -> float | None:
    """Where a model of one output and two classes changes its prediction; None for other models."""
    if session.count > 1 or not classes_of(session):
        return None
    return 0.5 if session.likely is not None else 0.0


def chosen_threshold(session: Session, given: Any) -> float | None:
    """The threshold of a request."""
    usual = usual_threshold(session)
    if given is None or usual is None:
        return usual
    if session.likely is not None:
        return number(given, "threshold", 0, 1)
    return number(given, "threshold")


def truth_of(session: Session, rows: Rows) -> np.ndarray | None:
    """The class of each row by the column of labels, -1 where it is none of the classes; None without labels or classes."""
    names = classes_of(session)
    if rows.label is None or not names:
        return None
    codes, values = rows.data.rows[rows.label].factorize()
    found = [class_of(value, names) for value in values]
    return np.array([*found, -1], dtype=np.int32)[codes] if max(found, default=-1) >= 0 else None


def class_of(value: Any, names: list[str]) -> int:
    """The class that a label names, by its word or by its number; -1 if it is none."""
    text = word(value)
    return names.index(text) if text in names else _as_place(value, len(names))


def _as_place(value: Any, count: int) -> int:
    try:
        place = float(value)
    except (TypeError, ValueError):
        return -1
    return int(place) if place.is_integer() and 0 <= place < count else -1


def errors_of(outputs: torch.Tensor, likely: torch.Tensor | None, truth: np.ndarray | None, labels: Any) -> np.ndarray | None:
    """How wrong the model is: 1 - probability of the true class, 1 or 0 without probabilities, or the distance of numbers."""
    if truth is None:
        numbers = _as_numbers(labels)
        single = outputs.reshape(len(outputs), -1)
        return None if numbers is None or single.shape[1] > 1 else np.abs(single[:, 0].numpy() - numbers)
    places = np.clip(truth, 0, None)
    if outputs.ndim == 2 and outputs.shape[1] > 1:
        if likely is None:
            found = (outputs.argmax(1).numpy() != truth).astype(np.float32)
        else:
            found = 1 - likely.numpy()[np.arange(len(places)), places]
    elif likely is None:
        found = ((outputs.reshape(-1).numpy() > 0) != (places == 1)).astype(np.float32)
    else:
        found = np.abs(likely.reshape(-1).numpy() - places)
    return np.where(truth < 0, np.nan, found)


def _as_numbers(labels: Any) -> np.ndarray | None:
    try:
        return np.asarray(labels, dtype=np.float64)
    except (TypeError, ValueError):
        return None


def predictions(scoring: Any, threshold: float | None, where: Any = slice(None)) -> np.ndarray:
    """The predicted class of rows that are scored, -1 for others."""
    if threshold is None:
        found: np.ndarray = scoring.predicted[where]
        return found
    values = scoring.columns.get("chance", scoring.columns["output"])[where]
    return np.where(np.isnan(values), -1, values > threshold).astype(np.int32)


def wrong_rows(scoring: Any, truth: np.ndarray | None, threshold: float | None) -> np.ndarray:
    """Rows whose prediction is not what is true."""
    if truth is None:
        raise Refused("Wrong rows are known with labels (label=, --label) of a classifier.", "wrong")
    predicted = predictions(scoring, threshold)
    return (predicted >= 0) & (truth >= 0) & (predicted != truth)
