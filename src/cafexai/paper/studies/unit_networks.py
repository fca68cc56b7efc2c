"""Networks of ReLUs set by hand whose inner workings are known, with data and the scores that they deserve.

The units are those of XAI-Units (Lee et al. 2025, arXiv 2506.01059); the networks, weights and data are our own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

FEATURES = 6  # of a network that has a part for each of them
CLASSES = 4
STRONG = 2.0  # what is pushed down by this much is off: no weight is as large
SHARP = 10.0  # the slope of a Boolean step
TEETH, STEEP = 8, 4.0  # of a saw


class Unit(NamedTuple):
    """A network, rows, what they are compared with, the explained output and the scores it should get."""

    model: nn.Module
    x: Tensor
    baseline: Tensor
    truth: Tensor
    target: int | Tensor = 0


class Layers(nn.Module):
    """relu(x A' + a) B' + b."""

    def __init__(self, inner: Tensor, outer: Tensor, shift: Tensor | None = None, start: Tensor | None = None) -> None:
        super().__init__()
        first, last = nn.Linear(inner.shape[1], len(inner)), nn.Linear(len(inner), len(outer))
        self.net = nn.Sequential(first, nn.ReLU(), last).double().requires_grad_(False)
        for layer, weight, bias in ((first, inner, shift), (last, outer, start)):
            layer.weight.copy_(weight)
            layer.bias.copy_(torch.zeros(len(weight)) if bias is None else bias)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, features) to (rows, outputs)."""
        out: Tensor = self.net(x)
        return out


def _weights(generator: torch.Generator, *shape: int) -> Tensor:
    """Of either sign, with magnitudes from 0.5 to 1.5."""
    size = 0.5 + torch.rand(*shape, generator=generator, dtype=torch.float64)
    return size * (torch.randint(2, shape, generator=generator) * 2 - 1)


def _coins(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randint(2, shape, generator=generator).double()


def weighted(rows: int, generator: torch.Generator) -> Unit:
    """Every feature has a weight, for values of either sign. Truth: weight times value."""
    w = _weights(generator, FEATURES)
    x = torch.randn(rows, FEATURES, generator=generator, dtype=torch.float64)
    inner = torch.cat([torch.diag(w), -torch.diag(w)])
    outer = torch.cat([torch.ones(FEATURES), -torch.ones(FEATURES)])[None]
    return Unit(Layers(inner, outer), x, torch.zeros_like(x), w * x)


def conflicting(rows: int, generator: torch.Generator) -> Unit:
    """Each feature has a partner that cancels all that it does. Truth: what it does, and minus that for the partner."""
    w = _weights(generator, FEATURES)
    values, off = torch.rand(rows, FEATURES, generator=generator, dtype=torch.float64), _coins(generator, rows, FEATURES)
    inner = torch.cat([torch.diag(w.abs()), -STRONG * torch.eye(FEATURES)], 1)
    x = torch.cat([values, off], 1)
    return Unit(Layers(inner, w.sign()[None]), x, torch.zeros_like(x), torch.cat([w * values, -w * values * off], 1))


def interacting(rows: int, generator: torch.Generator) -> Unit:
    """A category decides which of two weights a feature has. Truth: that weight times the value; nothing for the category."""
    w = _weights(generator, 2, FEATURES)
    values, second = torch.rand(rows, FEATURES, generator=generator, dtype=torch.float64), _coins(generator, rows, FEATURES)
    eye, none = torch.eye(FEATURES, dtype=torch.float64), torch.zeros(FEATURES, FEATURES, dtype=torch.float64)
    first_weight = torch.cat([torch.diag(w[0].abs()), none, -STRONG * eye], 1)
    second_weight = torch.cat([torch.diag(w[1].abs()), -STRONG * eye, none], 1)
    x = torch.cat([values, 1 - second, second], 1)
    truth = torch.cat([torch.where(second > 0, w[1], w[0]) * values, torch.zeros(rows, 2 * FEATURES)], 1)
    return Unit(Layers(torch.cat([first_weight, second_weight]), w.sign().flatten()[None]), x, torch.zeros_like(x), truth)


def uncertainty(rows: int, generator: torch.Generator) -> Unit:
    """One feature for each class, and one that pushes all classes alike.

    Truth, for a class rather than the mean of the others: nothing for the common feature.
    """
    x = torch.rand(rows, CLASSES + 1, generator=generator, dtype=torch.float64)
    w, common = 0.5 + torch.rand(CLASSES, generator=generator, dtype=torch.float64), 3.0
    inner = torch.diag(torch.cat([w, torch.tensor([common], dtype=torch.float64)]))
    outer = torch.cat([torch.eye(CLASSES), torch.ones(CLASSES, 1)], 1)
    target = torch.randint(CLASSES, (rows,), generator=generator)
    chosen = nn.functional.one_hot(target, CLASSES).double()
    truth = w * x[:, :CLASSES] * (chosen - (1 - chosen) / (CLASSES - 1))
    model = Layers(inner, outer)
    return Unit(model, x, torch.zeros_like(x), torch.cat([truth, torch.zeros(rows, 1)], 1), target)


def shattered(rows: int, generator: torch.Generator) -> Unit:
    """A sum of weights times values plus a saw of steep teeth. Truth: what each feature does alone."""
    w = _weights(generator, FEATURES)
    x = torch.rand(rows, FEATURES, generator=generator, dtype=torch.float64)
    places = torch.arange(2 * TEETH, dtype=torch.float64) / (2 * TEETH)
    slopes = torch.full((2 * TEETH,), 2.0).double() * STEEP * (1 - 2 * (torch.arange(2 * TEETH) % 2))
    slopes[0] = STEEP  # up and down again and again: + s, - 2 s, + 2 s, ...
    inner = torch.eye(FEATURES, dtype=torch.float64).repeat_interleave(2 * TEETH, 0)
    own = slopes + torch.where(torch.arange(2 * TEETH) == 0, 1.0, 0.0)  # the first slope also has the value itself
    model = Layers(inner, (w[:, None] * own).flatten()[None], -places.repeat(FEATURES))
    truth = w * (torch.relu(x[..., None] - places) * own).sum(-1)
    return Unit(model, x, torch.zeros_like(x), truth)


def pertinent_negatives(rows: int, generator: torch.Generator) -> Unit:
    """Features that count where they are absent, compared with a row that has all. Truth: the weight of what is absent."""
    w, x = _weights(generator, FEATURES), _coins(generator, rows, FEATURES)
    model = Layers(-torch.eye(FEATURES), w[None], torch.ones(FEATURES))
    return Unit(model, x, torch.ones_like(x), w * (1 - x))


def boolean_and(rows: int, generator: torch.Generator) -> Unit:
    """True (1) where all inputs are, false (-1) being the baseline. Truth: equal shares where it is true, else nothing."""
    x = 2 * _coins(generator, rows, 3) - 1
    count = x.shape[1]
    inner = torch.full((2, count), SHARP / 2)
    shift = SHARP * (count / 2 - count) + torch.tensor([1.0, 0.0])  # of SHARP (true inputs - count) + 1, and without the 1
    model = Layers(inner, torch.tensor([[1.0, -1.0]]), shift)
    every = (x > 0).all(1, keepdim=True)
    return Unit(model, x, -torch.ones_like(x), every.double().expand_as(x) / count)


def boolean_or(rows: int, generator: torch.Generator) -> Unit:
    """True where any input is. Truth: equal shares for the inputs that are true."""
    x = 2 * _coins(generator, rows, 3) - 1
    count = x.shape[1]
    shift = torch.tensor([1 - count / 2])  # of 1 - true inputs
    model = Layers(torch.full((1, count), -0.5), torch.tensor([[-1.0]]), shift, torch.ones(1))
    there = (x > 0).double()
    return Unit(model, x, -torch.ones_like(x), there / there.sum(1, keepdim=True).clamp_min(1))


UNITS: dict[str, Callable[[int, torch.Generator], Unit]] = {
    "weighted": weighted,
    "conflicting": conflicting,
    "interacting": interacting,
    "uncertainty": uncertainty,
    "shattered gradients": shattered,
    "pertinent negatives": pertinent_negatives,
    "Boolean AND": boolean_and,
    "Boolean OR": boolean_or,
}
