"""Data whose rule is known: features that cancel each other, and features that stop agreeing."""

from __future__ import annotations

import torch
from torch import Tensor

from .record import Dataset

# (dimension, likelihood of cancelling) of the columns of the paper's two tables
TRAINED = ((2, 0.30), (3, 0.25), (4, 0.20), (5, 0.15))
PROCEDURAL = (*TRAINED, (100, 0.05), (1000, 0.01))
SOURCE = "Dejl et al., Hidden Conflicts in Neural Networks and Their Implications for Explainability, FAccT 2025"


def synthetic_conflicts(
    *, dimension: int = 2, likelihood: float = 0.3, rows: int = 10_000, deviation: float = 10.0, seed: int = 42
) -> Dataset:
    """y = sum of w_i x_i where c_i = 0: every number x_i has a binary feature c_i that cancels it.

    The true attributions are w_i x_i for x_i and -w_i x_i for a c_i that is 1. Split 6 : 2 : 2 in order; ``weights`` is w.
    The numbers are drawn in the order of the paper's authors, since levels of the results depend on it: first w, then row by
    row x and c.

    Args:
        dimension: The number of pairs (x_i, c_i).
        likelihood: How likely a c_i is 1.
        rows: Rows in all.
        deviation: The standard deviation of x_i.
        seed: Decides the draws.

    Returns:
        The data set.
    """
    random = torch.Generator().manual_seed(seed)
    w = 2 * torch.rand(dimension, generator=random, dtype=torch.float32) - 1
    x, c = w.new_empty(rows, dimension), w.new_empty(rows, dimension)
    zeros, ones = torch.zeros_like(w), torch.ones_like(w)
    for row in range(rows):
        torch.normal(zeros, ones, generator=random, out=x[row])
        torch.rand(dimension, generator=random, out=c[row])
    x, c = deviation * x, (c < likelihood).float()
    inputs, truth = torch.cat([x, c], 1), torch.cat([w * x, -c * w * x], 1)
    y = ((1 - c) * w * x).sum(1, keepdim=True)
    a, b = int(0.6 * rows), int(0.8 * rows)
    return Dataset(
        name="synthetic_conflicts",
        x_train=inputs[:a],
        y_train=y[:a],
        x_test=inputs[b:],
        y_test=y[b:],
        citation=SOURCE,
        terms="none",
        feature_names=tuple(f"{letter}{i}" for letter in "xc" for i in range(1, dimension + 1)),
        categories={f"c{i + 1}": (dimension + i,) for i in range(dimension)},
        x_valid=inputs[a:b],
        y_valid=y[a:b],
        truth_train=truth[:a],
        truth_valid=truth[a:b],
        truth_test=truth[b:],
        weights=w,
    )


def synthetic_shift(*, rows: int = 10_000, seed: int = 42) -> Dataset:
    """A column of noise and two features of five kinds; the label is A, and in training B = A.

    ``shifts["correlation"]``: B is drawn among the other four; ``shifts["missing"]``: B is all zeros.

    Args:
        rows: Rows of each split.
        seed: Decides the draws.

    Returns:
        The data set.

    Example:
        >>> from cafexai import datasets
        >>> datasets.synthetic_shift(rows=100).x_train.ndim
        2
    """
    random = torch.Generator().manual_seed(seed)

    def part(kind: str) -> tuple[Tensor, Tensor]:
        noise = torch.randn(rows, 1, generator=random, dtype=torch.float32)
        a = torch.randint(5, (rows,), generator=random)
        other = (a + torch.randint(1, 5, (rows,), generator=random)) % 5
        block = torch.eye(5, dtype=torch.float32)
        second = {"same": block[a], "correlation": block[other], "missing": torch.zeros(rows, 5)}[kind]
        return torch.cat([noise, block[a], second.float()], 1), a

    (x_train, y_train), (x_test, y_test) = part("same"), part("same")
    return Dataset(
        name="synthetic_shift",
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        citation=SOURCE,
        terms="none",
        feature_names=("noise", *(f"{letter}_{i}" for letter in "AB" for i in range(5))),
        categories={"A": tuple(range(1, 6)), "B": tuple(range(6, 11))},
        class_names=tuple("01234"),
        shifts={kind: part(kind) for kind in ("correlation", "missing")},
    )
