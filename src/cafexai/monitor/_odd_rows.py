"""The rows of a window that a person should look at first."""

from __future__ import annotations

import numpy as np

from ._judge import FAMILY
from ._reference import Reference, column_statistics
from ._signals import LAST, Signals, name_columns
from ._verdict import OddRow
from ._window import Window, place_values

LEAST = 0.5  # rows that are added to every bin, so that an empty one is no proof


def find_odd_rows(reference: Reference, window: Window, signals: Signals, count: int) -> tuple[OddRow, ...]:
    """The rows whose values are most typical of what is new in the window.

    Each column that moved counts by how much more frequent the bin of the row is in the window than in the reference.
    """
    names = name_columns(signals.features)
    scaled = column_statistics(window, reference.window)
    limits = np.array([reference.limits[FAMILY.get(kind, kind)] for kind, _ in names])
    new = (window.counts > 0) & (reference.window.counts == 0)
    moved = np.flatnonzero((scaled > limits) | new[:, -2:].any(1))
    if not len(moved):
        return ()
    places = place_values([reference.bins[place] for place in moved], signals.values[:, moved])
    shares = [
        (part.counts[moved] + LEAST) / (part.counts[moved].sum(1, keepdims=True) + 1) for part in (window, reference.window)
    ]
    ratio = np.log(shares[0] / shares[1])
    parts = ratio[np.arange(len(moved)), places]  # (rows, moved columns)
    parts[np.isnan(signals.values[:, moved]) & (moved >= len(signals.features))] = 0.0
    known = ~np.isnan(signals.values[:, moved]) | (moved < len(signals.features))  # a row without scores has fewer columns
    sizes = np.where(known, parts, 0.0).sum(1) / np.maximum(known.sum(1), 1)
    order = np.argsort(-sizes, kind="stable")[:count]
    found = []
    for row in order:
        by_feature: dict[str, float] = {}
        for value, place in zip(parts[row], moved, strict=True):
            kind, feature = names[place]
            name = kind if kind in LAST else feature
            by_feature[name] = by_feature.get(name, 0.0) + float(value)
        why = sorted((name for name in by_feature if by_feature[name] > 0), key=lambda name: -by_feature[name])[:3]
        shown = {name: _show(reference, signals, int(row), name) for name in why}
        output = float(signals.output[row])
        found.append(OddRow(int(row), float(sizes[row]), output if np.isfinite(output) else None, shown))
    return tuple(found)


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
