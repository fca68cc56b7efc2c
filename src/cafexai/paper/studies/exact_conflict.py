"""The exact conflict of a row from all evaluations, and rank statistics."""

from __future__ import annotations

import torch
from torch import Tensor


def true_conflict(outputs: Tensor) -> Tensor:
    """The largest magnitude of Definition 4 over all pairs of disjoint sets of features.

    ``outputs`` holds f for every set of present features, (2 ** count,), the bit i of a place being feature i. C counteracts D
    if f(x) - f(without C) and f(without C) - f(without C and D) have different signs. So for every C the second change is
    largest at the smallest or largest output among all sets that C and more are removed from.
    """
    count = len(outputs).bit_length() - 1
    low, high = outputs.clone(), outputs.clone()  # over all subsets of what is present
    for bit in range(count):
        for best, better in ((low, torch.minimum), (high, torch.maximum)):
            pairs = best.view(-1, 2, 2**bit)  # without and with feature ``bit``
            pairs[:, 1] = better(pairs[:, 1], pairs[:, 0])
    first = outputs[-1] - outputs
    second = torch.where(first > 0, high - outputs, outputs - low)
    return torch.minimum(first.abs(), second).max()


def spearman(one: Tensor, two: Tensor) -> float:
    """The correlation of ranks; equal values share their mean rank. NaN if all values are equal."""
    return torch.corrcoef(torch.stack([_ranks(one), _ranks(two)]))[0, 1].item()


def _ranks(values: Tensor) -> Tensor:
    _, inverse, counts = values.double().unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(0)
    return (last - (counts - 1) / 2)[inverse].double()
