"""Bins of one column, fixed when a monitor is fitted: counts in them can be added up exactly."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Counts = NDArray[np.int64]

LEVELS = 64  # bins of a column with many values: equal shares of the reference
FEW = 32  # a number with up to so many different values has a bin for each; a category up to LEVELS
NEW, MISSING = LEVELS, LEVELS + 1  # the last two bins: values never seen (of columns with few values), and missing ones
DIGITS = 26  # binary digits of values in sums: 2**27 rows are summed up without any rounding
WIDTH = LEVELS + 2  # counts per column; bins that a column does not need stay 0


@dataclass(frozen=True)
class Bins:
    """Where the values of one column are counted.

    ``points`` are the values themselves if there are few of them (``few``), else the inner edges between bins; ``low`` and
    ``high`` are the smallest and largest value of the reference.
    """

    points: Numbers
    few: bool
    low: float
    high: float

    @classmethod
    def fit(cls, values: Numbers, most: int = FEW) -> Bins:
        """The bins for a reference; missing values (NaN) are left out. Up to ``most`` different values have a bin each."""
        known = values[np.isfinite(values)]
        different = np.unique(known)
        low, high = (float(different[0]), float(different[-1])) if len(different) else (0.0, 0.0)
        if len(different) <= most:
            return cls(different, True, low, high)
        return cls(np.unique(np.quantile(known, np.arange(1, LEVELS) / LEVELS)), False, low, high)

    def place(self, values: Numbers) -> Counts:
        """The bin of every value."""
        found = np.searchsorted(self.points, values, side="left" if self.few else "right")
        if self.few:
            inside = np.minimum(found, max(len(self.points) - 1, 0))
            seen = self.points[inside] == values if len(self.points) else np.zeros(len(values), bool)
            found = np.where(seen, inside, NEW)
        return np.where(np.isnan(values) | (values == -np.inf), MISSING, found)

    @property
    def grid(self) -> float:
        """The step of values in sums: so small that it is not seen, and a power of two, so that sums depend on no order."""
        return 2.0 ** (frexp(max(abs(self.low), abs(self.high)))[1] - DIGITS)
