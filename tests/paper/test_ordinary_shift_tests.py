"""Ordinary tests for shifts, against their definitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from cafexai.paper.studies import ordinary_shift_tests as ordinary


@pytest.fixture
def parts():
    random = np.random.default_rng(0)
    before = random.normal(size=(120, 3))
    before[:, 2] += before[:, 1]
    now = random.normal(0.4, 1.2, size=(60, 3)).round(1)  # with ties
    return before, now


def test_the_largest_gap_of_two_samples(parts):
    one, two = (part[:, 0] for part in parts)
    naive = max(abs((one <= at).mean() - (two <= at).mean()) for at in np.concatenate([one, two]))
    assert ordinary.largest_gap(one, two) == pytest.approx(naive)


def test_the_stability_index_of_tenths(parts):
    one, two = (part[:, 1] for part in parts)
    edges = [-np.inf, *np.quantile(one, np.arange(1, 10) / 10), np.inf]
    naive = 0.0
    for low, high in itertools.pairwise(edges):
        p, q = (max(((part >= low) & (part < high)).mean(), 1e-4) for part in (one, two))
        naive += (q - p) * math.log(q / p)
    assert ordinary.stability_index(one, two) == pytest.approx(naive)


def test_the_change_of_correlations(parts):
    one, two = (np.corrcoef(part.T) for part in parts)
    naive = np.mean([abs(one[i, j] - two[i, j]) for i in range(3) for j in range(i)])
    assert ordinary.correlation_change(*parts) == pytest.approx(naive)
    still = parts[1].copy()
    still[:, 0] = 5.0
    assert ordinary.correlation_change(parts[0], still) < 1


def test_the_maximum_mean_discrepancy(parts):
    x = np.concatenate(parts)
    x = (x - x.mean(0)) / x.std(0)
    squares = np.array([[((a - b) ** 2).sum() for b in x] for a in x])
    kernel = np.exp(-squares / np.median(squares[::4, ::4]))
    naive = kernel[:120, :120].mean() + kernel[120:, 120:].mean() - 2 * kernel[:120, 120:].mean()
    assert ordinary.discrepancy(*parts) == pytest.approx(naive)
    assert ordinary.discrepancy(parts[0], parts[0]) == pytest.approx(0)


def test_certainty_of_one_output_is_that_of_two_with_the_other_at_0():
    x = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    one, two = nn.Linear(2, 1), nn.Linear(2, 2)
    with torch.no_grad():
        two.weight.copy_(torch.cat([torch.zeros(1, 2), one.weight]))
        two.bias.copy_(torch.cat([torch.zeros(1), one.bias]))
        logit = one(x)[:, 0].double().numpy()
    found = ordinary.measure_certainty(one, x)
    assert found == pytest.approx(ordinary.measure_certainty(two, x), abs=1e-6)
    assert found[:, 0] == pytest.approx(np.maximum(logit, 0))
    assert found[:, 1] == pytest.approx(-np.log1p(np.exp(logit)), abs=1e-6)
