"""Tests of the properties that all attributions may have; a method has one if no random model shows otherwise."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...cafe import CAFE
from ...methods import METHODS
from ..models import mlp
from .methods import method

ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.GELU)  # all 0 at 0
EXACT = 1e-8  # relative to the size of the scores
SAMPLED = 2e-2  # for methods that sum over sampled points: their error is not a missing property
CHANCE = ("n_steps", "n_samples", "seed")  # parameters of methods that draw or step


@dataclass(frozen=True)
class Outcome:
    """Whether a method has a property, and the number that says so."""

    holds: bool
    shown: str


def variants(key: str) -> list[str]:
    """CAFE at three constants; all others as they are."""
    return [f"cafe c={c}" for c in (0, 0.5, 1)] if key == "cafe" else [key]


def strongest(key: str) -> str:
    """The variant that shows conflicts best."""
    return variants(key)[-1]


def _worst(key: str, error: Callable[[str, int], float], models: int, limit: float) -> Outcome:
    """The largest error over random models and variants, against a limit."""
    worst = max(error(name, number) for name in variants(key) for number in range(models))
    return Outcome(worst <= limit, f"largest error {worst:.1e}")


def _tolerance(key: str) -> float:
    return SAMPLED if _samples(key) else EXACT


def _samples(key: str) -> bool:
    return any(name in CHANCE for name in inspect.signature(METHODS[key]).parameters)


def network(number: int, seed: int, bias: bool, activation: type[nn.Module] | None = None) -> nn.Sequential:
    """A random 4-6-5-1 network in float64, its activation by turns."""
    kind = activation or ACTIVATIONS[number % len(ACTIVATIONS)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1000 * seed + number)
        model = mlp(4, 6, 5, 1, activation=kind).double()
        for layer in model:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight)
                nn.init.normal_(layer.bias) if bias else nn.init.zeros_(layer.bias)
    return model.eval()


def draw(number: int, seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(7919 * seed + number + 1)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def score(name: str, model: nn.Module, x: Tensor, **options: Any) -> Tensor:
    return method(name)(model, x, target=0, **options).detach()


def relative(difference: Tensor, scores: Tensor) -> float:
    return float(difference.abs().max() / scores.abs().sum(-1).max().clamp_min(1e-12))


def missingness(key: str, models: int, seed: int) -> Outcome:
    """A feature at its reference 0 has the score 0."""

    def error(name: str, number: int) -> float:
        x = draw(number, seed, 8, 4)
        x[:, number % 4] = 0
        scores = score(name, network(number, seed, True), x)
        return relative(scores[:, number % 4], scores)

    return _worst(key, error, models, EXACT)


class Sum(nn.Module):
    """a f + b g."""

    def __init__(self, f: nn.Module, g: nn.Module, a: float, b: float) -> None:
        super().__init__()
        self.f, self.g, self.a, self.b = f, g, a, b

    def forward(self, x: Tensor) -> Tensor:
        """(rows, features) to (rows, 1)."""
        return self.a * self.f(x) + self.b * self.g(x)


def linearity(key: str, models: int, seed: int) -> Outcome:
    """The scores of a f + b g are a times those of f plus b times those of g."""

    def error(name: str, number: int) -> float:
        f, g = network(number, seed, True), network(number + models, seed, True)
        a, b = draw(number, seed + 1, 2).tolist()
        x = draw(number, seed, 8, 4)
        whole, first, second = (score(name, model, x) for model in (Sum(f, g, a, b), f, g))
        return relative(whole - a * first - b * second, whole.abs() + (a * first).abs() + (b * second).abs())

    return _worst(key, error, models, EXACT)


def _incompleteness(name: str, model: nn.Module, x: Tensor) -> float:
    """What the scores (and those of biases, where a method has them) lack of the change of the output."""
    result = explain_by(name, model, x)
    scores = result if isinstance(result, Tensor) else result.combined
    with torch.no_grad():
        change = (model(x) - model(torch.zeros_like(x)))[:, 0]
    if not isinstance(result, Tensor):
        change = result.output - result.baseline_output - result.bias  # measured from the model without its biases
    return relative(scores.sum(1) - change, scores)


def completeness(key: str, models: int, seed: int) -> Outcome:
    """Scores add up to the change of the output, in networks without biases."""

    def error(name: str, number: int) -> float:
        return _incompleteness(name, network(number, seed, False), draw(number, seed, 8, 4))

    return _worst(key, error, models, _tolerance(key))


def completeness_with_biases(key: str, models: int, seed: int) -> Outcome:
    """The same in networks with biases."""

    def error(name: str, number: int) -> float:
        return _incompleteness(name, network(number, seed, True), draw(number, seed, 8, 4))

    return _worst(key, error, models, _tolerance(key))


class Early(nn.Module):
    """relu(relu(x1 - t) - relu(x2))."""

    late = False

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 2) to (rows, 1)."""
        first, second = x[:, :1], x[:, 1:].relu()
        kept = first.relu() - self.threshold if self.late else (first - self.threshold).relu()
        return (kept - second).relu()


class Late(Early):
    """relu(relu(x1) - t - relu(x2)): for t > 0 the same function."""

    late = True


class Doubled(nn.Module):
    """relu(relu(w x)), which is relu(w x), or 2 sigmoid(2 w x) - 1, which is tanh(w x)."""

    def __init__(self, linear: nn.Module, tanh: bool) -> None:
        super().__init__()
        self.linear, self.tanh = linear, tanh

    def forward(self, x: Tensor) -> Tensor:
        """(rows, features) to (rows, 1)."""
        value = self.linear(x)
        return 2 * (2 * value).sigmoid() - 1 if self.tanh else value.relu().relu()


def _same_functions(number: int, seed: int) -> tuple[nn.Module, nn.Module]:
    """Two networks of two inputs that compute the same, in three ways by turns."""
    if number % 3 == 0:
        threshold = 0.2 + float(draw(number, seed + 1, 1).abs())
        return Early(threshold), Late(threshold)
    linear = nn.Linear(2, 1, bias=False).double()
    linear.weight.data = draw(number, seed + 1, 1, 2)
    tanh = number % 3 == 1
    return nn.Sequential(linear, nn.Tanh() if tanh else nn.ReLU()), Doubled(linear, tanh)


def implementation_invariance(key: str, models: int, seed: int) -> Outcome:
    """Two networks that compute the same function get the same scores."""

    def error(name: str, number: int) -> float:
        x = 2 * draw(number, seed, 50, 2)
        one, two = _same_functions(number, seed)
        assert torch.allclose(one(x), two(x))  # otherwise this would test nothing
        scores = score(name, one.eval(), x)
        return relative(scores - score(name, two.eval(), x), scores)

    return _worst(key, error, models, EXACT)


def without_sampling(key: str, models: int, seed: int) -> Outcome:
    """The signature has no number of steps or samples and no seed."""
    found = [name for name in inspect.signature(METHODS[key]).parameters if name in CHANCE]
    return Outcome(not found, f"takes {', '.join(found)}" if found else "takes no steps, samples or seed")


def reference(key: str, models: int, seed: int) -> Outcome:
    """Another reference gives other scores."""
    changes = []
    for number in range(models):
        model, x = network(number, seed, True), draw(number, seed, 8, 4)
        scores = score(strongest(key), model, x)
        changes.append(relative(scores - score(strongest(key), model, x, baselines=draw(number, seed + 1, 1, 4)), scores))
    return Outcome(min(changes) > EXACT, f"scores move by {min(changes):.1e} at least")


def explain_by(name: str, model: nn.Module, x: Tensor) -> Any:
    """All that a method gives: for CAFE an explanation, else a tensor of scores."""
    if name.startswith("cafe c="):
        return CAFE.published(model, float(name.removeprefix("cafe c="))).explain(x, target=0)
    return score(name, model, x)


def captures_biases(key: str, models: int, seed: int) -> Outcome:
    """The result has a score of the biases: 0 without them, not 0 with them."""
    sizes = []
    for number in range(models):
        for bias in (False, True):
            result = explain_by(strongest(key), network(number, seed, bias), draw(number, seed, 8, 4))
            if isinstance(result, Tensor) or not hasattr(result, "bias"):
                return Outcome(False, "no score of biases")
            sizes.append((bias, float((result.bias_positive + result.bias_negative).abs().max())))
    right = all((size > EXACT) == bias for bias, size in sizes)
    return Outcome(right, f"at least {min(size for bias, size in sizes if bias):.2g} in networks with biases")
