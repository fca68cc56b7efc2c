"""Ordinary tests for shifts, for the study of the monitor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..._extras import needs
from ...monitor import Signals
from .distributions import auroc

if TYPE_CHECKING:
    from .monitoring import Part

Numbers = NDArray[np.float64]


def ordinary_statistics(before: Part, window: Part, classifiers: bool) -> dict[str, float]:
    """Statistics of other monitors: of inputs, outputs, certainty; of classifiers that tell the window from the reference."""
    old, new = before.signals, window.signals
    random = np.random.default_rng(3)
    drawn = old.take(random.choice(len(old), min(len(new), len(old)), replace=False))
    gaps = [largest_gap(*columns) for columns in zip(old.inputs.T, new.inputs.T, strict=True)]
    at_baseline = np.abs((new.inputs == 0).mean(0) - (old.inputs == 0).mean(0))
    return {
        "exact KS of inputs": max(gaps),
        "PSI of inputs": max(map(stability_index, old.inputs.T, new.inputs.T)),
        "correlation matrix of inputs": correlation_change(old.inputs, new.inputs),
        "share of inputs at the baseline": float(at_baseline.max()),
        "MMD of inputs": discrepancy(drawn.inputs, new.inputs),
        "MMD of scores": discrepancy(drawn.scores, new.scores),
        "mean output": abs(float(new.output.mean() - old.output.mean())),
        "largest logit": largest_gap(before.certainty[:, 0], window.certainty[:, 0]),
        "energy": largest_gap(before.certainty[:, 1], window.certainty[:, 1]),
    } | (two_samples(drawn, new) if classifiers else {})


def measure_certainty(model: nn.Module, x: Tensor) -> Numbers:
    """(rows, 2): the largest logit, and the energy (minus log-sum-exp). One output is the logit against 0."""
    with torch.no_grad():
        out = model(x).double()
    logits = torch.cat([torch.zeros_like(out), out], 1) if out.shape[1] == 1 else out
    return torch.stack([logits.max(1).values, -logits.logsumexp(1)], 1).numpy()


def stability_index(before: Numbers, now: Numbers) -> float:
    """PSI of one column over tenths of the reference."""
    edges = np.unique(np.quantile(before, np.arange(1, 10) / 10))
    counts = (np.bincount(np.searchsorted(edges, values, "right"), minlength=len(edges) + 1) for values in (before, now))
    p, q = (np.maximum(count / count.sum(), 1e-4) for count in counts)
    return float(((q - p) * np.log(q / p)).sum())


def correlation_change(before: Numbers, now: Numbers) -> float:
    """The mean change of Pearson's correlation over all pairs of columns; 0 for columns that do not vary."""
    upper = np.triu_indices(before.shape[1], 1)
    one, two = ((standardise(part).T @ standardise(part) / len(part))[upper] for part in (before, now))
    return float(np.abs(one - two).mean())


def largest_gap(before: Numbers, now: Numbers) -> float:
    """The distance of Kolmogorov and Smirnov, without bins."""
    values = np.concatenate([before, now])
    shares = (np.searchsorted(np.sort(part), values, "right") / len(part) for part in (before, now))
    return float(np.abs(next(shares) - next(shares)).max())


def discrepancy(before: Numbers, now: Numbers) -> float:
    """The squared maximum mean discrepancy; a Gaussian kernel whose width is the median distance."""
    x = standardise(np.concatenate([before, now]))
    squares = (x**2).sum(1)
    distances = np.maximum(squares[:, None] + squares - 2 * x @ x.T, 0.0)
    kernel = np.exp(-distances / max(float(np.median(distances[::4, ::4])), 1e-12))
    size = len(before)
    return float(kernel[:size, :size].mean() + kernel[size:, size:].mean() - 2 * kernel[:size, size:].mean())


def standardise(x: Numbers) -> Numbers:
    """Columns with mean 0 and standard deviation 1; columns that do not vary are 0."""
    return (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1)


def two_samples(before: Signals, window: Signals) -> dict[str, float]:
    """How well classifiers tell the window from as many rows of the reference: AUROC on the half that they did not see."""
    linear, trees = needs("sklearn.linear_model", "sklearn"), needs("sklearn.ensemble", "sklearn")
    y = np.r_[np.zeros(len(before)), np.ones(len(window))]
    first = np.random.default_rng(4).permutation(len(y)) < len(y) // 2
    found = {}
    for what in ("inputs", "scores"):
        x = standardise(np.r_[getattr(before, what), getattr(window, what)])
        for kind, model in (
            ("linear", linear.LogisticRegression(max_iter=100)),
            ("trees", trees.ExtraTreesClassifier(40, min_samples_leaf=5, random_state=0)),
        ):
            p = model.fit(x[first], y[first]).predict_proba(x[~first])[:, 1]
            low, high = (torch.from_numpy(p[y[~first] == one]) for one in (0, 1))
            found[f"{kind} classifier on {what}"] = auroc(low, high)
    return found
