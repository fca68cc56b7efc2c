"""Distance to known attributions where features cancel each other in networks of any depth, all hand-set."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...cafe import CAFE
from ..datasets import synthetic_conflicts
from ..models import procedural
from .infidelity_deep_report import level
from .methods import WAYS, large_scores, method
from .published_numbers import METHOD_TITLES
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace
from .synthetic import rmse, true_attributions

DEFAULT = "default c=0.5"
RIVALS = ("gradient_x_input", "integrated_gradients", "deeplift_rescale", "deeplift_revealcancel")
OWN = (
    "cafe c=0.5",
    "cafe c=1",
    "feature c=0.5",
    "feature c=1",
    "unit c=0.5",
    "unit c=1",
    DEFAULT,
    "default c=1",
)
MEASURES = {
    "rmse": "RMSE against the known attributions",
    "signed": "RMSE of positive and negative scores against those of the known attributions",
    "shown": "Share of the effect of cancelled features, and of those that cancel them, that the scores show",
}


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per depth and data set."""
    for depth in settings["depths"]:
        for seed in settings["seeds"]:

            def run(depth: int = depth, seed: int = seed) -> Any:
                return measure_network(depth, seed, settings)

            yield Task(f"{depth}-{seed}", run)


def measure_network(depth: int, seed: int, settings: Settings) -> dict[str, Any]:
    """Everything for one network, in float64."""
    dimension, likelihood = settings["dimension"], settings["likelihood"]
    data = synthetic_conflicts(dimension=dimension, likelihood=likelihood, rows=settings["rows"], seed=seed).to(torch.float64)
    assert data.weights is not None
    model, x, truth = procedural(data.weights, depth=depth), data.x_test, true_attributions(data)
    cancelled = (x[:, dimension:] == 1).repeat(1, 2)
    found = {}
    for name in settings["methods"]:
        positive, negative = signed_scores(name, model, x)
        scores = positive - negative
        found[name] = {
            "rmse": rmse(scores, truth),
            "signed": rmse(torch.cat([positive, negative], 1), torch.cat([truth.relu(), (-truth).relu()], 1)),
            "shown": ((scores * truth)[cancelled].sum() / truth[cancelled].square().sum()).item(),
        }
    with torch.no_grad():
        error = (model(x) - data.y_test).square().mean().sqrt().item()
    return {"test": error, "cancelled": cancelled[:, :dimension].double().mean().item(), "methods": found}


def signed_scores(name: str, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Positive and negative scores; other methods have one of the two."""
    kind, given, c = name.partition(" c=")
    if not given:
        scores = method(name)(model, x).detach()
        return scores.relu(), (-scores).relu()
    with large_scores():
        e = CAFE(model, float(c), **WAYS.get(kind, {})).explain(x, show_progress=False)
    return torch.as_tensor(e.positive), torch.as_tensor(e.negative)


def title(name: str) -> str:
    """A method as a reader wants it."""
    kind, _, c = name.partition(" c=")
    if kind == "default":
        return f"CAFE, the default (c = {c})"
    return f"CAFE as published (c = {c})" if kind == "cafe" else METHOD_TITLES[name]


def over_seeds(settings: Settings, results: Results, depth: int, name: str, measure: str) -> list[float]:
    """A measure, a data set each."""
    return [results[f"{depth}-{seed}"]["methods"][name][measure] for seed in settings["seeds"]]


def report(settings: Settings, results: Results) -> Report:
    """A table per measure, by depth, and what is shown of conflicts."""
    columns = ["method", *(f"{depth} layers" for depth in settings["depths"])]
    tables = []
    for measure, shown in MEASURES.items():
        rows = []
        for name in settings["methods"]:
            levels = [level(over_seeds(settings, results, depth, name, measure)) for depth in settings["depths"]]
            rows.append([title(name), *(f"{mean:.3g} ± {error:.1g}" for mean, error in levels)])
        note = "Mean ± standard error over the data sets. Layers of ReLU; those beyond two change nothing."
        tables.append(Table(f"deep-{measure}", shown, columns, rows, note))
    return Report(tables, list(_findings(settings, results)))


def _findings(settings: Settings, results: Results) -> Iterable[Finding]:
    depths = settings["depths"]
    worst = max(result["test"] for result in results.values())
    yield Finding("the networks of all depths are exact", worst < 1e-5, f"Largest RMSE of an output {worst:.2g}.")

    def means(name: str) -> list[float]:
        return [statistics.fmean(over_seeds(settings, results, depth, name, "rmse")) for depth in depths]

    def shown(values: Sequence[float]) -> str:
        return ", ".join(f"{value:.3g}" for value in values)

    at = f"at {', '.join(map(str, depths))} layers"
    for name in [name for name in ("cafe c=1", "feature c=1", "unit c=1", "default c=1") if name in settings["methods"]]:
        found = means(name)
        yield Finding(f"{title(name)} is exactly 0.00 at every depth", max(found) < 0.005, f"RMSE {at}: {shown(found)}.")
    if {DEFAULT, "cafe c=0.5"} <= set(settings["methods"]):
        found, rivals = means(DEFAULT), {name: means(name) for name in RIVALS if name in settings["methods"]}
        best = [min(values) for values in zip(*rivals.values(), strict=True)]
        beside = "; ".join(f"{title(name)} {shown(values)}" for name, values in rivals.items())
        ahead = all(one <= other + 1e-9 for one, other in zip(found, best, strict=True))
        claim = f"{title(DEFAULT)} has an RMSE as low as that of every other method, or lower, at every depth"
        yield Finding(claim, ahead, f"RMSE {at}: {shown(found)}. {beside}.")
        paper = means("cafe c=0.5")
        yield Finding(
            "the default shows as much of features that cancel as the published method, or more, at every depth (c = 0.5)",
            all(one <= other + 1e-9 for one, other in zip(found, paper, strict=True)),
            f"RMSE {at}: {shown(found)} against {shown(paper)}. Behind a unit where all cancels the net is 0, and unit netting "
            "passes nothing on.",
        )


COMMON = {"methods": [*OWN, *RIVALS], "dimension": 5, "likelihood": 0.15, "seeds": [42, 43, 44, 45, 46]}
DEEP = Study(
    "synthetic-deep",
    "distance to known attributions on networks built to cancel features, of 2 to 32 layers (ours)",
    "nothing: the data are made",
    {
        "toy": COMMON | {"depths": [2, 5], "seeds": [42, 43], "rows": 200},
        "quick": COMMON | {"depths": [2, 3, 4, 8, 16, 32], "rows": 2000},
        "full": COMMON | {"depths": [2, 3, 4, 8, 16, 32], "rows": 10_000},
    },
    {"toy": "0.1", "quick": "1", "full": "3"},
    tasks,
    report,
)
STUDIES = (DEEP,)
