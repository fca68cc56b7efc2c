"""Conflicts of input features under a shift of correlation and for a missing feature (the paper's first figure of shifts)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ...cafe import CAFE
from ..datasets import synthetic_shift
from ..models import SHIFT_TRANSFORMERS, SHIFT_WIDTHS, shift_setup, train
from .depth import find_method
from .distributions import compare_sets, tell_apart
from .record import Settings, Study, Task, Workplace
from .shift_tabular_report import NETTINGS, SHIFTS, UNITS, networks, report


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per network and seed."""
    for network in networks(settings):
        for seed in settings["seeds"]:

            def run(network: str = network, seed: int = seed) -> Any:
                return measure_network(network, seed, settings, place)

            yield Task(f"{network}-{seed}", run)


def measure_network(network: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """s_conf at c = 1 for the true label, in float64, on training rows, fresh rows of the same kind, and both shifts.

    Which shift is which is told from s_conf for the predicted class and the largest logit: labels are not known in use.
    """
    data = synthetic_shift(rows=settings["rows"], seed=seed)
    *heads, width = map(int, network.split("-")[1:])
    plan = shift_setup(width, *heads)
    recipe = dataclasses.replace(plan.seeded_recipe(seed), epochs=settings["epochs"])
    model = plan.build(data.layout, seed)
    trained = train(model, data.x_train, data.y_train, recipe, folder=place.models, progress=place.show_progress)
    model, exact = trained.model.double(), data.to(torch.float64)
    sets = {"train": (exact.x_train, exact.y_train), "fresh": (exact.x_test, exact.y_test), **exact.shifts}
    with torch.no_grad():
        logits = {name: model(x) for name, (x, _) in sets.items()}
    largest = {name: out.amax(1) for name, out in logits.items()}
    asked = ["fresh", *SHIFTS]
    apart = {"MaxLogit": tell_apart({name: largest[name][:, None] for name in asked})}
    found: dict[str, Any] = {"max_logit": compare_sets(largest, "train"), "told_apart": apart}
    for netting, key in (NETTINGS | UNITS).items():
        cafe = find_method("deep c=0.5" if netting == "deep" else f"{netting} c=1", model)

        def conflicts(targets: dict[str, Any], cafe: CAFE = cafe) -> dict[str, Tensor]:
            return {
                name: cafe.explain(sets[name][0], target=target, batch_size=1000, show_progress=False).s_conf
                for name, target in targets.items()
            }

        found[key] = compare_sets(conflicts({name: y for name, (_, y) in sets.items()}), "train")
        guessed = conflicts({name: logits[name].argmax(1) for name in asked})
        apart[f"s_conf, {netting}"] = tell_apart({name: guessed[name][:, None] for name in asked})
        pair = {name: torch.stack([guessed[name], largest[name]], 1) for name in asked}
        apart[f"s_conf and MaxLogit, {netting}"] = tell_apart(pair)
    found["accuracy"] = {name: (logits[name].argmax(1) == y).double().mean().item() for name, (_, y) in sets.items()}
    return found


ALL_NETWORKS = {"mlps": list(SHIFT_WIDTHS), "transformers": [list(pair) for pair in SHIFT_TRANSFORMERS]}
TABULAR = Study(
    "shift-tabular",
    "conflict scores of tables under a shift of correlation and for a missing feature (figure of distributional shifts)",
    "nothing: the data are made",
    {
        "toy": {"mlps": [16], "transformers": [[4, 32]], "rows": 300, "epochs": 2, "seeds": [42, 43]},
        "quick": {**ALL_NETWORKS, "rows": 10_000, "epochs": 25, "seeds": [42, 43]},
        "full": {**ALL_NETWORKS, "rows": 10_000, "epochs": 25, "seeds": [42, 43, 44, 45, 46]},
    },
    {"toy": "0.1", "quick": "2", "full": "4"},
    tasks,
    report,
)
STUDIES = (TABULAR,)
