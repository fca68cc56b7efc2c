"""Distance to known attributions where features cancel each other (the paper's two tables on synthetic data)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ...methods import METHODS, scores_groups
from ..datasets import PROCEDURAL, TRAINED, Dataset, synthetic_conflicts
from ..models import conflict_setup, procedural, train_group
from .methods import ALL, CAFES, NETTED, UNITS, method
from .published_numbers import SAMPLING
from .record import Settings, Study, Task, Workplace
from .synthetic_report import columns, report

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}
AT_ONCE = 2**23  # numbers that one tensor inside a method may hold
COPIES = {"integrated_gradients": 50, "gradient_shap": 5, "smoothgrad": 5, "kernel_shap": 25}  # of a row that are made at once
SHARED_ORDERS = 250  # rows with the same random orders in Shapley Value Sampling: fewer draws would make the RMSE uncertain
WHOLE = 10  # dimensions up to which Shapley Value Sampling runs on the whole constructed network
NETWORK_SEED = 101  # of the first network on the first data set; the others count on


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per column of the table and data set."""
    for column in columns(settings):
        for place_of_seed in range(len(settings["seeds"])):

            def run(column: str = column, k: int = place_of_seed) -> Any:
                return (measure_trained if settings["trained"] else measure_constructed)(column, k, settings, place)

            yield Task(f"{column.replace(' ', '-')}-{settings['seeds'][place_of_seed]}", run)


def data_of(column: str, seed: int, settings: Settings) -> Dataset:
    """The data set of a column."""
    dimension = int(column.split()[0])
    likelihood = dict(map(tuple, settings["columns"]))[dimension]
    return synthetic_conflicts(dimension=dimension, likelihood=likelihood, rows=settings["rows"], seed=seed)


def measure_trained(column: str, k: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """RMSE of all methods on the best network of one data set; all networks of the column are trained as one group.

    As in the paper, the best network is the one with the lowest validation loss at the end of its training.
    """
    per_set = settings["networks"]
    sets = [data_of(column, seed, settings) for seed in settings["seeds"]]
    dimension, activation = column.split()
    plan = conflict_setup(int(dimension), ACTIVATIONS[activation])
    recipe = dataclasses.replace(plan.recipe, epochs=settings["epochs"])
    models = [plan.build((1,) * 2 * int(dimension), NETWORK_SEED + i) for i in range(per_set * len(sets))]

    def repeated(name: str) -> Tensor:
        return torch.stack([getattr(one, name) for one in sets]).repeat_interleave(per_set, 0)

    # The first task of a column trains, the others find the result in the folder.
    group = train_group(
        models,
        repeated("x_train"),
        repeated("y_train"),
        recipe,
        validation=(repeated("x_valid"), repeated("y_valid")),
        folder=place.models,
        progress=place.show_progress,
    )[k * per_set : (k + 1) * per_set]
    data = sets[k].to(torch.float64)
    x, truth = data.x_test[: settings["test_rows"]], true_attributions(data)[: settings["test_rows"]]
    best = min(group, key=lambda training: training.validation[-1])
    model = best.model.double()
    rows = {name: rmse(scores(name, model, x, settings["seeds"][k]), truth) for name in (*settings["methods"], *UNITS)}
    with torch.no_grad():
        error = (model(data.x_test) - data.y_test).square().mean().sqrt().item()
    validation = [math.sqrt(training.validation[-1]) for training in group]
    return {"networks": [{"validation": min(validation), "test": error, "methods": rows}], "validation of all": validation}


def measure_constructed(column: str, k: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """RMSE of all methods on the network that is built from the weights of one data set."""
    data = data_of(column, settings["seeds"][k], settings).to(torch.float64)
    assert data.weights is not None
    model, black_box = procedural(data.weights), Sparse(data.weights)
    x, truth = data.x_test[: settings["test_rows"]], true_attributions(data)[: settings["test_rows"]]
    found = {}
    for name in (*settings["methods"], *UNITS):
        limit = settings["limits"].get(f"{name} {column}")
        if limit == 0:
            continue
        if name == "shapley_value_sampling" and len(data.weights) > WHOLE:
            attributed = shapley_by_parts(data.weights, x[:limit], settings["seeds"][k])
        else:
            subject = black_box if scores_groups(METHODS.get(name)) else model
            attributed = scores(name, subject, x[:limit], settings["seeds"][k])
        found[name] = rmse(attributed, truth[:limit])
    with torch.no_grad():
        output = torch.cat([model(part) for part in x.split(500)])
        same = (output - black_box(x)).abs().max().item()
    error = (output - data.y_test[: len(x)]).square().mean().sqrt().item()
    if same > 1e-9:
        raise ArithmeticError(f"constructed({column!r}): the network and its form without zeros differ by {same:.3g}.")
    return {"networks": [{"test": error, "methods": found}]}


class Sparse(nn.Module):
    """The constructed network without its zero weights: the same outputs, thousands of times less work.

    Methods that only look at outputs see no difference, and on 1000 dimensions they would take days on the full matrices.
    """

    def __init__(self, weights: Tensor, strength: float = 50.0) -> None:
        super().__init__()
        self.weights = weights
        self.strength = strength

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 2 D) to (rows, 1)."""
        numbers, cancelling = x.tensor_split(2, 1)
        product = self.weights * numbers
        less = self.strength * cancelling.relu()
        return ((product.relu() - less).relu() - ((-product).relu() - less).relu()).sum(1, keepdim=True)


def shapley_by_parts(weights: Tensor, x: Tensor, seed: int) -> Tensor:
    """Shapley Value Sampling on the parts of the constructed network that it sums up, one for each x_i and its c_i.

    What a feature adds to the output depends on its own part alone, and in a random order of all features those of a part
    stand in a random order: scores have the same distribution as on the whole network, at a thousandth of the cost.
    """
    result = torch.empty_like(x)
    for i in range(len(weights)):
        pair = [i, len(weights) + i]
        part = Sparse(weights[i : i + 1])
        result[:, pair] = METHODS["shapley_value_sampling"](part, x[:, pair], seed=1_000_003 * seed + i).to(x)
    return result


def true_attributions(data: Dataset) -> Tensor:
    """The true attributions of the test rows, in the precision of the data: those of the loader are rounded to float32."""
    assert data.weights is not None
    numbers, cancelling = data.x_test.tensor_split(2, 1)
    return torch.cat([data.weights * numbers, -cancelling * data.weights * numbers], 1)


def scores(name: str, model: nn.Module, x: Tensor, seed: int) -> Tensor:
    """The attributions of a method, over so many rows at a time that memory stays small."""
    widest = max([x.shape[1], *(weight.shape[0] for weight in model.parameters())])
    per_row = x.shape[1] ** 2 if name == "lime" else COPIES.get(name, 1) * widest
    step = SHARED_ORDERS if name == "shapley_value_sampling" else max(4, AT_ONCE // per_row)
    options = {"seed": seed} if name in ("gradient_shap", "smoothgrad", *SAMPLING) else {}
    parts = []
    for start in range(0, len(x), step):
        if options:
            options["seed"] = 1_000_003 * seed + start  # not the same chances for every part
        parts.append(method(name)(model, x[start : start + step], **options).detach())
    return torch.cat(parts)


def rmse(found: Tensor, truth: Tensor) -> float:
    """Root mean square over the rows of each feature, then the mean over the features."""
    return (found - truth).square().mean(0).sqrt().mean().item()


SOME = ["gradient_x_input", "deeplift_rescale", "integrated_gradients", "shapley_value_sampling", *CAFES]
SEEDS = [42, 43, 44, 45, 46]
SMALL, LARGE = [list(pair) for pair in TRAINED], [list(pair) for pair in PROCEDURAL]
TRAINED_NETWORKS = {"trained": True, "activations": list(ACTIVATIONS), "columns": SMALL}
CONSTRUCTED = {"trained": False, "seeds": SEEDS, "rows": 10_000, "test_rows": None, "methods": [*ALL, *NETTED]}
SYNTHETIC = (
    Study(
        "synthetic-trained",
        "distance to known attributions on networks trained to cancel features (first table on synthetic data)",
        "nothing: the data are made",
        {
            "toy": TRAINED_NETWORKS | {"columns": SMALL[:1], "seeds": [42, 43], "networks": 1, "rows": 200, "test_rows": 20,
                                       "epochs": 3, "methods": SOME},
            "quick": TRAINED_NETWORKS | {"seeds": [42, 43], "networks": 2, "rows": 10_000, "test_rows": 500, "epochs": 2000,
                                         "methods": [*ALL, *NETTED]},
            "full": TRAINED_NETWORKS | {"seeds": SEEDS, "networks": 5, "rows": 10_000, "test_rows": None, "epochs": 2000,
                                        "methods": [*ALL, *NETTED]},
        },
        {"toy": "0.1", "quick": "7", "full": "25"},
        tasks,
        report,
    ),
    Study(
        "synthetic-procedural",
        "distance to known attributions on networks built to cancel features (second table on synthetic data)",
        "nothing: the data are made",
        {
            "toy": CONSTRUCTED | {"columns": SMALL[:2], "seeds": [42, 43], "rows": 200, "methods": SOME, "limits": {}},
            "quick": CONSTRUCTED | {"columns": LARGE[:5], "limits": {"lime 100": 0}},
            "full": CONSTRUCTED | {"columns": LARGE, "limits": {"lime 100": 100, "lime 1000": 0, "kernel_shap 1000": 200,
                                                                **{f"{name} 1000": 0 for name in NETTED}}},
        },
        {"toy": "0.1", "quick": "1.2", "full": "13"},
        tasks,
        report,
    ),
)  # fmt: skip
STUDIES = SYNTHETIC
