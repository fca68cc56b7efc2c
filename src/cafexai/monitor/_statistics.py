"""Distances between two sets of counts, and their p-values."""

from __future__ import annotations

from math import erfc, sqrt

import numpy as np

from ._bins import LEVELS, Bins, Counts, Numbers

TINY = 1e-4  # a share that PSI takes for 0


def cumulative(counts: Counts) -> Numbers:
    """The share of rows up to each bin. Missing values come first, new ones last."""
    ordered = np.concatenate([counts[..., -1:], counts[..., :-1]], -1)
    total = ordered.sum(-1, keepdims=True)
    return np.cumsum(ordered, -1) / np.maximum(total, 1)


def kolmogorov_smirnov(one: Counts, two: Counts) -> Numbers:
    """The largest difference of the cumulative shares. Inside bins it is not seen, so it is never too large."""
    return np.abs(cumulative(one) - cumulative(two)).max(-1)


def scale(distance: Numbers, one: float, two: float) -> Numbers:
    """A distance of so many rows from so many others, in units in which its chance distribution does not depend on them."""
    return distance * np.sqrt(one * two / (one + two))


def smirnov_p(scaled: Numbers) -> Numbers:
    """How probable a scaled distance this large is by chance (Kolmogorov's limit)."""
    scaled = np.asarray(scaled, dtype=np.float64)
    k = np.arange(1, 101)
    with np.errstate(under="ignore"):
        terms = 2 * (-1.0) ** (k - 1) * np.exp(-2 * (k * np.maximum(scaled, 0.2)[..., None]) ** 2)
    return np.where(scaled < 0.2, 1.0, np.clip(terms.sum(-1), 0.0, 1.0))


def normal_p(z: Numbers) -> Numbers:
    """Two-sided p-value of a standard normal number."""
    return np.vectorize(lambda one: erfc(abs(one) / sqrt(2)), otypes=[np.float64])(z)


def correct(p: Numbers) -> Numbers:
    """Benjamini and Yekutieli's correction for many tests that may depend on each other in any way."""
    count = len(p)
    if not count:
        return p
    order = np.argsort(p)[::-1]
    factor = (1 / np.arange(1, count + 1)).sum() * count
    ranked = p[order] * factor / np.arange(count, 0, -1)
    result = np.empty(count)
    result[order] = np.minimum(np.minimum.accumulate(ranked), 1.0)
    return result


def wasserstein(bins: Bins, one: Counts, two: Counts) -> Numbers:
    """How far values moved on average, in the units of the column; known values only."""
    first, second = (np.cumsum(counts[..., :LEVELS], -1) for counts in (one, two))
    gap = first / np.maximum(first[..., -1:], 1) - second / np.maximum(second[..., -1:], 1)
    return (np.abs(gap)[..., :-1] * bins.widths()).sum(-1)


def stability_index(one: Counts, two: Counts) -> float:
    """PSI, the population stability index."""
    a, b = (np.maximum(counts / max(counts.sum(), 1), TINY) for counts in (one, two))
    return float(((a - b) * np.log(a / b)).sum())


def correlations(sums: Numbers, products: Numbers, rows: float) -> Numbers:
    """The correlation matrix from sums and sums of products; 0 for columns that do not vary."""
    covariance = products / rows - np.outer(sums, sums) / rows**2
    deviation = np.sqrt(np.clip(np.diag(covariance), 0, None))
    safe = np.where(deviation > 1e-9, deviation, np.inf)
    return np.clip(covariance / np.outer(safe, safe), -1, 1)
