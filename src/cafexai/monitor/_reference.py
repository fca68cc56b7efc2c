"""The reference of a monitor: bins, counts, and the limits that chunks of the reference itself exceed at a stated rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from ._bins import FEW, LEVELS, MISSING, NEW, WIDTH, Bins, Counts, Numbers
from ._signals import LAST, Signals
from ._statistics import correlations, cumulative, kolmogorov_smirnov, scale, surprise, surprise_limit
from ._window import Window, count_places, place_values, rank_bins, rank_rows, summarise

FAMILIES = ("inputs", "new values", "correlations", "scores", *LAST)  # each has a limit of its own
EXCEEDING = 10  # chunks that exceed the limit of a family: fewer would make it uncertain
MOST_CHUNKS = 20_000
SMALLEST = 30  # rows of a window
CLEAR = 0.25  # the distance (Kolmogorov-Smirnov) in one column that the smallest window must be able to show
CLEAR_PAIR = 0.5  # the change of the correlation of a usual pair that it must be able to show


@dataclass(frozen=True)
class Reference:
    """What windows are compared with."""

    features: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]  # words for the codes of features that are categories
    bins: tuple[Bins, ...]  # of each column
    ranks: Numbers  # (features, bins): middle ranks, which correlations are of
    window: Window  # the counts of the reference
    pair_noise: Numbers  # (features, features): standard deviation of a correlation times the root of the rows
    limits: Mapping[str, float]  # by family, of scaled statistics
    false_alarms: float
    chunk_rows: int
    spreads: Numbers  # standard deviations of output, conflict and s_conf

    @property
    def minimum(self) -> int:
        """The smallest window that can be judged.

        It shows a clear change of one column, or of the correlation of a usual pair, with a probability above one half.
        """
        known = self.pair_noise[np.triu_indices(len(self.features), 1)]
        noise = float(np.median(known[known > 0])) if (known > 0).any() else 0.0
        column = (max(self.limits["inputs"], self.limits["scores"]) / CLEAR) ** 2
        needed = max(column, (self.limits["correlations"] * noise / CLEAR_PAIR) ** 2)
        rows = self.window.rows  # the reference varies by chance, too
        return max(SMALLEST, ceil(needed * rows / (rows - needed)) if rows > needed else rows)

    @property
    def unseen(self) -> Numbers:
        """The expected share of values never seen, by feature: those seen once, as a share (Good and Turing), and one more."""
        counts = self.window.counts[: len(self.features), :LEVELS]
        return ((counts == 1).sum(1) + 1) / self.window.rows

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Which features have no missing value in the reference."""
        return self.window.counts[: len(self.features), MISSING] == 0


def fit_reference(
    signals: Signals, categories: Mapping[str, tuple[str, ...]], false_alarms: float, chunk_rows: int, seed: int
) -> Reference:
    """Bins and limits from the rows of a reference."""
    count = len(signals.features)
    most = [LEVELS if name in categories else FEW for name in signals.features] + [FEW] * (3 * count + len(LAST))
    bins = tuple(Bins.fit(signals.values[:, column], most[column]) for column in range(signals.values.shape[1]))
    places = place_values(bins, signals.values)
    ranks = rank_bins(count_places(places, count)[:count])
    window, z = summarise(bins, ranks, signals), rank_rows(ranks, places)
    chunks = _draw_chunks(len(z), chunk_rows, min(MOST_CHUNKS, ceil(EXCEEDING * len(FAMILIES) / false_alarms)), seed)
    noise = _pair_noise(z, chunks[: min(len(chunks), 500)])
    maxima = chunk_statistics(window, places, z, chunks, noise)
    rate = false_alarms / len(FAMILIES)
    limits = {family: float(np.quantile(values, 1 - rate, method="higher")) for family, values in maxima.items()}
    spreads = signals.values[:, -len(LAST) :].std(0)
    found = Reference(signals.features, categories, bins, ranks, window, noise, limits, false_alarms, chunk_rows, spreads)
    limits["new values"] = surprise_limit(rate, count + int(found.complete.sum()))
    return found


def _draw_chunks(rows: int, size: int, count: int, seed: int) -> list[Counts]:
    random = np.random.default_rng(seed)
    return [random.choice(rows, size, replace=False, shuffle=False) for _ in range(count)]


def chunk_statistics(whole: Window, places: Counts, z: Numbers, chunks: list[Counts], noise: Numbers) -> dict[str, list[float]]:
    """``chance_statistics`` of every chunk of the reference against all the rest of it, without making windows of them."""
    rows, columns = places.shape
    flat = ((places + 1) % WIDTH + WIDTH * np.arange(columns)).astype(np.int32)  # missing values first, as in ``cumulative``
    usual, upper = cumulative(whole.counts), np.triu_indices(z.shape[1], 1)
    found: dict[str, list[float]] = {family: [] for family in FAMILIES if family != "new values"}
    for chunk in chunks:
        size, part = len(chunk), z[chunk]
        counts = np.bincount(flat[chunk].ravel(), minlength=columns * WIDTH).reshape(columns, WIDTH)
        distance = np.abs(counts.cumsum(1) / size - usual).max(1)  # from all rows
        distance *= rows / (rows - size)  # from the rest
        sums, products = part.sum(0), part.T @ part
        before = correlations(whole.sums - sums, whole.products - products, rows - size)
        moved = _pair_moves(correlations(sums, products, size), before, noise, size, rows - size)[upper]
        scaled = scale(distance, np.array(float(size)), np.array(float(rows - size)))
        for family, value in _largest(scaled, moved, z.shape[1]).items():
            found[family].append(value)
    return found


def _pair_noise(z: Numbers, chunks: list[Counts]) -> Numbers:
    """Standard deviations of correlations over chunks, as if each had one row; chunks drawn from few rows vary less."""
    found = np.stack([correlations(z[rows].sum(0), z[rows].T @ z[rows], len(rows)) for rows in chunks])
    size = len(chunks[0])
    return found.std(0) * np.sqrt(size / (1 - size / len(z)))


def family_statistics(reference: Reference, window: Window) -> dict[str, float]:
    """The largest scaled statistic of each family."""
    found = chance_statistics(window, reference.window, reference.pair_noise)
    found["new values"] = float(new_value_statistics(reference, window).max())
    return {family: found[family] for family in FAMILIES}


def chance_statistics(one: Window, two: Window, noise: Numbers) -> dict[str, float]:
    """The statistics whose chance distribution comes from chunks of the reference: all but new values."""
    return _largest(column_statistics(one, two), pair_statistics(one, two, noise), len(one.sums))


def _largest(scaled: Numbers, pairs: Numbers, count: int) -> dict[str, float]:
    """The largest statistic of each family, of all columns and pairs."""
    return {
        "inputs": float(scaled[:count].max()),
        "correlations": float(np.abs(pairs).max(initial=0.0)),
        "scores": float(scaled[count : 4 * count].max()),
        **{family: float(scaled[4 * count + place]) for place, family in enumerate(LAST)},
    }


def column_statistics(one: Window, two: Window) -> Numbers:
    """The scaled distance of every column."""
    return scale(kolmogorov_smirnov(one.counts, two.counts), one.counts.sum(-1), two.counts.sum(-1))


def new_value_statistics(reference: Reference, window: Window) -> Numbers:
    """How surprising the values are that the reference does not have, (2, features).

    New values of columns with few values, and missing values of columns in which none was missing.
    """
    inputs = window.counts[: len(reference.features)]
    once = np.where(reference.complete, window.rows / reference.window.rows, np.inf)  # never seen counts as seen once
    cases = ((inputs[:, NEW], reference.unseen * window.rows), (inputs[:, MISSING], once))
    return np.array([[surprise(int(count), float(usual)) for count, usual in zip(*case, strict=True)] for case in cases])


def pair_statistics(one: Window, two: Window, noise: Numbers) -> Numbers:
    """How many standard deviations the correlation of every pair of inputs moved by; 0 on and below the diagonal."""
    first, second = (correlations(part.sums, part.products, part.rows) for part in (one, two))
    return np.triu(_pair_moves(first, second, noise, one.rows, two.rows), 1)


def _pair_moves(one: Numbers, two: Numbers, noise: Numbers, rows: int, others: int) -> Numbers:
    """Differences of correlations in their standard deviations."""
    deviation = noise * np.sqrt(1 / rows + 1 / others)
    return np.where(deviation > 0, (one - two) / np.where(deviation > 0, deviation, 1.0), 0.0)
