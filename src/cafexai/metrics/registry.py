"""The table of metrics that ``compare`` knows: each is one registered function of a bench."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from .perturbations import Perturb

Method = Callable[..., Tensor]
Best = Literal["low", "high"] | None


@dataclass(frozen=True)
class Bench:
    """What a metric may ask for: the rows, the explained outputs, and the scores of all methods with one seed.

    Args:
        model: The model.
        x: The rows.
        target: The explained output of each row.
        baselines: Shaped like x.
        scores: Method -> scores shaped like x.
        methods: Method -> function, called as ``method(model, x, target=..., baselines=...)``, with its seed and groups.
        once: Method -> the groups of which every element has the score of its group, or None.
        perturb: From rows and a generator to perturbed rows.
        truth: The true scores, if they are known.
        seed: Decides draws.
        n_samples: Perturbed copies of every row.
        n_units: Random units for structural metrics.
        layers: Where these units are.
        groups: The number of the group of each element, shaped like one row: what is removed together.
        replace: What stands in place of a removed element.
    """

    model: Any
    x: Tensor
    target: Any  # the explained output of each row
    baselines: Tensor  # shaped like x
    scores: Mapping[str, Tensor]  # method -> scores shaped like x
    methods: Mapping[str, Method]  # ``method(model, x, target=..., baselines=...)``, with its seed and groups
    once: Mapping[str, Tensor | None]  # method -> the groups of which every element has the score of its group
    perturb: Perturb
    truth: Tensor | None
    seed: int
    n_samples: int
    n_units: int
    layers: Any
    groups: Tensor
    replace: Any

    def shares(self) -> dict[str, Tensor]:
        """The scores, with those of groups shared out among their elements."""
        sizes = {name: 1 if of is None else of.flatten().bincount()[of] for name, of in self.once.items()}
        return {name: values / sizes[name] for name, values in self.scores.items()}


@dataclass(frozen=True)
class Metric:
    """A metric: for each method one number per row."""

    name: str
    title: str
    of: Callable[[Bench], Mapping[str, Tensor]]
    best: Best  # which values are, if any
    per: str = "row"  # what it has one number for: a row, or a feature
    needs_truth: bool = False  # it compares with known attributions


METRICS: dict[str, Metric] = {}


def metric(
    name: str, title: str = "", best: Best = "low", per: str = "row", needs_truth: bool = False
) -> Callable[[Callable[[Bench], Any]], Callable[[Bench], Any]]:
    """Register a function ``bench -> {method: one number per row}`` under a name.

    Args:
        name: The name in ``METRICS``.
        title: The heading in tables; by default the name.
        best: Which values are best: "low", "high" or None.
        per: What it has one number for: "row" or "feature".
        needs_truth: It compares with true scores.

    Returns:
        The decorator.

    Example:
        >>> from cafexai.metrics import METRICS
        >>> @metric("mean_size", best=None)
        ... def mean_size(bench):
        ...     return {name: scores.abs().mean(1) for name, scores in bench.scores.items()}
        >>> METRICS.pop("mean_size").title
        'mean_size'
    """

    def register(of: Callable[[Bench], Any]) -> Callable[[Bench], Any]:
        METRICS[name] = Metric(name, title or name, of, best, per, needs_truth)
        return of

    return register
