"""Rows of numbers and words into scaled columns and one-hot blocks, as the paper prepares Titanic and MIMIC-IV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from .record import Scaler, robust


def encode(
    numbers: Mapping[str, np.ndarray], words: Mapping[str, np.ndarray], train: np.ndarray, test: np.ndarray
) -> tuple[Tensor, Tensor, Scaler, tuple[str, ...], dict[str, tuple[int, ...]]]:
    """Train and test rows, their scaler, column names, and the one-hot blocks; all fitted on the train rows.

    A word that only the test rows have becomes a block of zeros.
    """
    table = np.stack([np.asarray(column, dtype=np.float64) for column in numbers.values()], 1)
    names = list(numbers)
    blocks: dict[str, tuple[int, ...]] = {}
    columns = [table]
    for feature, values in words.items():
        known = sorted(set(values[train].tolist()))
        blocks[feature] = tuple(range(len(names), len(names) + len(known)))
        names += [f"{feature}_{word}" for word in known]
        columns.append(one_hot(values, known))
    raw = np.concatenate(columns, 1)
    scaler = robust(raw[train], len(numbers))
    scaled = [scaler.transform(torch.from_numpy(raw[rows])).float() for rows in (train, test)]
    return scaled[0], scaled[1], scaler, tuple(names), blocks


def one_hot(values: np.ndarray, known: Sequence[str]) -> np.ndarray:
    """(rows,) words to (rows, known) zeros and ones."""
    return (values[:, None] == np.asarray(known, dtype=values.dtype)[None]).astype(np.float64)
