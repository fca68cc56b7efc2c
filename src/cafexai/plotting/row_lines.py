"""What one row is made of: its features by influence, and the biases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..explanation import Explanation


class Line(NamedTuple):
    """What one feature, or several together, did to the output."""

    name: str
    value: str  # "" if there is none to show
    positive: float
    negative: float
    net: float
    single: bool = False  # one feature, not a sum of several
    refined: float | None = None  # the net score as evaluations of the model correct it


def feature_lines(explanation: Explanation, most: int) -> list[Line]:
    """The features of one row by positive + negative, largest first; all beyond ``most`` summed into one line."""
    if len(explanation) != 1:
        raise ValueError(f"This shows one row and the explanation has {len(explanation)}. Choose one: explanation[i].")
    if most < 1:
        raise ValueError(f"most={most}: give the number of features to show, at least 1.")
    parts = (explanation.positive, explanation.negative, explanation.combined)
    positive, negative, net = (explanation.flat(part)[0].double().cpu() for part in parts)
    refined = None if explanation.refinement is None else explanation.flat(explanation.refined)[0].double().cpu()
    names, values = explanation.names(), explanation.values()
    order = [i for i in (positive + negative).argsort(descending=True, stable=True).tolist() if names[i]]  # "": nothing there
    lines = []
    for i in order[:most]:
        value = "" if values is None else _written(values[i])
        better = None if refined is None else refined[i].item()
        lines.append(Line(names[i], value, positive[i].item(), negative[i].item(), net[i].item(), True, better))
    rest = order[most:]
    if len(rest):
        label = f"{len(rest)} other{'s' * (len(rest) > 1)}"
        up, down, left = (part[rest].sum().item() for part in (positive, negative, net))
        lines.append(Line(label, "", up, down, left, refined=None if refined is None else refined[rest].sum().item()))
    return lines


def bias_line(explanation: Explanation) -> Line:
    """What the constants of the model did."""
    return Line("bias", "", explanation.bias_positive.item(), explanation.bias_negative.item(), explanation.bias.item())


def sum_line(explanation: Explanation, name: str) -> Line:
    """All features of one row together."""
    up, down, net = (
        explanation.flat(p).double().sum().item() for p in (explanation.positive, explanation.negative, explanation.combined)
    )
    return Line(name, "", up, down, net)


def number(value: float) -> str:
    """Four significant digits, with an exponent only for very large and very small numbers."""
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"


def _written(value: str | float | None) -> str:
    """A value as it is shown: a number in four digits, a category, or that it is missing."""
    return value if isinstance(value, str) else "missing" if value is None else number(value)


def aligned(values: Sequence[float], digits: int = 4, sign: str = "-") -> list[str]:
    """Numbers with equally many decimals, ``digits`` significant ones for the largest; sign="+" shows both signs."""
    largest = max(map(abs, values))
    if largest and not 1e-4 <= largest < 1e7:
        return [f"{value:{sign}.{digits - 1}e}" for value in values]
    decimals = max(digits - 1 - math.floor(math.log10(largest)), 0) if largest else digits - 1
    return [f"{round(value, decimals) + 0.0:{sign}.{decimals}f}" for value in values]  # + 0.0: never "-0.00"
