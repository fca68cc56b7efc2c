"""Tests of the properties that concern conflicts, single units and what a result tells apart."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ...conflicts import audit
from ...methods import METHODS
from .methods import method
from .property_tests import EXACT, Outcome, draw, explain_by, network, score, strongest, variants


def nonzero_at_zero(key: str, models: int, seed: int) -> Outcome:
    """Units with phi(0) != 0 whose inputs nearly cancel: a score stays below ten times what the inputs bring."""

    def largest(name: str, number: int) -> float:
        phi = nn.Sigmoid() if number % 2 else nn.Softplus()
        unit = nn.Sequential(nn.Linear(3, 1, bias=False), phi).double().eval()
        weight, x = draw(number, seed, 1, 3), draw(number, seed + 1, 4, 3)
        x[:, 2] = (1e-6 - x[:, :2] @ weight[0, :2]) / weight[0, 2]  # the pre-activation is 1e-6
        unit[0].weight.data = weight
        scores = score(name, unit, x)
        return float((scores.abs() / (x * weight).abs().sum(1, keepdim=True)).max())

    worst = max(largest(name, number) for name in variants(key) for number in range(models))
    return Outcome(worst <= 10, f"up to {worst:.2g} times the inputs")


def _moves(phi: Callable[[Tensor], Tensor], start: Tensor, own: Tensor) -> Tensor:
    """What a contribution can do to a unit, all of it or a part, from some starting points."""
    part = torch.linspace(0, 1, 2001, dtype=own.dtype)[:, None] * own
    return torch.cat([phi(start + part) - phi(start), phi(start + own) - phi(start + own - part)])


def no_explosion(key: str, models: int, seed: int) -> Outcome:
    """GELU and tanh units with two strong inputs that nearly cancel: no score beyond what its input can do to the output."""

    def excess(name: str, number: int) -> float:
        phi: nn.Module = (nn.GELU(), nn.Tanh())[number % 2]
        unit = nn.Sequential(nn.Linear(2, 1, bias=False), phi).double().eval()
        x = draw(number, seed, 20, 2).abs() + 0.5
        weight = 10 * draw(number, seed + 1, 1).abs() + 10
        weights = torch.stack([weight, -weight - 0.3 * draw(number, seed + 2, 1)], 1)
        unit[0].weight.data = weights
        x[:, 1] = x[:, 0]
        own = x * weights
        scores = score(name, unit, x)
        over = torch.zeros(len(x), dtype=x.dtype)
        for feature in range(2):
            other = own[:, 1 - feature]
            reach = torch.cat([_moves(phi, start, own[:, feature]) for start in (torch.zeros_like(other), other)])
            low, high = reach.amin(0), reach.amax(0)
            over = torch.maximum(over, torch.maximum(scores[:, feature] - high, low - scores[:, feature]))
        return float(over.max())

    worst = max(excess(name, number) for name in variants(key) for number in range(models))
    return Outcome(worst <= 1e-3, f"up to {worst:.2g} beyond" if worst > 1e-3 else "never beyond")


def _inactive(number: int, seed: int) -> tuple[nn.Module, Tensor]:
    """A ReLU unit that is inactive because its second input outweighs the first."""
    unit = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU()).double().eval()
    unit[0].weight.data = torch.tensor([[1.0, -1.0]], dtype=torch.float64) * (0.5 + draw(number, seed, 1, 1).abs())
    x = draw(number, seed + 1, 20, 2).abs() + 0.1
    x[:, 1] += x[:, 0]
    return unit, x


def considers_conflicts(key: str, models: int, seed: int) -> Outcome:
    """Both inputs of an inactive ReLU unit that cancel have a score that is not 0."""
    shares = []
    for number in range(models):
        unit, x = _inactive(number, seed)
        shares.append(float((score(strongest(key), unit, x).abs() > EXACT).all(1).double().mean()))
    share = sum(shares) / len(shares)
    return Outcome(share == 1, f"in {share:.0%} of the cases")


def local_awareness(key: str, models: int, seed: int) -> Outcome:
    """The audit finds no underreported conflict in the units of random ReLU networks."""
    conflicts = under = undecided = 0
    for number in range(models):
        model, x = network(number, seed, True, nn.ReLU), draw(number, seed, 10, 4)
        found = audit(method(strongest(key)), model, x)
        conflicts, under, undecided = (conflicts + found.conflicts, under + found.underreported, undecided + found.undecided)
    shown = f"{under} of {conflicts} conflicts underreported" + (f", {undecided} undecided" if undecided else "")
    return Outcome(conflicts > 0 and under == undecided == 0, shown)


def adjustable(key: str, models: int, seed: int) -> Outcome:
    """Some parameter with a default in [0, 1] switches the scores of cancelled inputs off (0) and on (1)."""
    signature = inspect.signature(METHODS[key]).parameters
    numbers = {name for name, p in signature.items() if isinstance(p.default, float) and 0 <= p.default <= 1}
    switches = []
    for name in sorted(numbers):
        good = True
        for number in range(models):
            unit, x = _inactive(number, seed)
            off, on = (METHODS[key](unit, x, target=0, **{name: value}).abs() for value in (0.0, 1.0))
            good &= bool((off <= EXACT).all()) and bool((on > EXACT).all())
        switches += [name] if good else []
    return Outcome(bool(switches), f"by {', '.join(switches)}" if switches else "no such parameter")


def separates(key: str, models: int, seed: int) -> Outcome:
    """The result has positive and negative scores, and one feature of an XNOR network gets both."""
    xnor = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1)).double().eval()
    xnor[0].weight.data = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    xnor[2].weight.data, xnor[2].bias.data = torch.full((1, 2), -1.0).double(), torch.ones(1).double()
    result = explain_by(strongest(key), xnor, torch.ones(1, 2, dtype=torch.float64))
    if not (hasattr(result, "positive") and hasattr(result, "negative")) or isinstance(result, Tensor):
        return Outcome(False, "one score per feature")
    both = bool(((result.positive > 0) & (result.negative > 0)).any())
    return Outcome(both, f"XNOR at (1, 1): {result.positive[0, 0]:.2g} and {result.negative[0, 0]:.2g}")
