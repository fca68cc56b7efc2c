"""Which articles of clothing replace the lower digit in the semantic shift, which the paper does not say, and what follows.

The networks are those of ``shift-images``, from the same store; every choice of articles only asks for scores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..datasets import concat_mnist
from ..datasets.mnist import FASHION_CLASSES
from ..models import CONCAT_WIDTHS, IMAGE_RECIPE, concat_cnn, seeded, train
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace
from .shift_images import EPOCHS, scores
from .shift_tabular_report import mean, runs, spread

CHOICES: Mapping[str, Sequence[str]] = {
    "all ten": FASHION_CLASSES,
    "classes 0-4": FASHION_CLASSES[:5],
    "classes 5-9": FASHION_CLASSES[5:],
    "shoes": ("Sandal", "Sneaker", "Ankle boot"),
    **{article: (article,) for article in FASHION_CLASSES},
}
KINDS = ("max_logit", "conflict", "conflict_share")


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per network and seed."""
    for network in settings["networks"]:
        for seed in settings["seeds"]:

            def run(network: str = network, seed: int = seed) -> Any:
                return measure_network(network, seed, settings, place)

            yield Task(f"{network}-{seed}", run)


def measure_network(network: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Means of all scores in distribution, under the correlation shift and under each semantic shift."""

    def shifted(choice: str) -> Any:
        return concat_mnist(folder=place.data, rows=settings["rows"], seed=seed, clothes=CHOICES[choice])

    data = shifted("all ten")
    recipe = dataclasses.replace(IMAGE_RECIPE, epochs=settings["epochs"][network], seed=seed)
    model = seeded(seed, lambda: concat_cnn(network))
    model = train(model, data.x_train, data.y_train, recipe, folder=place.models, progress=place.show_progress).model
    sets = {"fresh": (data.x_test, data.y_test), "correlation": data.shifts["correlation"]}
    sets |= {choice: shifted(choice).shifts["semantic"] for choice in settings["clothes"]}
    found = {}
    for name, (x, y) in sets.items():
        score = scores(model, x[: settings["explained"]], y[: settings["explained"]])
        found[name] = {kind: score[kind].mean().item() for kind in KINDS}
    return found


def report(settings: Settings, results: Results) -> Report:
    """A row per choice of articles and network, and how often the paper's order comes out."""
    header = ["network", "articles", *(f"{what}, {where}" for what in ("s_conf", "MaxLogit") for where in SETS), "as the paper"]
    rows: list[list[Any]] = []
    right: dict[str, list[str]] = {choice: [] for choice in settings["clothes"]}
    for network in settings["networks"]:
        of_network = runs(network, results)
        for choice in settings["clothes"]:
            cells: list[Any] = [network, choice]
            for kind in KINDS[:2][::-1]:
                cells += [spread([run[name][kind] for run in of_network]) for name in ("fresh", "correlation", choice)]
            holds = mean([run["correlation"]["conflict"] - run[choice]["conflict"] for run in of_network]) > 0
            right[choice] += [network] if holds else []
            rows.append([*cells, "yes" if holds else "no"])
    note = (
        "s_conf of latent features, c = 1, true label. As the paper: s_conf is higher under the correlation shift than under "
        "the semantic one. Mean ± standard error over the seeds."
    )
    table = Table("clothes", "Semantic shifts with different articles of clothing", header, rows, note)
    count, networks = {choice: len(names) for choice, names in right.items()}, len(settings["networks"])
    numbers = "; ".join(f"{choice} {number} of {networks}" for choice, number in count.items())
    both = 0 < sum(count.values()) < networks * len(count)
    claim = "which articles are taken decides whether s_conf rises more under the correlation shift than under the semantic one"
    return Report([table], [Finding(claim, both, f"It does so in this many networks: {numbers}.")])


SETS = ("in distribution", "correlation shift", "semantic shift")
WHOLE = {"rows": None, "explained": 1000, "clothes": list(CHOICES), "epochs": dict.fromkeys(CONCAT_WIDTHS, EPOCHS)}
STUDIES = (
    Study(
        "shift-clothes",
        "semantic shift of stacked digits with different articles of clothing (the paper does not name them)",
        "mnist, fashion_mnist",
        {
            "toy": {"networks": ["narrow"], "rows": 60, "explained": 30, "clothes": ["all ten", "shoes"],
                    "epochs": {"narrow": 1}, "seeds": [42]},
            "quick": WHOLE | {"networks": ["narrow"], "seeds": [42], "explained": 500, "epochs": {"narrow": 5}},
            "full": WHOLE | {"networks": list(CONCAT_WIDTHS), "seeds": [42, 43, 44, 45, 46]},
        },
        {"toy": "0.1", "quick": "3 (estimated)", "full": "247 (from its parts)"},
        tasks,
        report,
    ),
)  # fmt: skip
