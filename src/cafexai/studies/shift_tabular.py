"""Conflicts of input features under a shift of correlation and for a missing feature (the paper's first figure of shifts)."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..datasets import synthetic_shift
from ..explain import CAFE
from ..models import SHIFT_TRANSFORMERS, SHIFT_WIDTHS, shift_setup, train
from .distributions import compared, histograms
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace

SHIFTS = {"correlation": "correlation shift", "missing": "missing feature"}
SETS = {"train": "training", **SHIFTS}
FAMILIES = {"mlp": "MLPs", "ft": "FT-Transformers"}


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per network and seed."""
    for network in networks(settings):
        for seed in settings["seeds"]:

            def run(network: str = network, seed: int = seed) -> Any:
                return measured(network, seed, settings, place)

            yield Task(f"{network}-{seed}", run)


def networks(settings: Settings, family: str = "") -> list[str]:
    """The names of the networks: mlp-WIDTH and ft-HEADS-WIDTH."""
    names = [f"mlp-{width}" for width in settings["mlps"]] + [
        f"ft-{heads}-{width}" for heads, width in settings["transformers"]
    ]
    return [name for name in names if name.startswith(family)]


def measured(network: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """s_conf at c = 1 for the true label, in float64, on training rows, fresh rows of the same kind, and both shifts."""
    data = synthetic_shift(rows=settings["rows"], seed=seed)
    *heads, width = map(int, network.split("-")[1:])
    plan = shift_setup(width, *heads)
    recipe = dataclasses.replace(plan.seeded_recipe(seed), epochs=settings["epochs"])
    model = plan.build(data.layout, seed)
    trained = train(model, data.x_train, data.y_train, recipe, folder=place.models, progress=place.show_progress)
    model, exact = trained.model.double(), data.to(torch.float64)
    cafe = CAFE(model, 1.0)
    sets = {"train": (exact.x_train, exact.y_train), "fresh": (exact.x_test, exact.y_test), **exact.shifts}
    conflict, accuracy = {}, {}
    for name, (x, y) in sets.items():
        conflict[name] = cafe.explain(x, target=y, batch_size=1000, show_progress=False).conflict
        with torch.no_grad():
            accuracy[name] = (model(x).argmax(1) == y).double().mean().item()
    return {"accuracy": accuracy, "conflict": compared(conflict, "train")}


def report(settings: Settings, results: Results) -> Report:
    """A table of all networks, a figure per family, and whether s_conf rises and falls as the paper expects."""
    tables = [_table(settings, results)]
    findings = [
        _moves(settings, results, "correlation", up=True),
        _moves(settings, results, "missing", up=False),
        _separates(settings, results),
    ]
    figures = {}
    for family in FAMILIES:
        panels = []
        for network in networks(settings, family):
            distances = {name: mean([run["conflict"]["distance"][name] for run in runs(network, results)]) for name in SHIFTS}
            panels.append((title(network), runs(network, results)[0]["conflict"], distances))
        if panels:
            figures[f"conflict-{family}"] = histograms([("s_conf (c = 1, true label)", panels)], SETS)
    return Report(tables, findings, figures)


def runs(network: str, results: Results) -> list[Any]:
    """The results of one network, a seed each."""
    return [result for key, result in results.items() if key.rsplit("-", 1)[0] == network]


def title(network: str) -> str:
    """ "ft-4-32" as a reader wants it."""
    *heads, width = network.split("-")[1:]
    return f"FT-Transformer, {heads[0]} heads, {width} wide" if heads else f"MLP {width}, {width}"


def mean(values: Sequence[float]) -> float:
    """The mean over the seeds."""
    return statistics.fmean(values)


def spread(values: Sequence[float]) -> str:
    """Mean ± standard error over the seeds."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{mean(values):.4g} ± {error:.2g}"


def _table(settings: Settings, results: Results) -> Table:
    columns = ["network", *(f"s_conf, {name}" for name in SETS.values())]
    columns += [f"JS distance, {name}" for name in ("fresh rows", *SHIFTS.values())]
    columns += [f"AUROC, {name}" for name in SHIFTS.values()] + [f"accuracy, {name}" for name in SETS.values()]
    rows = []
    for network in networks(settings):
        cells = [title(network)]
        for kind, names in (("mean", SETS), ("distance", ("fresh", *SHIFTS)), ("auroc", SHIFTS)):
            cells += [spread([run["conflict"][kind][name] for run in runs(network, results)]) for name in names]
        cells += [spread([run["accuracy"][name] for run in runs(network, results)]) for name in SETS]
        rows.append(cells)
    note = (
        "Mean ± standard error over the seeds. JS distance: Jensen-Shannon distance (natural logarithm) of 50-bin histograms "
        "to that of the training rows; fresh rows have the training distribution and show what chance alone gives. AUROC: "
        "probability that a shifted row has a higher s_conf than a training row. The figures show the first seed; the "
        "distances beside them are means over the seeds. Path netting, as in the paper."
    )
    return Table("conflict", "Conflict scores under distributional shift", columns, rows, note)


def _moves(settings: Settings, results: Results, shift: str, *, up: bool) -> Finding:
    """Whether the mean of s_conf moves as expected in all networks."""
    numbers, right, seeds, good = [], 0, 0, 0
    for network in networks(settings):
        pairs = [(run["conflict"]["mean"]["train"], run["conflict"]["mean"][shift]) for run in runs(network, results)]
        before, after = (mean(side) for side in zip(*pairs, strict=True))
        right += (after > before) == up
        good += sum((b > a) == up for a, b in pairs)
        seeds += len(pairs)
        numbers.append(f"{title(network)}: {before:.3g} to {after:.3g}")
    verb = "rises" if up else "falls"
    return Finding(
        f"s_conf {verb} under {SHIFTS[shift]} in all {len(numbers)} networks",
        right == len(numbers),
        f"It {verb} in {right} of {len(numbers)} networks (in {good} of {seeds} single trainings). {'; '.join(numbers)}.",
    )


def _separates(settings: Settings, results: Results) -> Finding:
    """Whether the shifts are told apart better than chance: AUROC above and below one half."""
    numbers, right = [], 0
    for network in networks(settings):
        up, down = (mean([run["conflict"]["auroc"][name] for run in runs(network, results)]) for name in SHIFTS)
        right += up > 0.5 > down
        numbers.append(f"{title(network)}: {up:.3f} and {down:.3f}")
    return Finding(
        f"single rows show it: AUROC of s_conf above 0.5 under {SHIFTS['correlation']} and below for a {SHIFTS['missing']}",
        right == len(numbers),
        f"So in {right} of {len(numbers)} networks. {'; '.join(numbers)}.",
    )


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
