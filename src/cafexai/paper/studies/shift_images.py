"""MaxLogit and conflicts of latent features of image networks under two shifts (the paper's second figure of shifts)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ...cafe import CAFE
from ..datasets import concat_mnist
from ..models import CONCAT_WIDTHS, IMAGE_RECIPE, concat_cnn, seeded, train
from .depth import find_method
from .distributions import compare_sets, histograms, tell_apart
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace
from .shift_tabular_report import mean, runs, spread

SHIFTS = {"correlation": "correlation shift", "semantic": "semantic shift"}
SETS = {"fresh": "in distribution", **SHIFTS}
SCORES = {
    "max_logit": "MaxLogit",
    "conflict": "s_conf of latent features",
    "conflict_share": "s_conf / all influence",  # ours: stronger features conflict more
    "conflict_digits": "s_conf of the two digits, feature netting",  # ours: upper and lower digit as two features
}
UNITS = {  # ours: the whole network, at the price of path netting, upper and lower digit as two features
    "conflict_unit": "s_conf of the two digits, unit netting",
    "conflict_deep": "s_conf of the two digits, default of deep models, c = 0.5",
}


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per network and seed."""
    for network in settings["networks"]:
        for seed in settings["seeds"]:

            def run(network: str = network, seed: int = seed) -> Any:
                return measure_network(network, seed, settings, place)

            yield Task(f"{network}-{seed}", run)


def measure_network(network: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Both scores on training images, fresh pairs of digits of the same kind, and both shifts."""
    data = concat_mnist(folder=place.data, rows=settings["rows"], seed=seed)
    recipe = dataclasses.replace(IMAGE_RECIPE, epochs=settings["epochs"][network], seed=seed)
    model = seeded(seed, lambda: concat_cnn(network))
    model = train(model, data.x_train, data.y_train, recipe, folder=place.models, progress=place.show_progress).model
    sets = {"train": (data.x_train, data.y_train), "fresh": (data.x_test, data.y_test), **data.shifts}
    found = {name: scores(model, x[: settings["explained"]], y[: settings["explained"]]) for name, (x, y) in sets.items()}
    for name, (x, y) in sets.items():
        some = x[: settings["netted"]], y[: settings["netted"]]
        for kind, way in (("digits", "feature c=1"), ("unit", "unit c=1"), ("deep", "deep c=0.5")):
            found[name][f"conflict_{kind}"] = between_digits(model, *some, way)

    def apart(*kinds: str) -> dict[str, float]:
        asked = {name: [found[name][kind][: settings["netted"]] for kind in kinds] for name in SETS}
        return tell_apart({name: torch.stack(columns, 1) for name, columns in asked.items()})

    return {
        "accuracy": {name: score["correct"].mean().item() for name, score in found.items()},
        **{kind: compare_sets({name: score[kind] for name, score in found.items()}, "fresh") for kind in (*SCORES, *UNITS)},
        "told_apart": {
            "MaxLogit": apart("max_logit"),
            "MaxLogit and s_conf of latent features": apart("max_logit", "conflict"),
            "MaxLogit and s_conf of the two digits": apart("max_logit", "conflict_digits"),
            "MaxLogit and s_conf of the two digits, default of deep models": apart("max_logit", "conflict_deep"),
        },
    }


def between_digits(model: nn.Module, x: Tensor, y: Tensor, way: str = "feature c=1") -> Tensor:
    """s_conf for the true label with feature netting, or in another way, the pixels of each digit being one feature."""
    halves = (torch.arange(x.shape[2]) * 2 // x.shape[2])[:, None].expand(x.shape[1:])
    e = find_method(way, model).explain(x, target=y, feature_groups=halves, batch_size=50, show_progress=False)
    return torch.as_tensor(e.s_conf)


def scores(model: nn.Module, x: Tensor, y: Tensor, batch: int = 250) -> dict[str, Tensor]:
    """Of each image: the largest logit, s_conf of the classifier above the convolutions, its share, and whether it is right."""
    features, classifier = model.get_submodule("0"), model.get_submodule("1")
    cafe = CAFE.published(classifier, 1.0)
    parts: dict[str, list[Tensor]] = {kind: [] for kind in ("correct", "max_logit", "conflict", "conflict_share")}
    for images, labels in zip(x.split(batch), y.split(batch), strict=True):
        with torch.no_grad():
            latent = features(images)
            logits = classifier(latent)
        parts["max_logit"].append(logits.amax(1))
        explanation = cafe.explain(latent, target=labels, show_progress=False)
        parts["conflict"].append(explanation.s_conf)
        influence = torch.as_tensor(explanation.positive).sum(1) + torch.as_tensor(explanation.negative).sum(1)
        parts["conflict_share"].append(explanation.s_conf / influence)
        parts["correct"].append((logits.argmax(1) == labels).double())
    return {kind: torch.cat(pieces) for kind, pieces in parts.items()}


def report(settings: Settings, results: Results) -> Report:
    """A table per score, one figure, and the paper's expectations."""
    names = settings["networks"]
    kinds = {kind: shown for kind, shown in (SCORES | UNITS).items() if all(kind in run for run in results.values())}
    tables = [*(_table(kind, settings, results) for kind in kinds), _apart(names, results)]
    lines = []
    for kind, shown in kinds.items():
        panels = []
        for network in names:
            of_network = runs(network, results)
            distances = {name: mean([run[kind]["distance"][name] for run in of_network]) for name in SHIFTS}
            panels.append((f"CNN {network}", of_network[0][kind], distances))
        lines.append((shown, panels))
    return Report(tables, list(_findings(names, results)), {"shift-images": histograms(lines, SETS)})


def _table(kind: str, settings: Settings, results: Results) -> Table:
    columns = ["network", *SETS.values(), *(f"JS distance, {name}" for name in ("training images", *SHIFTS.values()))]
    columns += [f"AUROC, {name}" for name in SHIFTS.values()]
    columns += [*(f"accuracy, {name}" for name in SETS.values()), "epochs"] if kind == "max_logit" else []
    rows = []
    for network in settings["networks"]:
        of_network = runs(network, results)
        cells = [network]
        for measure, names in (("mean", SETS), ("distance", ("train", *SHIFTS)), ("auroc", SHIFTS)):
            cells += [spread([run[kind][measure][name] for run in of_network]) for name in names]
        if kind == "max_logit":
            cells += [spread([run["accuracy"][name] for run in of_network]) for name in SETS]
            cells.append(str(settings["epochs"][network]))
        rows.append(cells)
    note = (
        "Latent features: what the convolutions give to the classifier; c = 1, true label. All influence: the sum of their "
        "positive and negative scores. Mean ± standard error over the seeds. In distribution: other pairs of digits than in "
        "training, of the same kind. "
        "JS distance: Jensen-Shannon distance (natural logarithm) of 50-bin histograms to that in distribution. AUROC: "
        "probability that a shifted image has a higher score. The figure shows the first seed; the distances in it are means "
        "over the seeds."
    )
    return Table(kind.replace("_", "-"), (SCORES | UNITS)[kind], columns, rows, note)


def _apart(names: list[str], results: Results) -> Table:
    """Accuracy in telling the three sets apart."""
    ways = list(runs(names[0], results)[0]["told_apart"])
    rows = [
        [network, *(spread([mean(list(run["told_apart"][way].values())) for run in runs(network, results)]) for way in ways)]
        for network in names
    ]
    note = (
        "Share of images that are given to the right one of three sets (in distribution, correlation, semantic shift; chance: "
        "one third) by the majority of the 25 nearest of the first half of all images; judged on the second half. True label."
    )
    return Table("told-apart", "Which shift is it?", ["network", *ways], rows, note)


def _means(network: str, kind: str, results: Results) -> tuple[float, float, float]:
    """In distribution, under the correlation shift, under the semantic shift."""
    inside, correlation, semantic = (mean([run[kind]["mean"][name] for run in runs(network, results)]) for name in SETS)
    return inside, correlation, semantic


def _findings(names: list[str], results: Results) -> Iterable[Finding]:
    logits = {network: _means(network, "max_logit", results) for network in names}
    conflicts = {network: _means(network, "conflict", results) for network in names}

    def finding(claim: str, right: list[str], means: dict[str, tuple[float, float, float]]) -> Finding:
        numbers = "; ".join(f"{network} {a:.3g}, {b:.3g}, {c:.3g}" for network, (a, b, c) in means.items())
        head = f"So in {len(right)} of {len(means)} networks"
        return Finding(
            claim, len(right) == len(means), f"{head}. Means in distribution, correlation, semantic shift: {numbers}."
        )

    falls = [network for network, (a, b, c) in logits.items() if b < a and c < a]
    yield finding("MaxLogit falls under both shifts in all networks", falls, logits)
    rises = [network for network, (a, b, _) in conflicts.items() if b > a]
    yield finding("s_conf of latent features rises under the correlation shift in all networks", rises, conflicts)
    more = [network for network, (a, b, c) in conflicts.items() if b - a > c - a]
    yield finding("s_conf rises more under the correlation shift than under the semantic one in all networks", more, conflicts)
    shares = {network: _means(network, "conflict_share", results) for network in names}
    most = [network for network, (a, b, c) in shares.items() if b > a and b > c]
    yield finding("as a share of all influence, s_conf is highest under the correlation shift in all networks", most, shares)
    digits = {network: _means(network, "conflict_digits", results) for network in names}
    ahead = [network for network, (a, b, c) in digits.items() if b > a and b > c]
    claim = "with the two digits as features and feature netting, which is ours, s_conf is highest under the correlation shift"
    yield finding(f"{claim} in all networks", ahead, digits)
    rates = {
        network: tuple(mean([run["conflict_digits"]["auroc"][shift] for run in runs(network, results)]) for shift in SHIFTS)
        for network in names
    }
    path = {network: mean([run["conflict"]["auroc"]["correlation"] for run in runs(network, results)]) for network in names}
    shown = "; ".join(f"{n} {one:.3f} and {two:.3f} (latent features, path: {path[n]:.3f})" for n, (one, two) in rates.items())
    good = [network for network, (one, _) in rates.items() if one >= 0.95]
    yield Finding(
        "the AUROC of that s_conf for the correlation shift is at least 0.95 in all networks",
        len(good) == len(names),
        f"So in {len(good)} of {len(names)} networks. AUROC for correlation and semantic shift: {shown}.",
    )
    for kind, shown in UNITS.items():
        if all(kind in run for run in results.values()):
            means = {network: _means(network, kind, results) for network in names}
            ahead = [network for network, (a, b, c) in means.items() if b > a and b > c]
            yield finding(f"{shown}, which is ours, is highest under the correlation shift in all networks", ahead, means)
    flat = [network for network, (a, _, c) in conflicts.items() if c <= a]
    yield finding("the semantic shift does not raise s_conf in any network", flat, conflicts)


EPOCHS = IMAGE_RECIPE.epochs
IMAGES = Study(
    "shift-images",
    "MaxLogit and conflicts of latent features on stacked digits under two shifts (second figure of distributional shifts)",
    "mnist, fashion_mnist",
    {
        "toy": {"networks": ["narrow"], "rows": 60, "explained": 30, "netted": 8, "epochs": {"narrow": 1}, "seeds": [42]},
        # All images and epochs, but one seed: the deep network alone takes half an hour.
        "quick": {"networks": list(CONCAT_WIDTHS), "rows": None, "explained": 1000, "netted": 300, "seeds": [42],
                  "epochs": dict.fromkeys(CONCAT_WIDTHS, EPOCHS)},
        "full": {"networks": list(CONCAT_WIDTHS), "rows": None, "explained": None, "netted": 1000,
                 "seeds": [42, 43, 44, 45, 46],
                 "epochs": dict.fromkeys(CONCAT_WIDTHS, EPOCHS)},
    },
    {"toy": "0.1", "quick": "50 (estimated)", "full": "300 (estimated)"},
    tasks,
    report,
)  # fmt: skip
STUDIES = (IMAGES,)
