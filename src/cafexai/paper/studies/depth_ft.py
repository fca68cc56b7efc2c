"""Size and faithfulness of the scores on trained FT-Transformers: nettings, the mean of a norm, and where biases belong."""

from __future__ import annotations

import itertools
import statistics
import warnings
from collections.abc import Iterable
from typing import Any

import torch

from ... import metrics as measure
from ...cafe import CAFE
from .depth import find_method
from .infidelity import prepare
from .infidelity_report import SIZES
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace
from .variants import OPENXAI

NETTINGS = ("path", "feature")
NORM_MEANS = {"bias": "mean of a norm as bias", "linear": "as a linear map"}
BIASES = {"scores": "biases with scores", "reference": "biases in the reference"}
CONSTANTS = ("0", "0.5", "1")
WAYS = tuple(itertools.product(NETTINGS, NORM_MEANS, BIASES, CONSTANTS))
OWN = {"unit": "scores", "deep": "reference"}  # unit netting alone, and the default of deep models
TITLES = {"feature": "feature netting", "unit": "unit netting", "deep": "the default of deep models"}
UNITS = tuple((netting, "bias", biases, c) for netting, biases in OWN.items() for c in CONSTANTS)
LIMIT = 50  # times the output: what positive scores may add up to and still mean something


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per data set and seed."""
    for name in settings["data"]:
        for seed in settings["seeds"]:

            def run(name: str = name, seed: int = seed) -> Any:
                return measure_network(name, seed, settings, place)

            yield Task(f"{name}-{seed}", run)


def measure_network(name: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Positive scores of the features by the size of the output, and infidelity, for the predicted class, in float64."""
    table, model = prepare(name, seed, settings, place)
    x = table.x_test[: settings["rows"]]
    with torch.no_grad():
        target = model(x).argmax(1)
    scores, found = {}, {}
    for netting, norm_mean, biases, c in (*WAYS, *UNITS):
        own = find_method(f"{netting} c={c}", model) if netting in OWN else None
        cafe = own or CAFE(model, float(c), "published", netting=netting, norm_mean=norm_mean, biases=biases)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            e: Any = cafe.explain(x, target=target, batch_size=100, show_progress=False)
        key = " ".join((netting, norm_mean, biases, c))
        scores[key] = e.combined
        ratio = e.positive.sum(1) / e.output.abs()
        found[key] = {
            "size": (e.positive.sum(1).mean() / e.output.abs().mean()).item(),
            "median": ratio.median().item(),
            "conflict": e.s_conf.mean().item(),
        }
    for size in SIZES:
        disturb = getattr(measure.TabularPerturbation, size)(table.x_test, [list(c) for c in table.categories.values()])
        values = measure.infidelity(model, x, scores, disturb, target=target, n_samples=20, seed=seed)
        for key, value in values.items():
            found[key][size] = value.mean().item()
    return {"rows": len(x), "output": e.output.abs().mean().item(), "ways": found}


def mean(settings: Settings, results: Results, name: str, way: tuple[str, ...], entry: str) -> float:
    """Over the seeds."""
    return statistics.fmean(results[f"{name}-{seed}"]["ways"][" ".join(way)][entry] for seed in settings["seeds"])


def report(settings: Settings, results: Results) -> Report:
    """A table of sizes, one of infidelity, and what they decide."""
    entries = {
        "size": "Sum of positive scores of the features by the size of the output: ratio of the means",
        "median": "The same, median over the rows",
        "small": "Infidelity, small perturbation",
        "large": "Infidelity, large perturbation",
    }
    tables = []
    for entry, shown in entries.items():
        rows = [
            [*_words(way), *(f"{mean(settings, results, name, way, entry):.4g}" for name in settings["data"])]
            for way in (*WAYS, *UNITS)
            if all(" ".join(way) in result["ways"] for result in results.values())
        ]
        columns = ["netting", "norms", "biases", "c", *settings["data"]]
        tables.append(Table(f"transformers-{entry}", shown, columns, rows, "Predicted class."))
    return Report(tables, list(_findings(settings, results)))


def _words(way: tuple[str, ...]) -> list[str]:
    netting, norm_mean, biases, c = way
    if netting == "deep":
        return ["unit, mean flows: default of deep models", "open", BIASES[biases], c]
    return [netting, NORM_MEANS[norm_mean], BIASES[biases], c]


def _findings(settings: Settings, results: Results) -> Iterable[Finding]:
    names = settings["data"]
    for biases, words in BIASES.items():
        sizes = {
            netting: {name: mean(settings, results, name, (netting, "bias", biases, "1"), "size") for name in names}
            for netting in NETTINGS
        }
        shown = "; ".join(f"{name} {sizes['feature'][name]:.3g} (path {sizes['path'][name]:.2g})" for name in names)
        yield Finding(
            f"feature netting, {words}: the positive scores of two-block FT-Transformers add up to at most {LIMIT} times the "
            "output at c = 1",
            max(sizes["feature"].values()) <= LIMIT,
            f"Ratio of the means: {shown}.",
        )
    for netting in NETTINGS:
        apart, grown = [], []
        for name, biases, c in itertools.product(names, BIASES, CONSTANTS):
            one, two = ((netting, norm_mean, biases, c) for norm_mean in NORM_MEANS)
            for size in SIZES:
                apart.append(abs(mean(settings, results, name, two, size) / mean(settings, results, name, one, size) - 1))
            grown.append(mean(settings, results, name, two, "size") / mean(settings, results, name, one, "size"))
        yield Finding(
            f"{netting} netting: it does not matter for infidelity whether the mean of a norm is a bias or a linear map",
            max(apart) < 0.01,
            f"Infidelity differs by at most {max(apart):.2%}; as a linear map it makes positive scores {min(grown):.3g} to "
            f"{max(grown):.3g} times as large.",
        )
    yield _as_low(settings, results, "feature")
    for netting in OWN:
        if all(" ".join(way) in result["ways"] for way in UNITS for result in results.values()):
            yield _judge_sizes(settings, results, netting)
            yield _as_low(settings, results, netting)


def _as_low(settings: Settings, results: Results, netting: str) -> Finding:
    """Infidelity beside that of the published way."""
    better, count, numbers = 0, 0, []
    for name, size, c in itertools.product(settings["data"], SIZES, CONSTANTS[1:]):
        ours = mean(settings, results, name, (netting, "bias", OWN.get(netting, "scores"), c), size)
        theirs = mean(settings, results, name, ("path", "bias", "scores", c), size)
        count += 1
        better += ours <= theirs
        numbers.append(f"{name} {size} c = {c} {ours:.4g} ({theirs:.4g})")
    return Finding(
        f"infidelity on FT-Transformers at c = 0.5 and 1: {TITLES[netting]} as low as path netting, or lower",
        better == count,
        f"So in {better} of {count} cases; {netting} (path): {'; '.join(numbers)}.",
    )


def _judge_sizes(settings: Settings, results: Results, netting: str) -> Finding:
    """How large positive scores are, at the price of path netting."""
    sizes = {name: mean(settings, results, name, (netting, "bias", OWN[netting], "1"), "size") for name in settings["data"]}
    return Finding(
        f"{TITLES[netting]}: the positive scores of two-block FT-Transformers add up to at most {LIMIT} times the output at "
        "c = 1",
        max(sizes.values()) <= LIMIT,
        f"Ratio of the means: {'; '.join(f'{name} {size:.3g}' for name, size in sizes.items())}.",
    )


COMMON = {"family": "ft", "head": "cls", "lookup": "product", "mimic_demo": True, "epochs": 100}
TRANSFORMERS = Study(
    "depth-ft",
    "both nettings on trained two-block FT-Transformers: size of the scores, norms, biases, infidelity (ours)",
    "compas, heloc, adult, german",
    {
        "toy": COMMON | {"data": ["compas"], "seeds": [42], "rows": 4, "train_rows": 50, "epochs": 1},
        "quick": COMMON | {"data": list(OPENXAI), "seeds": [42], "rows": 200, "train_rows": 5000},
        "full": COMMON | {"data": list(OPENXAI), "seeds": [42, 43, 44, 45, 46], "rows": 500, "train_rows": None},
    },
    {"toy": "0.1", "quick": "10", "full": "219 (from its parts)"},
    tasks,
    report,
)
STUDIES = (TRANSFORMERS,)
