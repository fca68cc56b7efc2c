"""The reference of a monitor: bins, counts, and the limits that chunks of the reference itself exceed at a stated rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

from ._bins import MISSING, Bins, Counts, Numbers
from ._signals import Signals, name_columns
from ._statistics import correlations, kolmogorov_smirnov, scale
from ._window import Standard, Window, count_places, place_values, summarise

FAMILIES = ("inputs", "new values", "correlations", "scores", "output", "conflict")  # each has a limit of its own
EXCEEDING = 10  # chunks that exceed the limit of a family: fewer would make it uncertain
MOST_CHUNKS = 20_000
SMALLEST = 30  # rows of a window
FEW_NEW = 0.01  # a share of new values in a column that is never an alarm
CLEAR = 0.25  # the distance (Kolmogorov-Smirnov) in one column that the smallest window must be able to show


@dataclass(frozen=True)
class Reference:
    """What windows are compared with."""

    features: tuple[str, ...]
    bins: tuple[Bins, ...]  # of each column
    standard: Standard
    window: Window  # the counts of the reference
    pair_noise: Numbers  # (features, features): standard deviation of a correlation times the root of the rows
    limits: Mapping[str, float]  # by family, of scaled statistics
    false_alarms: float
    chunk_rows: int

    @property
    def minimum(self) -> int:
        """The smallest window that can be judged: it shows a clear change of one column with a probability above one half."""
        needed = ceil((max(self.limits["inputs"], self.limits["scores"]) / CLEAR) ** 2)
        return max(SMALLEST, needed)


def fit_reference(signals: Signals, false_alarms: float, chunk_rows: int, seed: int, right: int, labelled: int) -> Reference:
    """Bins and limits from the rows of a reference."""
    bins = tuple(Bins.fit(signals.values[:, column]) for column in range(signals.values.shape[1]))
    standard = Standard.fit(signals.inputs)
    window = summarise(bins, standard, signals, right, labelled)
    places, z = place_values(bins, signals.values), standard.apply(signals.inputs)
    count = min(MOST_CHUNKS, ceil(EXCEEDING * len(FAMILIES) / false_alarms))
    chunks = list(_draw_chunks(len(z), chunk_rows, count, seed))
    noise = _pair_noise(z, chunks[: min(len(chunks), 500)])
    maxima: dict[str, list[float]] = {family: [] for family in FAMILIES}
    for rows in chunks:
        part, rest = _split(window, places[rows], z[rows])
        for family, value in family_statistics(signals.features, part, rest, noise).items():
            maxima[family].append(value)
    level = 1 - false_alarms / len(FAMILIES)
    limits = {family: float(np.quantile(values, level, method="higher")) for family, values in maxima.items()}
    limits["new values"] = max(limits["new values"], FEW_NEW)
    return Reference(signals.features, bins, standard, window, noise, limits, false_alarms, chunk_rows)


def _draw_chunks(rows: int, size: int, count: int, seed: int) -> list[Counts]:
    random = np.random.default_rng(seed)
    return [random.choice(rows, size, replace=False, shuffle=False) for _ in range(count)]


def _split(whole: Window, places: Counts, z: Numbers) -> tuple[Window, Window]:
    """A chunk of the reference, and all the rest of it."""
    zero = np.zeros_like(whole.sizes)
    part = Window(len(z), count_places(places), z.sum(0), z.T @ z, zero, np.zeros(2))
    sums, products = whole.sums - part.sums, whole.products - part.products
    rest = Window(whole.rows - part.rows, whole.counts - part.counts, sums, products, zero, np.zeros(2))
    return part, rest


def _pair_noise(z: Numbers, chunks: list[Counts]) -> Numbers:
    """Standard deviations of correlations over chunks, as if each had one row; chunks drawn from few rows vary less."""
    found = np.stack([correlations(z[rows].sum(0), z[rows].T @ z[rows], len(rows)) for rows in chunks])
    size = len(chunks[0])
    return found.std(0) * np.sqrt(size / (1 - size / len(z)))


def family_statistics(features: tuple[str, ...], one: Window, two: Window, noise: Numbers) -> dict[str, float]:
    """The largest scaled statistic of each family."""
    scaled = column_statistics(one, two)
    count = len(features)
    pairs = np.abs(pair_statistics(one, two, noise))
    return {
        "inputs": float(scaled[:count].max()),
        "new values": float(new_shares(one, two)[:count].max()),
        "correlations": float(pairs.max()) if count > 1 else 0.0,
        "scores": float(scaled[count : 4 * count].max()),
        "output": float(scaled[4 * count]),
        "conflict": float(scaled[4 * count + 1]),
    }


def column_statistics(one: Window, two: Window) -> Numbers:
    """The scaled distance of every column."""
    return scale(kolmogorov_smirnov(one.counts, two.counts), one.rows, two.rows)


def new_shares(one: Window, two: Window) -> Numbers:
    """The share of rows, in every column, with a value that the other rows do not have; for columns with few values."""
    return np.where(two.counts[:, :MISSING] == 0, one.counts[:, :MISSING], 0).sum(1) / one.rows


def pair_statistics(one: Window, two: Window, noise: Numbers) -> Numbers:
    """How many standard deviations the correlation of every pair of inputs moved by; 0 on and below the diagonal."""
    first, second = (correlations(part.sums, part.products, part.rows) for part in (one, two))
    deviation = noise * np.sqrt(1 / one.rows + 1 / two.rows)
    moved = np.where(deviation > 0, (first - second) / np.where(deviation > 0, deviation, 1.0), 0.0)
    return np.triu(moved, 1)


def list_columns(reference: Reference) -> list[tuple[str, str]]:
    """(kind, feature) of every column."""
    return name_columns(reference.features)
