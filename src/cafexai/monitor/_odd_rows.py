"""The rows of a window that a person should look at first."""

from __future__ import annotations

from math import log
from statistics import NormalDist

import numpy as np

from ._bins import Numbers
from ._judge import FAMILY
from ._reference import Reference, column_statistics, pair_statistics
from ._signals import LAST, Signals, name_columns
from ._statistics import correlations
from ._verdict import OddRow
from ._window import Window

LEAST = 0.5  # rows that are added to every bin, so that an empty one is no proof
PAIRS = 3  # the pairs that moved apart most
STRONGEST = 0.99  # of a correlation, so that no row is infinitely rare
Evidence = tuple[tuple[str, ...], Numbers]  # the columns that it names, and a logarithm of a ratio for every row; NaN: none


def find_odd_rows(reference: Reference, window: Window, signals: Signals, count: int) -> tuple[OddRow, ...]:
    """The rows whose values are most typical of what is new in the window.

    A row counts by how much more frequent its values are in the window than in the reference: its bin in each column that
    moved, and both values together in pairs whose correlation changed.
    """
    found = [*_weigh_columns(reference, window, signals), *_weigh_pairs(reference, window, signals)]
    if not found:
        return ()
    parts = np.stack([ratios for _, ratios in found], 1)
    known = ~np.isnan(parts)  # a row without scores has fewer columns
    parts = np.where(known, parts, 0.0)
    sizes = parts.sum(1) / np.maximum(known.sum(1), 1)
    rows = []
    for row in np.argsort(-sizes, kind="stable")[:count]:
        weights: dict[str, float] = {}
        for (names, _), value in zip(found, parts[row], strict=True):
            for name in names:
                weights[name] = weights.get(name, 0.0) + float(value) / len(names)
        why = sorted((name for name in weights if weights[name] > 0), key=lambda name: -weights[name])[:3]
        shown = {name: _show(reference, signals, int(row), name) for name in why}
        output = float(signals.output[row])
        rows.append(OddRow(int(row), float(sizes[row]), output if np.isfinite(output) else None, shown))
    return tuple(rows)


def _weigh_columns(reference: Reference, window: Window, signals: Signals) -> list[Evidence]:
    """Of columns that moved, or have values that are new or missing for the first time: shares of the bin of each row."""
    names, inputs = name_columns(signals.features), len(signals.features)
    scaled = column_statistics(window, reference.window)
    limits = np.array([reference.limits[FAMILY.get(kind, kind)] for kind, _ in names])
    new = (window.counts > 0) & (reference.window.counts == 0)
    found: list[Evidence] = []
    for place in np.flatnonzero((scaled > limits) | new[:, -2:].any(1)):
        now, before = ((part.counts[place] + LEAST) / (part.counts[place].sum() + 1) for part in (window, reference.window))
        values = signals.values[:, place]
        ratios = np.log(now / before)[reference.bins[place].place(values)]
        kind, feature = names[place]
        known = (place < inputs) | ~np.isnan(values)
        found.append(((kind if kind in LAST else feature,), np.where(known, ratios, np.nan)))
    return found


def _weigh_pairs(reference: Reference, window: Window, signals: Signals) -> list[Evidence]:
    """Of pairs whose correlation changed: two normal numbers with the ranks of the row, by the old and the new correlation."""
    z = np.abs(pair_statistics(window, reference.window, reference.pair_noise))
    moved = [divmod(int(place), len(z)) for place in np.argsort(-z, axis=None, kind="stable")[:PAIRS]]
    before, now = (correlations(part.sums, part.products, part.rows) for part in (reference.window, window))
    found: list[Evidence] = []
    for pair in (one for one in moved if z[one] > reference.limits["correlations"]):
        x, y = (_normal_scores(reference, signals, place) for place in pair)
        ratios = _log_density(x, y, now[pair]) - _log_density(x, y, before[pair])
        found.append((tuple(signals.features[place] for place in pair), ratios))
    return found


def _normal_scores(reference: Reference, signals: Signals, place: int) -> Numbers:
    """The values of an input as a normal number of the same rank."""
    scores = np.array([NormalDist().inv_cdf(min(max(rank + 0.5, 1e-4), 1 - 1e-4)) for rank in reference.ranks[place]])
    return scores[reference.bins[place].place(signals.inputs[:, place])]


def _log_density(x: Numbers, y: Numbers, correlation: float) -> Numbers:
    """Of two normal numbers with this correlation, without what does not depend on it."""
    r = min(max(float(correlation), -STRONGEST), STRONGEST)
    found: Numbers = -(x * x - 2 * r * x * y + y * y) / (2 * (1 - r * r)) - log(1 - r * r) / 2
    return found


def _show(reference: Reference, signals: Signals, row: int, name: str) -> str:
    """The value of a feature as people know it."""
    if name not in signals.features:
        return f"{signals.values[row, len(LAST) * -1 + LAST.index(name)]:.4g}"
    value = signals.inputs[row, signals.features.index(name)]
    words = reference.categories.get(name, ())
    if np.isnan(value):
        return "missing"
    if np.isinf(value):
        return "not finite" if value < 0 else "a new category"
    return words[int(value)] if words and 0 <= value < len(words) else f"{value:.4g}"
