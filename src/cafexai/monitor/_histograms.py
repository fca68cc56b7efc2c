"""Histograms of the reference and of a window, from their counts: what a page shows of columns that moved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ._bins import LEVELS, MISSING, NEW, Bins, Counts, Numbers
from ._reference import Reference
from ._signals import KINDS, LAST
from ._verdict import Histogram, Moved
from ._window import Window

BARS = 20
FEATURES = 8  # that are shown
FEWEST = 12  # values that are shown with a bar each; the rarest others share one


def draw_histograms(
    reference: Reference, window: Window, moved: Sequence[Moved], broken: Sequence[str]
) -> tuple[Histogram, ...]:
    """The output, and inputs, positive and negative scores of the features that moved most."""
    names = dict.fromkeys([*broken, *(one.feature for one in moved if one.feature)])
    found = [_draw(reference, window, "output", "")] if window.scored else []
    for feature in list(names)[:FEATURES]:
        kinds = ("input", "positive", "negative") if window.scored else ("input",)
        found += [_draw(reference, window, kind, feature) for kind in kinds]
    return tuple(found)


def _draw(reference: Reference, window: Window, kind: str, feature: str) -> Histogram:
    count = len(reference.features)
    place = 4 * count + LAST.index(kind) if kind in LAST else KINDS.index(kind) * count + reference.features.index(feature)
    bins, before, now = reference.bins[place], reference.window.counts[place], window.counts[place]
    if bins.few:
        words = reference.categories.get(feature, ()) if kind == "input" else ()
        labels = [words[int(value)] if words and 0 <= value < len(words) else f"{value:.3g}" for value in bins.points]
        first, second = (part[: len(labels)].tolist() for part in (before, now))
        if len(labels) > FEWEST:
            labels, first, second = _join_rare(labels, first, second)
        edges: tuple[float, ...] = ()
    else:
        edges = tuple(_edges(bins).tolist())
        labels, (first, second) = [], (_spread(bins, part, np.array(edges)) for part in (before, now))
    for name, special in (("new", NEW), ("missing", MISSING)):
        if before[special] or now[special]:
            labels, first, second = [*labels, name], [*first, int(before[special])], [*second, int(now[special])]
    shares = (tuple(value / max(sum(part), 1) for value in part) for part in (first, second))
    return Histogram(kind, feature, edges, tuple(labels), *shares)


def _join_rare(labels: list[str], before: list[int], now: list[int]) -> tuple[list[str], list[int], list[int]]:
    """The most frequent values in their order, and all others together."""
    often = np.add(before, now)
    kept = sorted(np.argsort(-often, kind="stable")[: FEWEST - 1].tolist())
    rest = [place for place in range(len(labels)) if place not in set(kept)]
    counts = ([*(part[place] for place in kept), sum(part[place] for place in rest)] for part in (before, now))
    first, second = counts
    return [*(labels[place] for place in kept), f"{len(rest)} others"], first, second


def _edges(bins: Bins) -> Numbers:
    """Equal steps over what the reference has, without its far ends."""
    low, high = float(bins.points[0]), float(bins.points[-1])
    room = 0.25 * (high - low)
    return np.linspace(max(bins.low, low - room), min(bins.high, high + room), BARS + 1)


def _spread(bins: Bins, counts: Counts, edges: Numbers) -> list[float]:
    """Counts between the edges, evenly spread inside a bin; the first and last take what lies beyond."""
    known = counts[:LEVELS][: len(bins.points) + 1]
    knots = np.maximum.accumulate(np.concatenate([[bins.low], bins.points, [bins.high]]))
    below = np.interp(edges, knots, np.concatenate([[0], np.cumsum(known)]))
    below[0], below[-1] = 0, known.sum()
    return np.diff(below).tolist()
