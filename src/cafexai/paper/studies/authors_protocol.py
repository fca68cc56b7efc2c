"""Two properties of the authors' evaluation that explain differences between the paper's numbers and ours.

Neither is used anywhere else. *Alignment*: their loop over batches takes the scores of batch i from row i * len(batch) on, so
the rows of a shorter last batch are judged by the scores of other rows. *Units*: for structural infidelity their seed draws 26
outputs among 50 units of a network with one hidden layer; their loop is the same.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ... import metrics as measure
from ...metrics.unit_infidelity import UnitModel
from .infidelity import mean_and_error, prepare
from .infidelity_report import SIZES
from .methods import method
from .published_numbers import METHOD_TITLES, figure_of_paper
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace
from .variants import OPENXAI

METHODS = ("gradient_x_input", "deeplift_rescale", "integrated_gradients", "cafe c=0", "cafe c=0.5", "cafe c=1")  # no sampling
ALIGNED_METHODS = ("lrp", *METHODS)  # all of the paper's table on MLPs that do not sample
BATCH = 256  # rows in a batch of the authors' evaluation on OpenXAI's data
SHARES = {"ours": 1 / 2, "authors": 26 / 50}  # of outputs among the units
WORDS = {"ours": "our protocol", "authors": "as the authors"}
ALIGNED, DRAWN = ("compas", "heloc"), OPENXAI
CLOSE = {"alignment": 0.025, "units": 0.05}


def misalign(scores: Tensor, batch: int) -> Tensor:
    """Scores in the order in which the authors' loop reads them: batch i begins at row i times its own length."""
    parts = []
    for place, rows in enumerate(scores.split(batch)):
        start = place * len(rows)
        parts.append(scores[start : start + len(rows)])
    return torch.cat(parts)


PROTOCOLS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "ours": lambda scores: scores,
    "authors": lambda scores: misalign(scores, BATCH),
}


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per question and data set."""
    for question, names in (("alignment", ALIGNED), ("units", DRAWN)):
        for name in [name for name in names if name in settings["data"]]:

            def run(question: str = question, name: str = name) -> Any:
                return (alignment if question == "alignment" else units)(name, settings, place)

            yield Task(f"{question}-{name}", run)


def alignment(name: str, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Infidelity of each method with its own scores and with misaligned ones, same noise: (mean, standard error)."""
    model, x, target, perturb, options, mask = _prepare(name, settings, place)
    scores = {key: method(key)(model, x, target=target, feature_groups=mask).detach() for key in ALIGNED_METHODS}
    found: dict[str, Any] = {}
    for how, read in PROTOCOLS.items():
        asked = {key: read(value) for key, value in scores.items()}
        for size in SIZES:
            values = measure.infidelity(model, x, asked, perturb[size], target=target, **options)
            for key, value in values.items():
                found.setdefault(key, {}).setdefault(size, {})[how] = mean_and_error(value)
    return {"rows": len(x), "misaligned": len(x) % BATCH if len(x) > BATCH else 0, "methods": found}


def units(name: str, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Structural infidelity with half of the units outputs, and as the authors: 26 of 50 outputs, misaligned scores.

    Every unit is evaluated, so the numbers do not depend on a draw of units.
    """
    model, x, _, perturb, options, mask = _prepare(name, settings, place)
    x = x[: settings["unit_rows"]]
    layers = {layer: module.out_features for layer, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    values: dict[tuple[str, str, str, str], list[float]] = {}  # method, size, protocol, layer -> one number per unit
    for layer, width in layers.items():
        for index in range(min(width, settings["units"])):
            unit = UnitModel(model, layer, [index])
            scores = {key: method(key)(unit, x, target=0, feature_groups=mask).detach() for key in METHODS}
            both = {f"{key}/{how}": read(value) for how, read in PROTOCOLS.items() for key, value in scores.items()}
            for size in SIZES:
                for word, value in measure.infidelity(unit, x, both, perturb[size], target=0, **options).items():
                    key, _, how = word.partition("/")
                    values.setdefault((key, size, how, layer), []).append(value.mean().item())
    *_, last = layers
    found: dict[str, Any] = {key: {size: {} for size in SIZES} for key in METHODS}
    for key, size, how in {entry[:3]: None for entry in values}:
        means = {layer: statistics.fmean(values[key, size, how, layer]) for layer in layers}
        hidden = statistics.fmean(mean for layer, mean in means.items() if layer != last)
        found[key][size][how] = [SHARES[how] * means[last] + (1 - SHARES[how]) * hidden, 0.0]
    return {"rows": len(x), "methods": found}


def _prepare(name: str, settings: Settings, place: Workplace) -> Any:
    table, model = prepare(name, settings["seed"], {"family": "mlp", "mimic_demo": True}, place)
    x = table.x_test[: settings["rows"]]
    with torch.no_grad():
        target = model(x).argmax(1)
    blocks = [list(columns) for columns in table.categories.values()]
    perturb = {size: getattr(measure.TabularPerturbation, size)(table.x_test, blocks) for size in SIZES}
    return model, x, target, perturb, {"n_samples": settings["samples"], "seed": settings["seed"]}, table.feature_mask[0]


TITLES = {
    "alignment": "Infidelity with scores of the right rows, and read as the authors' loop does",
    "units": "Structural infidelity with half of the units outputs, and with 26 of 50 and misaligned scores",
}
TABLES = {"alignment": "infidelity mlp", "units": "structural_infidelity mlp"}


def report(settings: Settings, results: Results) -> Report:
    """Both protocols beside the paper."""
    tables, findings = [], []
    for question in TITLES:
        names = [key.removeprefix(f"{question}-") for key in results if key.startswith(f"{question}-")]
        if names:
            apart: dict[str, dict[str, float]] = {how: {} for how in WORDS}
            tables.append(_table(question, {name: results[f"{question}-{name}"]["methods"] for name in names}, apart))
            findings += [_finding(question, how, names, apart[how]) for how in WORDS]
    return Report(tables, findings)


def _table(question: str, found: Mapping[str, Any], apart: dict[str, dict[str, float]]) -> Table:
    header = ["data", "method", "size", "paper", *(part for words in WORDS.values() for part in (words, "difference"))]
    rows: list[list[Any]] = []
    for name, methods in found.items():
        for key, sizes in methods.items():
            for size, values in sizes.items():
                theirs = figure_of_paper(TABLES[question], key, f"{name} {size}")
                cells: list[Any] = [name, METHOD_TITLES[key], size, theirs]
                for how in WORDS:
                    mean = values[how][0]
                    gap = None if not theirs else mean / theirs - 1
                    cells += [f"{mean:.4g}", None if gap is None else f"{gap:+.1%}"]
                    if gap is not None:
                        apart[how][f"{METHOD_TITLES[key]}, {name} {size}"] = gap
                rows.append(cells)
    return Table(question, TITLES[question], header, rows)


def _finding(question: str, how: str, names: list[str], apart: Mapping[str, float]) -> Finding:
    limit = CLOSE[question]
    claim = f"{question}, {WORDS[how]}: all methods within {limit:.1%} of the paper on {', '.join(names)}"
    worst = max(apart, key=lambda key: abs(apart[key]))
    close = sum(abs(gap) <= limit for gap in apart.values())
    return Finding(claim, close == len(apart), f"{close} of {len(apart)}; largest difference {apart[worst]:+.1%} ({worst}).")


COMMON = {"data": list(OPENXAI), "seed": 42, "samples": 20}
STUDIES = (
    Study(
        "authors-protocol",
        "why some numbers of the paper differ from ours: two properties of the authors' evaluation",
        "compas, heloc, adult, german with OpenXAI's networks",
        {
            "toy": COMMON | {"data": ["compas"], "rows": 40, "unit_rows": 10, "units": 2},
            "quick": COMMON | {"rows": None, "unit_rows": 200, "units": 100},
            "full": COMMON | {"rows": None, "unit_rows": 2000, "units": 100},
        },
        {"toy": "0.1", "quick": "4", "full": "30"},
        tasks,
        report,
    ),
)
