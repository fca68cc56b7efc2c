"""Shapley values of groups (columns, tokens, cells): exact, or by pairs of orders; and how near scores are to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ...metrics.occlusion import correlation

Value = Callable[[Tensor], Tensor]  # (sets, groups) of true and false, true being present -> outputs (sets,)


def subsets(count: int) -> Tensor:
    """All sets of so many groups, (2 ** count, count)."""
    return (torch.arange(2**count)[:, None] >> torch.arange(count) & 1).bool()


def exact(outputs: Tensor) -> Tensor:
    """Shapley values from the outputs of all ``subsets``, (2 ** count,) to (count,)."""
    count = len(outputs).bit_length() - 1
    present = subsets(count)
    weights = [1 / (count * math.comb(count - 1, size)) for size in range(count)]  # of a change where ``size`` are present
    joins = torch.tensor([0.0, *weights], dtype=torch.float64)[present.sum(1), None]
    misses = torch.tensor([*weights, 0.0], dtype=torch.float64)[present.sum(1), None]
    return (outputs.double()[:, None] * torch.where(present, joins, -misses)).sum(0)


def estimate_by_pairs(value: Value, count: int, pairs: int, seed: int = 0) -> Tensor:
    """Shapley values by the mean over random orders, each with its reverse, (count,)."""
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(count, generator=generator) for _ in range(pairs)]
    total = torch.zeros(count, dtype=torch.float64)
    for order in (*orders, *(order.flip(0) for order in orders)):
        place = torch.empty_like(order)
        place[order] = torch.arange(count)
        present = place < torch.arange(count + 1)[:, None]  # the first 0, 1, 2, ... groups of the order
        total[order] += value(present).double().diff()
    return total / (2 * pairs)


def agreement(truth: Tensor, scores: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Measures of how near scores of groups are to Shapley values; both are (rows, groups)."""
    found: dict[str, dict[str, Tensor]] = {measure: {} for measure in AGREEMENTS}
    for name, own in scores.items():
        for measure, compute in AGREEMENTS.items():
            found[measure][name] = compute(own.double(), truth)
    return found


AGREEMENTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "shapley_correlation": correlation,
    "shapley_rmse": lambda own, truth: (own - truth).square().mean(1).sqrt(),
    "shapley_distance": lambda own, truth: (own - truth).abs().sum(1),
    "shapley_top": lambda own, truth: (own.abs().argmax(1) == truth.abs().argmax(1)).double(),
}
