"""Distances between two sets of counts, and their p-values."""

from __future__ import annotations

from math import erfc, exp, lgamma, log, log10, sqrt

import numpy as np

from ._bins import MISSING, NEW, Counts, Numbers

TINY = 1e-4  # a share that PSI takes for 0
GROUPS = 10  # of bins, for PSI
MOST_TERMS = 500  # of a sum that converges long before


def cumulative(counts: Counts) -> Numbers:
    """The share of rows up to each bin. Missing values come first, new ones last."""
    ordered = np.concatenate([counts[..., -1:], counts[..., :-1]], -1)
    total = ordered.sum(-1, keepdims=True)
    return np.cumsum(ordered, -1) / np.maximum(total, 1)


def kolmogorov_smirnov(one: Counts, two: Counts) -> Numbers:
    """The largest difference of the cumulative shares. Inside bins it is not seen, so it is never too large."""
    distance = np.abs(cumulative(one) - cumulative(two)).max(-1)
    return np.where((one.sum(-1) > 0) & (two.sum(-1) > 0), distance, 0.0)


def scale(distance: Numbers, one: Numbers, two: Numbers) -> Numbers:
    """A distance of so many rows from so many others, in units in which its chance distribution does not depend on them."""
    return distance * np.sqrt(one * two / np.maximum(one + two, 1))


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


def surprise(count: int, expected: float) -> float:
    """-log10 of the probability of so many rare events or more, if so many are expected (Poisson). 0 up to the expectation."""
    if count <= expected:
        return 0.0
    terms = [j * log(expected) - expected - lgamma(j + 1) for j in range(count, count + MOST_TERMS)]
    largest = max(terms)
    return max(0.0, -(largest + log(sum(exp(term - largest) for term in terms))) / log(10))


def surprise_limit(rate: float, tests: int) -> float:
    """The surprise that one of so many tests exceeds by chance at most at this rate."""
    return -log10(rate / max(tests, 1))


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


def wasserstein(one: Counts, one_at: Numbers, two: Counts, two_at: Numbers) -> Numbers:
    """How far values moved on average, in the units of the column; missing values are left out.

    ``one_at`` and ``two_at`` say where the values of each bin lie: their means. Counts may have dimensions in front (draws).
    """
    one, two = one[..., :MISSING], two[..., :MISSING]
    at = np.concatenate([one_at[:MISSING], two_at[:MISSING]])
    shares = [part / np.maximum(part.sum(-1, keepdims=True), 1) for part in np.broadcast_arrays(one, two)]
    weights = np.concatenate([shares[0], -shares[1]], -1)
    order = np.argsort(at, kind="stable")
    gaps = np.abs(np.cumsum(weights[..., order], -1))[..., :-1]
    return (gaps * np.diff(at[order])).sum(-1)


def bin_means(counts: Counts, totals: Numbers) -> Numbers:
    """The mean value in each bin; 0 in empty ones, which weigh nothing."""
    return np.where(counts > 0, totals / np.maximum(counts, 1), 0.0)


def stability_index(one: Counts, two: Counts) -> float:
    """PSI, the population stability index, over about ten groups of bins with equal shares of ``two``, as usual."""
    known = two[:NEW]
    middle = (np.cumsum(known) - known / 2) / max(known.sum(), 1)
    groups = np.arange(NEW) if (known > 0).sum() <= GROUPS else np.minimum((GROUPS * middle).astype(np.int64), GROUPS - 1)
    groups = np.concatenate([groups, [NEW, MISSING]])
    a, b = (np.bincount(groups, counts, MISSING + 1) / max(counts.sum(), 1) for counts in (one, two))
    a, b = np.maximum(a, TINY), np.maximum(b, TINY)
    return float(((a - b) * np.log(a / b)).sum())


def correlations(sums: Numbers, products: Numbers, rows: float) -> Numbers:
    """The correlation matrix from sums and sums of products; 0 for columns that do not vary."""
    covariance = products / rows - np.outer(sums, sums) / rows**2
    deviation = np.sqrt(np.clip(np.diag(covariance), 0, None))
    safe = np.where(deviation > 1e-6, deviation, np.inf)
    return np.clip(covariance / np.outer(safe, safe), -1, 1)


def area_under_curve(negatives: Counts, positives: Counts) -> float | None:
    """AUC from bins of the output: the share of pairs in which the positive row has the larger output, ties by half."""
    pairs = int(negatives.sum()) * int(positives.sum())
    if not pairs:
        return None
    below = np.cumsum(negatives) - negatives
    return float((positives * (below + negatives / 2)).sum() / pairs)
