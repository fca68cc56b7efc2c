"""What is kept of rows: counts and sums of constant size, which can be added up."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._bins import MISSING, NEW, WIDTH, Bins, Counts, Numbers
from ._signals import LAST, OUTPUT, Signals

STEPS = 4096  # ranks are multiples of 1 / STEPS, so that sums of products depend on no order, up to 2**31 rows
SMALLEST_OF = {"low": np.minimum, "high": np.maximum}  # all other fields are added


def rank_bins(counts: Counts) -> Numbers:
    """The middle rank of every bin, (features, bins), by the counts of the inputs of a reference: -1/2 to 1/2 with mean 0.

    Correlations are of these ranks: they do not depend on the scale of a column, and far values do not drown the others.
    Missing and new values have the middle rank, 0.
    """
    known = np.where(np.arange(WIDTH) < NEW, counts, 0)
    middle = (np.cumsum(known, 1) - known / 2) / np.maximum(known.sum(1, keepdims=True), 1) - 0.5
    return np.where(np.arange(WIDTH) < NEW, np.rint(middle * STEPS) / STEPS, 0.0)


@dataclass(frozen=True)
class Window:
    """Counts and sums of some rows; two windows can be added.

    Sums are of numbers in steps, so they are exact: windows that are added up in any order are equal, bit for bit.

    Args:
        rows: All rows.
        scored: Rows with scores; others have inputs that the model does not take.
        counts: (columns, bins).
        totals: (columns, bins): sums of the values in each bin.
        sums: (features,): of ranks of inputs.
        products: (features, features): of ranks of inputs.
        low: (features,): smallest inputs.
        high: (features,): largest inputs.
        sizes: (features,): sums of |net|.
        infinite: (features,): rows with a number that is not finite.
        right: Rows whose label was predicted.
        labelled: Rows with a label.
        classes: (2, bins): bins of the output where the label is another class than the watched one, and where it is that.
    """

    rows: int
    scored: int
    counts: Counts
    totals: Numbers
    sums: Numbers
    products: Numbers
    low: Numbers
    high: Numbers
    sizes: Numbers
    infinite: Counts
    right: int
    labelled: int
    classes: Counts

    @classmethod
    def empty(cls, features: int) -> Window:
        """No rows.

        Args:
            features: How many features there are.

        Returns:
            A window of zeros.
        """
        columns, nothing = 4 * features + len(LAST), np.zeros(features)
        return cls(
            rows=0,
            scored=0,
            counts=np.zeros((columns, WIDTH), np.int64),
            totals=np.zeros((columns, WIDTH)),
            sums=nothing,
            products=np.zeros((features, features)),
            low=nothing + np.inf,
            high=nothing - np.inf,
            sizes=nothing,
            infinite=np.zeros(features, np.int64),
            right=0,
            labelled=0,
            classes=np.zeros((2, WIDTH), np.int64),
        )

    def __add__(self, other: Window) -> Window:
        pairs = ((field.name, getattr(self, field.name), getattr(other, field.name)) for field in dataclasses.fields(self))
        return Window(**{name: SMALLEST_OF.get(name, operator.add)(one, two) for name, one, two in pairs})


ARRAYS = tuple(name for name, value in vars(Window.empty(1)).items() if isinstance(value, np.ndarray))
NUMBERS = tuple(name for name, value in vars(Window.empty(1)).items() if not isinstance(value, np.ndarray))


def place_values(bins: Sequence[Bins], values: Numbers) -> Counts:
    """The bin of every value, (rows, columns)."""
    return np.stack([one.place(values[:, column]) for column, one in enumerate(bins)], 1).astype(np.int64)


def count_places(places: Counts, features: int, weights: Numbers | None = None) -> Any:
    """How many rows are in each bin, (columns, bins); scores that are missing are not counted. ``weights`` are summed up."""
    columns = places.shape[1]
    flat = (places + WIDTH * np.arange(columns)).ravel()
    summed = None if weights is None else np.where(np.isfinite(weights), weights, 0.0).ravel()
    found = np.bincount(flat, summed, columns * WIDTH).reshape(columns, WIDTH)
    found[features:, MISSING] = 0
    return found


def rank_rows(ranks: Numbers, places: Counts) -> Numbers:
    """The ranks of the inputs of every row, from the bins of all its columns."""
    return ranks[np.arange(len(ranks)), places[:, : len(ranks)]]


def summarise(bins: Sequence[Bins], ranks: Numbers, signals: Signals) -> Window:
    """Counts and sums of these rows; ``ranks`` are those of ``rank_bins``."""
    places, count = place_values(bins, signals.values), len(signals.features)
    z = rank_rows(ranks, places)
    scored = np.isfinite(signals.output)
    known = np.isfinite(signals.inputs)
    values = _in_steps(bins, signals.values)
    right, labelled, classes = _count_labels(signals, places[:, OUTPUT])
    return Window(
        rows=len(z),
        scored=int(scored.sum()),
        counts=count_places(places, count),
        totals=count_places(places, count, values),
        sums=z.sum(0),
        products=z.T @ z,
        low=np.where(known, signals.inputs, np.inf).min(0, initial=np.inf),
        high=np.where(known, signals.inputs, -np.inf).max(0, initial=-np.inf),
        sizes=np.abs(values[scored, 3 * count : 4 * count]).sum(0),
        infinite=(signals.inputs == -np.inf).sum(0),
        right=right,
        labelled=labelled,
        classes=classes,
    )


def _in_steps(bins: Sequence[Bins], values: Numbers) -> Numbers:
    """Values as multiples of the grid of their column: sums of them depend on no order."""
    grids = np.array([one.grid for one in bins])
    return np.rint(values / grids) * grids


def _count_labels(signals: Signals, output: Counts) -> tuple[int, int, Counts]:
    """Right predictions, labels, and the bins of the output by class."""
    classes = np.zeros((2, WIDTH), np.int64)
    if signals.labels is None:
        return 0, 0, classes
    known = ~np.isnan(signals.labels).any(1) & np.isfinite(signals.output)
    right, watched = signals.labels[known].T
    for place in (0, 1):
        classes[place] = np.bincount(output[known][watched == place], minlength=WIDTH)
    return int(right.sum()), int(known.sum()), classes
