"""From counts to a verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from math import sqrt
from statistics import NormalDist

import numpy as np

from ._bins import MISSING, NEW, Counts, Numbers
from ._histograms import draw_histograms
from ._reference import (
    FAMILIES,
    Reference,
    column_statistics,
    family_statistics,
    new_value_statistics,
    pair_statistics,
)
from ._sentence import write_sentence
from ._signals import CONFLICT, LAST, OUTPUT, name_columns
from ._statistics import (
    area_under_curve,
    bin_means,
    correct,
    correlations,
    kolmogorov_smirnov,
    normal_p,
    smirnov_p,
    stability_index,
    wasserstein,
)
from ._verdict import Effect, Moved, MovedPair, Performance, Verdict
from ._window import Window

CERTAIN = 0.01  # corrected p-values below it are named
MORE_MISSING = 0.05  # growth of the share of missing values, beyond five standard errors, that makes a column missing
BY_CHANCE = 1e-6  # a column is frozen if rows of the reference would all be equal more rarely than this
MOSTLY = 0.5  # if more rows have new values, the column has other values altogether: no new category
MATTERS = 0.1  # standard deviations of the output that make an alert
WORSE = 0.02  # a loss of accuracy, beyond chance, that makes an alert
BROKEN = frozenset(("missing", "not finite", "frozen"))  # faults by which a column is lost
DRAWS = 200  # bootstrap samples
FAMILY = {"input": "inputs", "positive": "scores", "negative": "scores", "net": "scores"}  # of columns; others are their own


def judge(reference: Reference, window: Window) -> Verdict:
    """Compare a window with the reference."""
    values = family_statistics(reference, window)
    statistics = {family: (value, reference.limits[family]) for family, value in values.items()}
    alarms = {family: pair for family, pair in statistics.items() if pair[0] > pair[1]}
    columns, missing = broken_columns(reference, window)
    distances, z, p = p_values(reference, window)
    output, conflict = (_effect(reference, window, place) for place in (OUTPUT, CONFLICT))
    performance = _performance(reference.window, window)
    kind = _kind(alarms, columns)
    matters = _matters(kind, output, columns, "output" in alarms)
    harm = _harm(kind, matters, performance, reference)
    found = Verdict(
        kind=kind,
        severity="alert" if matters or harm == "seen" else "none" if kind == "none" else "warn",
        harm=harm,
        sentence="",
        rows=window.rows,
        scored=window.scored,
        alarms=alarms,
        statistics=statistics,
        p=float(p.min(initial=1.0)),
        moved=_moved_columns(reference, window, distances, p),
        pairs=_moved_pairs(reference, window, z, p[len(distances) :]),
        output=output,
        conflict=conflict,
        columns=columns,
        missing=missing,
        ranking=_ranking(reference.window.sizes, window.sizes),
        performance=performance,
        false_alarms=reference.false_alarms,
    )
    if kind != "none":
        found = dataclasses.replace(found, histograms=draw_histograms(reference, window, found.moved, list(columns)))
    return dataclasses.replace(found, sentence=write_sentence(found, len(reference.features), reference.minimum))


def p_values(reference: Reference, window: Window) -> tuple[Numbers, Numbers, Numbers]:
    """Distances of all columns, z of all pairs of inputs, and p-values of both, corrected for the number of all of them."""
    distances = kolmogorov_smirnov(window.counts, reference.window.counts)
    chosen = np.triu_indices(len(reference.features), 1)
    z = pair_statistics(window, reference.window, reference.pair_noise)[chosen]
    columns = smirnov_p(column_statistics(window, reference.window))
    return distances, z, correct(np.concatenate([columns, normal_p(z) if len(z) else z]))


def broken_columns(reference: Reference, window: Window) -> tuple[dict[str, str], dict[str, float]]:
    """Inputs that are missing, do not vary any more, or have values never seen before; and the shares of missing values."""
    found, missing = {}, {}
    new, lost = new_value_statistics(reference, window) > reference.limits["new values"]
    for place, feature in enumerate(reference.features):
        before = reference.window.counts[place] / reference.window.rows
        now = window.counts[place] / window.rows
        usual = before.max()  # the share of the most frequent bin
        error = sqrt(max(now[MISSING] * (1 - now[MISSING]), 1 / window.rows) / window.rows)
        if now[MISSING] - before[MISSING] > max(MORE_MISSING, 5 * error):
            infinite = 2 * window.infinite[place] > window.counts[place, MISSING]
            found[feature], missing[feature] = "not finite" if infinite else "missing", float(now[MISSING])
        elif window.low[place] == window.high[place] and usual**window.rows < BY_CHANCE:
            found[feature] = "frozen"
        elif lost[place]:
            infinite = 2 * window.infinite[place] > window.counts[place, MISSING]
            found[feature], missing[feature] = "new infinite" if infinite else "new missing", float(now[MISSING])
        elif new[place] and now[NEW] <= MOSTLY:
            found[feature] = "new values"
    return found, missing


def _moved_columns(reference: Reference, window: Window, distances: Numbers, p: Numbers) -> tuple[Moved, ...]:
    """Columns whose distribution changed for certain, or beyond the limit of their family; the largest distance first."""
    whole, names = reference.window, name_columns(reference.features)
    scaled, found = column_statistics(window, whole), []
    for place in np.argsort(-distances, kind="stable"):
        kind, feature = names[place]
        if p[place] < CERTAIN or scaled[place] > reference.limits[FAMILY.get(kind, kind)]:
            gap = _distance(whole, window, place)
            psi = stability_index(window.counts[place], whole.counts[place])
            found.append(Moved(kind, feature, float(distances[place]), float(p[place]), gap, psi))
    return tuple(found)


def _moved_pairs(reference: Reference, window: Window, z: Numbers, p: Numbers) -> tuple[MovedPair, ...]:
    """Pairs of inputs whose correlation changed for certain, or beyond the limit; the most certain first."""
    rows, columns = np.triu_indices(len(reference.features), 1)
    before, now = (correlations(part.sums, part.products, part.rows)[rows, columns] for part in (reference.window, window))
    order = np.argsort(-np.abs(z), kind="stable")
    named = [place for place in order if p[place] < CERTAIN or abs(z[place]) > reference.limits["correlations"]]
    names = reference.features
    return tuple(
        MovedPair(names[rows[one]], names[columns[one]], float(before[one]), float(now[one]), float(p[one])) for one in named
    )


def _distance(whole: Window, window: Window, place: int) -> float:
    """Wasserstein's distance of one column."""
    now, before = (bin_means(part.counts[place], part.totals[place]) for part in (window, whole))
    return float(wasserstein(window.counts[place], now, whole.counts[place], before))


def _effect(reference: Reference, window: Window, place: int) -> Effect | None:
    """Wasserstein's distance of output or conflict in standard deviations of the reference, with a basic bootstrap interval.

    The distance of two samples is too large by chance, that of their bootstrap samples once more: the interval corrects it.
    """
    if not window.scored:
        return None
    whole = reference.window
    mean, now = (float(part.totals[place].sum() / part.scored) for part in (whole, window))
    spread = float(reference.spreads[place + len(LAST)]) or 1.0
    size = _distance(whole, window, place) / spread
    random = np.random.default_rng(0)
    drawn = [(_draw(random, part.counts[place]), bin_means(part.counts[place], part.totals[place])) for part in (window, whole)]
    far, near = np.quantile(wasserstein(*drawn[0], *drawn[1]) / spread, [0.95, 0.05])
    return Effect(size, max(0.0, 2 * size - float(far)), max(0.0, 2 * size - float(near)), spread, mean, now)


def _draw(random: np.random.Generator, counts: Counts) -> Counts:
    return random.multinomial(counts.sum(), counts / counts.sum(), DRAWS)


def _performance(whole: Window, window: Window) -> Performance | None:
    if not whole.labelled or not window.labelled:
        return None
    before, now = (part.right / part.labelled for part in (whole, window))
    return Performance(window.labelled, before, now, area_under_curve(*whole.classes), area_under_curve(*window.classes))


def _kind(alarms: Mapping[str, object], columns: Mapping[str, str]) -> str:
    """The most specific kind that fits."""
    if BROKEN & set(columns.values()):
        return "missing or frozen column"
    if columns:
        return "new values"
    if {"inputs", "new values"} & set(alarms):
        return "covariate shift"
    if "correlations" in alarms:
        return "correlation shift"
    if "scores" in alarms:
        return "covariate shift"  # of several columns together: scores see what single columns and pairs do not
    return "output shift" if set(LAST) & set(alarms) else "none"


def _matters(kind: str, output: Effect | None, columns: Mapping[str, str], moved: bool) -> bool:
    """Whether a column is lost, or the output moved noticeably."""
    lost = bool(BROKEN & set(columns.values()))
    return kind != "none" and (lost or (moved and output is not None and output.size >= MATTERS))


def _harm(kind: str, matters: bool, performance: Performance | None, reference: Reference) -> str:
    """What is known of the predictions; see ``Verdict``. A loss of accuracy is one more test at the rate of a family."""
    if performance is not None:
        before, now = performance.accuracy_before, performance.accuracy_now
        errors = before * (1 - before) * (1 / performance.labelled + 1 / reference.window.labelled)
        limit = NormalDist().inv_cdf(1 - reference.false_alarms / len(FAMILIES)) * sqrt(max(errors, 1e-12))
        return "seen" if before - now > max(WORSE, limit) else "not seen"
    return "none" if kind == "none" else "likely" if matters else "unknown"


def _ranking(before: Numbers, now: Numbers) -> float:
    """nDCG of the present order of features, with their former sizes as gains."""
    discount = 1 / np.log2(np.arange(2, len(before) + 2))
    best = (np.sort(before)[::-1] * discount).sum()
    return float((before[np.argsort(-now, kind="stable")] * discount).sum() / best) if best > 0 else 1.0
