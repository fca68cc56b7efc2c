"""Choosing the conflict sensitivity constant on validation data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .._engine.model import Subject
from .._inputs.prepare import prepare
from ..cafe import CAFE


@dataclass(frozen=True)
class Tuned:
    """The best c, and the metric at all values that were tried.

    Args:
        c: The best c: a number, or one per pattern of module names.
        curve: c for all modules -> the metric.
        best: The metric at the best c.
    """

    c: float | Mapping[str, float]
    curve: Mapping[float, float]
    best: float


def tune_c(
    model: Any,
    x: Any,
    target: Any = None,
    *,
    metric: Callable[[Tensor], Any],
    values: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
    layers: Sequence[str] | None = None,
    baselines: Any = None,
    larger_is_better: bool = False,
) -> Tuned:
    """Choose the c whose combined scores have the best metric.

    Args:
        model: The model.
        x: The rows.
        target: The output to explain: an index, or one per row. None is the only output, or the predicted class.
        metric: A function of the combined scores.
        values: The values of c to try.
        layers: Patterns of module names: their values are then improved one after the other.
        baselines: What rows are compared with; None is zero.
        larger_is_better: The largest metric is best; else the smallest.

    Returns:
        The best c and the curve.

    Raises:
        ValueError: There are no values, or a pattern matches no module.

    Example:
        >>> from cafexai import conflicts
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        >>> sorted(conflicts.tune_c(net, torch.rand(5, 3), metric=lambda scores: scores.abs().sum()).curve)
        [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    if not values:
        raise ValueError("tune_c(..., values=()): give at least one value of c.")
    subject = Subject(model)
    subject.ready("tune_c")
    prepare(x, subject.model, call="tune_c")

    def cost(c: float | Mapping[str, float]) -> float:
        number = float(metric(CAFE(model, c).attribute(x, baselines, target)))
        if math.isnan(number):
            raise ValueError(f"tune_c(..., metric=...): it gives NaN at c={c}, which is neither better nor worse.")
        return -number if larger_is_better else number

    curve = {float(c): cost(float(c)) for c in values}
    chosen = min(curve, key=lambda c: curve[c])
    best, result = curve[chosen], float(chosen)
    tuned: float | Mapping[str, float] = result
    if layers:
        by_layer = dict.fromkeys(layers, result)
        for layer in layers:
            for c in values:
                trial = {"*": result, **by_layer, layer: float(c)}
                reached = cost(trial)
                if reached < best:
                    best, by_layer[layer] = reached, float(c)
        tuned = {"*": result, **by_layer}
    sign = -1 if larger_is_better else 1
    return Tuned(tuned, {c: sign * number for c, number in curve.items()}, sign * best)
