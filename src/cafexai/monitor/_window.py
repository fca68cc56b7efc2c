"""What is kept of rows: counts and sums of constant size, which can be added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ._bins import WIDTH, Bins, Counts, Numbers
from ._signals import Signals

LIMIT = 6.0  # deviations at which values are cut off before they enter correlations


@dataclass(frozen=True)
class Standard:
    """How inputs are standardised before they enter correlations: by the reference."""

    center: Numbers
    spread: Numbers

    @classmethod
    def fit(cls, inputs: Numbers) -> Standard:
        """Means and standard deviations without missing values; 1 for columns that do not vary."""
        known = ~np.isnan(inputs)
        count = np.maximum(known.sum(0), 1)
        center = np.where(known, inputs, 0).sum(0) / count
        spread = np.sqrt((np.where(known, inputs - center, 0) ** 2).sum(0) / count)
        return cls(center, np.where(spread > 0, spread, 1.0))

    def apply(self, inputs: Numbers) -> Numbers:
        """Standardised inputs; a missing value is the mean, 0."""
        return np.clip(np.nan_to_num((inputs - self.center) / self.spread, nan=0.0), -LIMIT, LIMIT)


@dataclass(frozen=True)
class Window:
    """Counts and sums of some rows."""

    rows: int
    counts: Counts  # (columns, bins)
    sums: Numbers  # (features,) of standardised inputs
    products: Numbers  # (features, features) of them
    sizes: Numbers  # (features,): sums of |net|
    output: Numbers  # (2,): sums of the output and of its square
    right: int = 0  # rows whose label was predicted, of those with a label
    labelled: int = 0

    @classmethod
    def empty(cls, features: int) -> Window:
        """No rows."""
        columns = 4 * features + 2
        nothing = np.zeros(features)
        return cls(0, np.zeros((columns, WIDTH), np.int64), nothing, np.zeros((features, features)), nothing, np.zeros(2))

    def __add__(self, other: Window) -> Window:
        return Window(
            self.rows + other.rows,
            self.counts + other.counts,
            self.sums + other.sums,
            self.products + other.products,
            self.sizes + other.sizes,
            self.output + other.output,
            self.right + other.right,
            self.labelled + other.labelled,
        )


def place_values(bins: Sequence[Bins], values: Numbers) -> Counts:
    """The bin of every value, (rows, columns)."""
    return np.stack([one.place(values[:, column]) for column, one in enumerate(bins)], 1).astype(np.int64)


def count_places(places: Counts) -> Counts:
    """How many rows are in each bin, (columns, bins)."""
    columns = places.shape[1]
    return np.bincount((places + WIDTH * np.arange(columns)).ravel(), minlength=columns * WIDTH).reshape(columns, WIDTH)


def summarise(bins: Sequence[Bins], standard: Standard, signals: Signals, right: int = 0, labelled: int = 0) -> Window:
    """Counts and sums of these rows."""
    z, output = standard.apply(signals.inputs), signals.output
    return Window(
        len(z),
        count_places(place_values(bins, signals.values)),
        z.sum(0),
        z.T @ z,
        np.abs(signals.nets).sum(0),
        np.array([output.sum(), (output**2).sum()]),
        right,
        labelled,
    )
