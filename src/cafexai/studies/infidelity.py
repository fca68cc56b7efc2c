"""Infidelity, structural infidelity, sensitivity, complexity and runtime on real tables (the paper's real data experiments)."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from .. import metrics as measure
from ..datasets import Dataset, load, openxai_weights
from ..models import openxai_mlp, setup, train
from .methods import ALL, CAFES, FAST, method
from .paper import METHOD_TITLES, SAMPLING, figure_of_paper
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace

OPENXAI = ("compas", "heloc", "adult", "german")
SIZES = ("small", "large")
TITLES = {
    "infidelity": "Infidelity",
    "structural_infidelity": "Structural infidelity",
    "max_sensitivity": "Max-sensitivity",
    "complexity": "Complexity",
    "seconds": "Runtime in seconds",
}


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per data set and seed; the four networks of OpenXAI have fixed weights and one seed."""
    for name in settings["data"]:
        fixed = settings["family"] == "mlp" and name in OPENXAI
        for seed in settings["seeds"][: 1 if fixed else None]:

            def run(name: str = name, seed: int = seed) -> Any:
                return measured(name, seed, settings, place)

            yield Task(f"{name}-{seed}", run)


def measured(name: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """All metrics of all methods on one network: ``[mean, standard error]`` over the test rows."""
    table, model = prepared(name, seed, settings, place)
    x = table.x_test[: settings["rows"]]
    mask = table.feature_mask[0]
    with torch.no_grad():
        output = model(x)
    target = torch.zeros(len(x), dtype=torch.long) if output.shape[1] == 1 else output.argmax(1)
    methods = {key: method(key) for key in settings["methods"]}
    found: dict[str, dict[str, Any]] = {key: {} for key in methods}
    scores: dict[str, Tensor] = {}
    for key, run in methods.items():
        start = time.perf_counter()
        scores[key] = run(model, x, target=target, feature_mask=mask).detach()
        found[key]["seconds"] = [time.perf_counter() - start, 0.0]
        found[key]["complexity"] = _mean(measure.complexity(scores[key]))
        if settings["sensitivity"]:

            def attribute(rows: Tensor, run: Any = run, **options: Any) -> Tensor:
                return run(model, rows, feature_mask=mask, **options)

            found[key]["max_sensitivity"] = _mean(measure.max_sensitivity(attribute, x, seed=seed, target=target))
    for size in SIZES:
        disturb = getattr(measure.TabularPerturbation, size)(table.x_test, [list(c) for c in table.categories.values()])
        options: dict[str, Any] = {"n_samples": settings["samples"], "seed": seed}
        for key, values in measure.infidelity(model, x, scores, disturb, target=target, **options).items():
            found[key][f"infidelity {size}"] = _mean(values)
        if settings["units"]:
            fast = {key: run for key, run in methods.items() if key not in SAMPLING or key == "shapley_value_sampling"}
            some = x[: settings["unit_rows"]]
            structural = measure.structural_infidelity(
                fast, model, some, disturb, n_units=settings["units"], feature_mask=mask, **options
            )
            for key, values in structural.items():
                found[key][f"structural_infidelity {size}"] = _mean(values.mean(0))
    accuracy = ((output[:, 0] > 0) if output.shape[1] == 1 else target) == table.y_test[: len(x)]
    return {"rows": len(x), "accuracy": accuracy.double().mean().item(), "methods": found}


def prepared(name: str, seed: int, settings: Settings, place: Workplace) -> tuple[Dataset, nn.Module]:
    """The data in float64, and the network: OpenXAI's, or trained as in the paper."""
    options = {"demo": True} if name == "mimic" and settings["mimic_demo"] else {}
    table = load(name, folder=place.data, **options)
    if settings["family"] == "mlp" and name in OPENXAI:
        return table.to(torch.float64), openxai_mlp(openxai_weights(name, folder=place.data)).double().eval()
    plan = setup(name, settings["family"])
    single = table.to(torch.float32)
    recipe = plan.seeded_recipe(seed)
    recipe = type(recipe)(**{**vars(recipe), "epochs": settings["epochs"]})
    model = plan.build(table.layout, seed)
    rows = slice(settings["train_rows"])
    trained = train(
        model, single.x_train[rows], single.y_train[rows], recipe, folder=place.models, progress=place.show_progress
    )
    return table.to(torch.float64), trained.model.double().eval()


def _mean(values: Tensor) -> list[float]:
    """Mean and standard error."""
    error = values.double().std().item() / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return [values.double().mean().item(), error]


def report(settings: Settings, results: Results) -> Report:
    """A table per metric with the paper's figures, and the claims about their order."""
    ours = collected(settings, results)
    family = settings["family"]
    tables = [_table(metric, settings, ours, family) for metric in TITLES if any(key[0] == metric for key in ours)]
    findings = [*_levels(settings, ours), *_orders(settings, ours), *_claims(settings, ours)]
    return Report(tables, findings)


Key = tuple[str, str, str]  # metric, column, method


def collected(settings: Settings, results: Results) -> dict[Key, tuple[float, float]]:
    """Mean over the seeds, with its standard error: over rows for one seed, else over seeds."""
    ours: dict[Key, tuple[float, float]] = {}
    for name in settings["data"]:
        runs = [result["methods"] for key, result in results.items() if key.rsplit("-", 1)[0] == name]
        for key in settings["methods"]:
            for metric in runs[0][key]:
                values = [run[key][metric] for run in runs]
                means = [mean for mean, _ in values]
                error = values[0][1] if len(means) == 1 else statistics.stdev(means) / math.sqrt(len(means))
                kind, _, size = metric.partition(" ")
                ours[kind, f"{name} {size}".strip(), key] = (statistics.mean(means), error)
    return ours


def _columns(metric: str, settings: Settings) -> list[str]:
    sized = metric in ("infidelity", "structural_infidelity")
    return [f"{name} {size}" if sized else name for name in settings["data"] for size in (SIZES if sized else ("",))]


def _table(metric: str, settings: Settings, ours: dict[Key, tuple[float, float]], family: str) -> Table:
    columns = _columns(metric, settings)
    header = ["method", *(part for column in columns for part in (column, "paper", "difference"))]
    rows: list[list[Any]] = []
    for key in settings["methods"]:
        cells: list[Any] = [METHOD_TITLES[key]]
        for column in columns:
            mean, error = ours.get((metric, column, key), (None, 0.0))
            theirs = figure_of_paper(f"{metric} {family}", key, column)
            apart = None if mean is None or not theirs else f"{mean / theirs - 1:+.1%}"
            cells += [None if mean is None else f"{mean:.4g} ± {error:.2g}", theirs, apart]
        rows.append(cells)
    note = "Mean ± standard error" + (
        " over the rows, or over the seeds where there are several." if metric != "seconds" else ""
    )
    return Table(f"{metric}-{family}", f"{TITLES[metric]}, {_family(family)}", header, rows, note)


def _family(family: str) -> str:
    return {"mlp": "MLPs", "ft": "FT-Transformers"}[family]


def _levels(settings: Settings, ours: dict[Key, tuple[float, float]]) -> Iterable[Finding]:
    """The networks of OpenXAI are the paper's own: levels can be compared."""
    for name in settings["data"]:
        if settings["family"] != "mlp" or name not in OPENXAI:
            continue
        apart = {}
        for key in ("gradient_x_input", "deeplift_rescale", "integrated_gradients", *CAFES):
            for size in SIZES:
                column = f"{name} {size}"
                theirs = figure_of_paper("infidelity mlp", key, column)
                if theirs and ("infidelity", column, key) in ours:
                    apart[f"{METHOD_TITLES[key]}, {size}"] = ours["infidelity", column, key][0] / theirs - 1
        if apart:
            worst = max(apart, key=lambda k: abs(apart[k]))
            yield Finding(
                f"infidelity on {name} within 15 % of the paper",
                abs(apart[worst]) <= 0.15,
                f"Largest difference {apart[worst]:+.1%} ({worst}).",
            )


def _orders(settings: Settings, ours: dict[Key, tuple[float, float]]) -> Iterable[Finding]:
    """Same order of methods as in the paper; differences below two standard errors, or none in the paper, are ties."""
    compared = [
        key for key in ("gradient_x_input", "deeplift_rescale", "integrated_gradients", *CAFES) if key in settings["methods"]
    ]
    for name in settings["data"]:
        wrong, pairs, ties = [], 0, 0
        for size in SIZES:
            column = f"{name} {size}"
            for i, one in enumerate(compared):
                for two in compared[i + 1 :]:
                    theirs = [figure_of_paper(f"infidelity {settings['family']}", key, column) for key in (one, two)]
                    if theirs[0] is None or theirs[1] is None:
                        continue
                    (a, ea), (b, eb) = ours["infidelity", column, one], ours["infidelity", column, two]
                    pairs += 1
                    if abs(a - b) < 2 * math.hypot(ea, eb) or theirs[0] == theirs[1]:
                        ties += 1
                    elif (a < b) != (theirs[0] < theirs[1]):
                        wrong.append(f"{METHOD_TITLES[one]} {a:.4g} and {METHOD_TITLES[two]} {b:.4g}, {size}")
        if pairs:
            numbers = f"{pairs} pairs, {ties} ties" + (f"; other way round: {'; '.join(wrong[:3])}." if wrong else ".")
            yield Finding(f"methods in the paper's order of infidelity on {name}", not wrong, numbers)


RIVALS = {
    "every comparably fast method": [key for key in FAST if key != "integrated_gradients"],
    "Integrated Gradients": ["integrated_gradients"],
    "DeepLIFT RevealCancel, which the paper could not run": ["deeplift_revealcancel"],
    "the sampling methods": list(SAMPLING),
}


def _claims(settings: Settings, ours: dict[Key, tuple[float, float]]) -> Iterable[Finding]:
    """CAFE 0.5 against its rivals; what is better by less than two standard errors is a tie."""
    for name in settings["data"]:
        for rivals, keys in RIVALS.items():
            known = [key for key in keys if key in settings["methods"]]
            if not known or "cafe c=0.5" not in settings["methods"]:
                continue
            holds, numbers = True, []
            for size in SIZES:
                mean, error = ours["infidelity", f"{name} {size}", "cafe c=0.5"]
                best = min(known, key=lambda key: ours["infidelity", f"{name} {size}", key][0])
                other, spread = ours["infidelity", f"{name} {size}", best]
                holds &= other >= mean - 2 * math.hypot(error, spread)
                numbers.append(f"{mean:.4g} ± {error:.2g} against {other:.4g} ± {spread:.2g} ({METHOD_TITLES[best]}, {size})")
            yield Finding(f"CAFE 0.5 at least as faithful as {rivals} on {name}", holds, "; ".join(numbers) + ".")


COMMON = {"samples": 20, "sensitivity": True, "mimic_demo": True, "seeds": [42, 43, 44, 45, 46]}
MLP = Study(
    "infidelity-mlp",
    "faithfulness on tables, MLPs (Table 1; structural infidelity, sensitivity, complexity and runtimes of the appendix)",
    "compas, heloc, adult, german with OpenXAI's networks; titanic, covertype, mimic",
    {
        "toy": COMMON | {"family": "mlp", "data": ["compas"], "methods": ["gradient_x_input", "cafe c=0.5"], "rows": 40,
                         "train_rows": 200, "epochs": 1, "units": 2, "unit_rows": 10, "seeds": [42]},
        "quick": COMMON | {"family": "mlp", "data": [*OPENXAI, "titanic"], "methods": list(ALL), "rows": None,
                           "train_rows": None, "epochs": 100, "units": 0, "unit_rows": 200},
        "full": COMMON | {"family": "mlp", "data": [*OPENXAI, "titanic", "mimic", "covertype"], "methods": list(ALL),
                          "rows": None, "train_rows": None, "epochs": 100, "units": 50, "unit_rows": None},
    },
    {"toy": "0.1", "quick": "5", "full": "hours"},
    tasks,
    report,
)  # fmt: skip
STUDIES = (MLP,)
