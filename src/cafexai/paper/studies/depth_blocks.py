"""How large combined scores are on FT-Transformers of 1 to 32 blocks, beside Integrated Gradients."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Any

import torch

from ...methods import METHODS
from ..datasets import load
from ..models import FTTransformer, Recipe, seeded, train
from .depth import find_method
from .depth_report import DEEP, TIMES, title
from .methods import large_scores
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace

OWN = ("path c=0.5", "unit c=0.5", "deep c=0", DEEP, "deep c=1")
RIVAL = "integrated_gradients"
WIDTH, HEADS = 32, 4


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per data set, number of blocks and seed."""
    for name in settings["data"]:
        for blocks in settings["blocks"]:
            for seed in settings["seeds"]:

                def run(name: str = name, blocks: int = blocks, seed: int = seed) -> Any:
                    return measure_network(name, blocks, seed, settings, place)

                yield Task(f"{name}-{blocks}-{seed}", run)


def measure_network(name: str, blocks: int, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Sum of the sizes of the combined scores by the size of the output, for the predicted class, in float64."""
    table = load(name, folder=place.data)
    single, exact = table.to(torch.float32), table.to(torch.float64)
    classes = int(single.y_train.max()) + 1
    model = seeded(seed, lambda: FTTransformer(single.layout, classes, width=WIDTH, heads=HEADS, blocks=blocks))
    recipe = Recipe(settings["epochs"], 256, seed=seed, shuffle=True)
    x_train, y_train = (rows[: settings["train_rows"]] for rows in (single.x_train, single.y_train.long()))
    model = train(model, x_train, y_train, recipe, folder=place.models, progress=place.show_progress).model.double()
    x = exact.x_test[: settings["rows"]]
    with torch.no_grad():
        output = model(x)
        right = (model(exact.x_test).argmax(1) == exact.y_test).double().mean().item()
    target = output.argmax(1)
    size = output.gather(1, target[:, None]).abs().mean()
    found = {RIVAL: METHODS[RIVAL](model, x, target=target).detach()}
    with large_scores():
        for key in OWN:
            found[key] = find_method(key, model).attribute(x, target=target)
    return {"accuracy": right, "combined": {key: (scores.abs().sum(1).mean() / size).item() for key, scores in found.items()}}


def report(settings: Settings, results: Results) -> Report:
    """The sizes by the number of blocks, geometric means over the seeds, and whether they stay near Integrated Gradients."""
    tables, findings = [], []
    columns = ["method", *(f"{blocks} block{'s' * (blocks > 1)}" for blocks in settings["blocks"])]
    for name in settings["data"]:
        runs = [[results[f"{name}-{blocks}-{seed}"] for seed in settings["seeds"]] for blocks in settings["blocks"]]
        sizes = {key: [_mean([run["combined"][key] for run in of_depth]) for of_depth in runs] for key in (*OWN, RIVAL)}
        rows = [[title(key), *(f"{size:.3g}" for size in values)] for key, values in sizes.items()]
        accuracies = [statistics.fmean(run["accuracy"] for run in of_depth) for of_depth in runs]
        rows.append(["accuracy of the networks", *(f"{accuracy:.1%}" for accuracy in accuracies)])
        head = f"Sum of the sizes of the combined scores by the size of the output, {name}"
        note = f"FT-Transformers {WIDTH} wide, trained for {settings['epochs']} epochs. Geometric mean over the seeds."
        tables.append(Table(f"blocks-{name}", head, columns, rows, note))
        worst = max(one / other for one, other in zip(sizes[DEEP], sizes[RIVAL], strict=True))
        shown = "; ".join(f"{title(key)} {', '.join(f'{size:.3g}' for size in values)}" for key, values in sizes.items())
        claim = (
            f"sum of the sizes of the combined scores by the output on FT-Transformers for {name}: the default of deep models "
            f"at most {TIMES} times Integrated Gradients at every depth"
        )
        numbers = f"At most {worst:.3g} times. At {', '.join(map(str, settings['blocks']))} blocks: {shown}."
        findings.append(Finding(claim, worst <= TIMES, numbers))
    return Report(tables, findings)


def _mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(max(value, 1e-300)) for value in values))


COMMON = {"blocks": [1, 2, 4, 8, 16, 32], "data": ["compas", "heloc"]}
BLOCKS = Study(
    "depth-blocks",
    "size of the combined scores on trained FT-Transformers of 1 to 32 blocks, beside Integrated Gradients (ours)",
    "compas, heloc",
    {
        "toy": COMMON | {"data": ["compas"], "blocks": [1, 3], "seeds": [42], "rows": 4, "train_rows": 50, "epochs": 1},
        "quick": COMMON | {"data": ["compas"], "seeds": [42], "rows": 20, "train_rows": 4000, "epochs": 10},
        "full": COMMON | {"seeds": [42, 43, 44, 45, 46], "rows": 100, "train_rows": 5000, "epochs": 20},
    },
    {"toy": "0.1", "quick": "8", "full": "55 (from its parts)"},
    tasks,
    report,
)
STUDIES = (BLOCKS,)
