"""Faithfulness on deeper networks: both nettings at five values of c, biases as scores or in the reference, other methods."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ... import metrics as measure
from ...methods import METHODS
from ..datasets import load
from ..models import Recipe, mlp, seeded, train
from .infidelity_deep_report import FIRST, SIZES, column, report
from .methods import ALL, method
from .record import Settings, Study, Task, Workplace

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}
CONSTANTS = ("0", "0.25", "0.5", "0.75", "1")
FIRST_FUNCTION = "1"  # the place of the first activation in the networks


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per data set, activation and seed."""
    for name in settings["data"]:
        for activation in settings["activations"]:
            for seed in settings["seeds"]:

                def run(name: str = name, activation: str = activation, seed: int = seed) -> Any:
                    return measure_network(name, activation, seed, settings, place)

                yield Task(f"{column(name, activation).replace(' ', '-')}-{seed}", run)


def measure_network(name: str, activation: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Infidelity of all methods on the same rows and draws, mean over the rows, in float64."""
    table = load(name, folder=place.data)
    single, exact = table.to(torch.float32), table.to(torch.float64)
    rows = torch.randperm(len(single.x_train), generator=torch.Generator().manual_seed(seed))[: settings["train_rows"]]
    classes = int(single.y_train.max()) + 1
    widths = (single.x_train.shape[1], *settings["hidden"], classes)
    model = seeded(seed, lambda: mlp(*widths, activation=ACTIVATIONS[activation]))
    recipe = Recipe(settings["epochs"], settings["batch"], seed=seed, shuffle=True)
    x_train, y_train = single.x_train[rows], single.y_train[rows].long()
    model = train(model, x_train, y_train, recipe, folder=place.models, progress=place.show_progress).model.double().eval()
    x = exact.x_test[: settings["rows"]]
    with torch.no_grad():
        target = model(x).argmax(1)
        right = (model(exact.x_test).argmax(1) == exact.y_test).double().mean().item()
    scores: dict[str, Tensor] = {}
    found: dict[str, dict[str, float]] = {}
    for key in settings["methods"]:
        start = time.perf_counter()
        scores[key] = find_method(key)(model, x, target=target).detach()
        found[key] = {"seconds": time.perf_counter() - start}
    for size in SIZES:
        disturb = getattr(measure.TabularPerturbation, size)(exact.x_test, [list(c) for c in table.categories.values()])
        values = measure.infidelity(model, x, scores, disturb, target=target, n_samples=settings["samples"], seed=seed)
        for key, value in values.items():
            found[key][size] = value.mean().item()
    return {"accuracy": right, "rows": len(x), "methods": found}


def find_method(key: str) -> Any:
    """ "cafe reference c=0.5": biases in the reference; "c=first": 0.5 at the first activation, 0 behind it."""
    kind, _, c = key.partition(" reference c=")
    if not c:
        return method(key)
    constant = {FIRST_FUNCTION: 0.5, "*": 0.0} if c == FIRST else float(c)
    netting = "path" if kind == "cafe" else "feature"
    return functools.partial(METHODS["cafe"], c=constant, variant="published", netting=netting, biases="reference")


OWN = [
    f"{kind} c={c}" for kind in ("cafe", "feature", "cafe reference", "feature reference") for c in CONSTANTS
] + [f"{kind} reference c={FIRST}" for kind in ("cafe", "feature")]  # fmt: skip
BASELINES = [key for key in ALL if not key.startswith("cafe")]
COMMON = {"activations": list(ACTIVATIONS), "hidden": [128, 128, 128, 128], "batch": 128, "samples": 20}
DATA = ["covertype", "titanic", "adult", "compas", "heloc"]
DEEP = Study(
    "infidelity-deep",
    "faithfulness on networks with four hidden layers: both nettings, five values of c, biases in the reference (ours)",
    "covertype, titanic, adult, compas, heloc",
    {
        "toy": COMMON | {"data": ["compas"], "activations": ["relu"], "hidden": [8, 8, 8], "train_rows": 50, "epochs": 1,
                         "rows": 8, "seeds": [42, 43], "methods": ["deeplift_rescale", "integrated_gradients", *OWN]},
        "quick": COMMON | {"data": DATA, "train_rows": 10_000, "epochs": 15, "rows": 100, "seeds": [42, 43],
                           "methods": [*BASELINES, *OWN]},
        "full": COMMON | {"data": DATA, "train_rows": 20_000, "epochs": 15, "rows": 300, "seeds": [42, 43, 44, 45, 46],
                          "methods": [*BASELINES, *OWN]},
    },
    {"toy": "0.1", "quick": "3", "full": "8"},
    tasks,
    report,
)  # fmt: skip
STUDIES = (DEEP,)
