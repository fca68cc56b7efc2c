"""Infidelity, structural infidelity, sensitivity, complexity and runtime on real tables (the paper's real data experiments)."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ... import metrics as measure
from ...errors import UnsupportedOperation
from ...methods import Method
from ...metrics.unit_infidelity import group_draws
from ..datasets import Dataset, load, openxai_weights
from ..models import openxai_mlp, setup, train
from .infidelity_report import SIZES, pairs, report
from .methods import ALL, NETTED, method
from .published_numbers import SAMPLING
from .record import Settings, Study, Task, Workplace
from .variants import AUTHORS, TABLES, Variant, own_settings

AS_AUTHORS = {"head": "last", "lookup": "argmax", "category_bias": False}


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per data set and seed; the four networks of OpenXAI have fixed weights and one seed."""
    for name in settings["data"]:
        own = own_settings(name, settings)
        for seed in own["seeds"][: 1 if Variant.of(name, settings["family"]).given else None]:

            def run(name: str = name, seed: int = seed, own: Settings = own) -> Any:
                return measure_network(name, seed, own, place)

            yield Task(f"{name}-{seed}", run)


def measure_network(name: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """All metrics of all methods on one network: ``[mean, standard error]`` over the test rows."""
    table, model = prepare(name, seed, settings, place)
    x = table.x_test[: settings["rows"]]
    with torch.no_grad():
        output = model(x)
    target = torch.zeros(len(x), dtype=torch.long) if output.shape[1] == 1 else output.argmax(1)
    methods = {key: method(key) for key in settings["methods"]}
    rows = {key: min(settings["limits"].get(key, len(x)), len(x)) for key in methods}
    found: dict[str, dict[str, Any]] = {key: {} for key in methods}
    scores, refused = {}, {}
    for key, run in list(methods.items()):
        explained = functools.partial(run, model, feature_groups=table.feature_mask[0])
        try:
            found[key], scores[key] = _alone(explained, x[: rows[key]], target[: rows[key]], seed, settings["sensitivity"])
        except UnsupportedOperation as problem:  # its scores would not be the method's own: no number instead of a wrong one
            refused[key] = str(problem)
            del methods[key], found[key]
    apart: dict[str, dict[str, Any]] = {}
    disturb = {
        size: getattr(measure.TabularPerturbation, size)(table.x_test, [list(c) for c in table.categories.values()])
        for size in SIZES
    }
    options: dict[str, Any] = {"n_samples": settings["samples"], "seed": seed}
    padded = {key: _pad(value, x) for key, value in scores.items()}
    for size in SIZES:
        values = measure.infidelity(model, x, padded, disturb[size], target=target, **options)
        _keep(f"infidelity {size}", values, rows, found, apart)
    if settings["units"]:
        fast = {key: run for key, run in methods.items() if key not in SAMPLING or key == "shapley_value_sampling"}
        some = x[: settings["unit_rows"]]
        structural = _structural(fast, model, some, table, disturb, rows, settings["units"], options)
        for size in SIZES:
            _keep(f"structural_infidelity {size}", structural[size], rows, found, apart)
    right = ((output[:, 0] > 0) if output.shape[1] == 1 else target) == table.y_test[: len(x)]
    return {
        "rows": len(x),
        "train rows": len(table.y_train[: settings["train_rows"]]),
        "limited": {key: rows[key] for key in methods if rows[key] < len(x)},
        "refused": refused,
        "accuracy": right.double().mean().item(),
        "methods": found,
        "differences": apart,
    }


def _alone(
    run: Callable[..., Tensor], x: Tensor, target: Tensor, seed: int, sensitivity: bool
) -> tuple[dict[str, Any], Tensor]:
    """What a method shows by itself: runtime, complexity and, if asked for, sensitivity; and its scores."""
    run(x[:2], target=target[:2])  # what a first call loads is not part of its runtime
    start = time.perf_counter()
    scores = run(x, target=target).detach()
    found = {"seconds": [time.perf_counter() - start, 0.0], "complexity": mean_and_error(measure.complexity(scores))}
    if sensitivity:

        def attribute(rows: Tensor, **options: Any) -> Tensor:
            return scores if rows is x else run(rows, **options)  # chances have a seed: the scores would be the same

        found["max_sensitivity"] = mean_and_error(measure.max_sensitivity(attribute, x, seed=seed, target=target))
    return found, scores


def _pad(scores: Tensor, x: Tensor) -> Tensor:
    """As many rows as x, so that all methods share the draws; the zeros are left out of every mean."""
    return torch.cat([scores.to(x), torch.zeros_like(x[len(scores) :])])


def _structural(
    methods: Mapping[str, Method],
    model: nn.Module,
    x: Tensor,
    table: Dataset,
    disturb: Mapping[str, Any],
    rows: Mapping[str, int],
    count: int,
    options: Mapping[str, Any],
) -> dict[str, dict[str, Tensor]]:
    """``metrics.structural_infidelity`` for several perturbations, which share the scores: size -> method -> (rows, units)."""
    values: dict[str, dict[str, dict[int, Tensor]]] = {size: {key: {} for key in methods} for size in disturb}
    for unit, numbers in group_draws(measure.random_units(model, x, count, options["seed"])):
        scores = {
            key: _pad(run(unit, x[: rows[key]], target=0, feature_groups=table.feature_mask[0]).detach(), x)
            for key, run in methods.items()
        }
        for number, (size, perturb) in itertools.product(numbers, disturb.items()):
            draws = {**options, "seed": options["seed"] + number}
            for key, value in measure.infidelity(unit, x, scores, perturb, target=0, **draws).items():
                values[size][key][number] = value
    ordered = range(count)
    return {
        size: {key: torch.stack([parts[number] for number in ordered], 1) for key, parts in kept.items()}
        for size, kept in values.items()
    }


def _keep(
    metric: str, values: Mapping[str, Tensor], rows: Mapping[str, int], found: dict[str, Any], apart: dict[str, Any]
) -> None:
    """Means of all methods, and of the differences between some of them, row by row (or unit by unit)."""

    def kept(value: Tensor, count: int) -> list[float]:
        return mean_and_error(value[:count] if value.ndim == 1 else value[:count].mean(0))

    for key, value in values.items():
        found[key][metric] = kept(value, rows[key])
    for one, two in pairs(values):
        both = min(rows[one], rows[two])
        apart.setdefault(f"{one} minus {two}", {})[metric] = kept(values[one] - values[two], both)


def prepare(name: str, seed: int, settings: Settings, place: Workplace) -> tuple[Dataset, nn.Module]:
    """The data in float64, and the network: OpenXAI's, or trained as in the paper.

    "titanic@5e-4" is trained at this learning rate; "titanic@authors" is an FT-Transformer built and trained as the authors do.
    """
    variant = Variant.of(name, settings["family"])
    table = load(variant.data, folder=place.data, **({"demo": True} if variant.demo(settings) else {}))
    if variant.given:
        return table.to(torch.float64), openxai_mlp(openxai_weights(variant.data, folder=place.data)).double().eval()
    plan = setup(variant.data, settings["family"])
    single = table.to(torch.float32)
    changes: dict[str, Any] = {
        "epochs": variant.epochs(settings),
        "lr": variant.rate or plan.recipe.lr,
        "shuffle": variant.shuffled,
    }
    recipe = dataclasses.replace(plan.seeded_recipe(seed), **changes)
    usual = {"head": "cls", "lookup": "product"}
    transformer = {key: settings.get(key, word) for key, word in usual.items()} if settings["family"] == "ft" else {}
    transformer |= AS_AUTHORS if variant.as_authors else {}
    model = plan.build(table.layout, seed, **transformer).float()
    rows = slice(settings["train_rows"])
    trained = train(
        model, single.x_train[rows], single.y_train[rows], recipe, folder=place.models, progress=place.show_progress
    )
    return table.to(torch.float64), trained.model.double().eval()


def mean_and_error(values: Tensor) -> list[float]:
    """Mean and standard error."""
    error = values.double().std().item() / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return [values.double().mean().item(), error]


COMMON = {"samples": 20, "sensitivity": True, "mimic_demo": True, "seeds": [42, 43, 44, 45, 46], "limits": {}, "per_data": {}}
WHOLE = {"rows": None, "train_rows": None, "unit_rows": None, "epochs": 100, "units": 50}
TOY = {"methods": ["gradient_x_input", "cafe c=0.5"], "rows": 20, "train_rows": 50, "unit_rows": 5, "epochs": 1, "units": 2,
       "seeds": [42], "limits": {"gradient_x_input": 10}}  # fmt: skip
# The paper names no learning rate. At the 1e-4 of the authors' published code our networks for Titanic are far below its level
# of infidelity and those for Covertype below its accuracy; at 5e-4 they reach them.
HIGHER_RATE = ["titanic@5e-4", "covertype@5e-4"]
PERCEPTRONS = {"family": "mlp", "methods": [*ALL, *NETTED], "demo_epochs": 2000}
# A network for Covertype takes a quarter of an hour: one seed, but all rows and epochs.
FEWER = {"rows": 2000, "limits": dict.fromkeys(NETTED, 200)}
ONE = FEWER | {"seeds": [42]}
MLP = Study(
    "infidelity-mlp",
    "faithfulness on tables, MLPs (Table 1; structural infidelity, sensitivity, complexity and runtimes of the appendix)",
    "compas, heloc, adult, german with OpenXAI's networks; titanic; covertype; mimic (the demo, or mimic_demo=false)",
    {
        "toy": COMMON | PERCEPTRONS | TOY | {"data": ["compas"]},
        "quick": COMMON | WHOLE | PERCEPTRONS | {"data": [*TABLES, *HIGHER_RATE], "units": 10, "unit_rows": 200,
                                                 "per_data": {"covertype": ONE, "covertype@5e-4": ONE}},
        # Covertype has a study of its own: its five networks take as long as all others together, several times.
        "full": COMMON | WHOLE | PERCEPTRONS | {"data": [*(name for name in TABLES if name != "covertype"), "titanic@5e-4"]},
    },
    {"toy": "0.1", "quick": "45 (estimated)", "full": "8"},
    tasks,
    report,
)  # fmt: skip
# One network decides little, and five take an hour: the data set on which the claim of the paper failed, by itself.
SPARED = FEWER | {"data": ["covertype", "covertype@5e-4"], "units": 10, "unit_rows": 200}
COVERTYPE = Study(
    "infidelity-covertype",
    "faithfulness on Covertype alone, MLPs from five trainings at two learning rates (Table 1)",
    "covertype",
    {
        "toy": COMMON | PERCEPTRONS | TOY | {"data": ["covertype"]},
        "quick": COMMON | WHOLE | PERCEPTRONS | SPARED | {"seeds": [42, 43], "train_rows": 50000, "epochs": 20, "rows": 500},
        "full": COMMON | WHOLE | PERCEPTRONS | SPARED,
    },
    {"toy": "0.1", "quick": "5 (estimated)", "full": "180 (estimated)"},
    tasks,
    report,
)
# LRP, KernelSHAP and LIME are left out in the paper: the first for lack of support, the others for their cost.
SUITABLE = [key for key in (*ALL, *NETTED) if key not in ("lrp", "kernel_shap", "lime")]
SLOW = {"integrated_gradients": 100, **dict.fromkeys(("shapley_value_sampling", *NETTED), 40)}
AT_FULL_ROWS = ("compas", "heloc", "german", "titanic", "adult")  # of FT-Transformers
_AUTHORS = [f"{name}@{AUTHORS}" for name in TABLES]
TRANSFORMER = {"family": "ft", "head": "cls", "lookup": "product", "methods": SUITABLE,
               "data": [*TABLES, *_AUTHORS]}  # fmt: skip
FT = Study(
    "infidelity-ft",
    "faithfulness on tables, FT-Transformers (Table 2; structural infidelity, sensitivity, complexity and runtimes)",
    "compas, heloc, adult, german, titanic, covertype, mimic (the demo, or mimic_demo=false)",
    {
        "toy": COMMON | TRANSFORMER | TOY | {"data": ["titanic"]},
        "quick": COMMON | WHOLE | TRANSFORMER | {"seeds": [42, 43, 44], "rows": 400, "train_rows": 5000, "units": 3,
                                                 "unit_rows": 20, "limits": SLOW,
                                                 "per_data": {key: {"seeds": [42]} for key in _AUTHORS}},
        # All rows to train on and the paper's seeds, with the limits of quick. Half a day per network for Covertype: not here.
        "full": COMMON | WHOLE | TRANSFORMER | {"data": list(AT_FULL_ROWS), "rows": 400, "units": 3, "unit_rows": 20,
                                                "limits": SLOW},
    },
    {"toy": "0.1", "quick": "60 (estimated)", "full": "216 (from its parts)"},
    tasks,
    report,
)  # fmt: skip
STUDIES = (MLP, COVERTYPE, FT)
