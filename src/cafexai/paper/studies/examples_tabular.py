"""Explanations of single rows of tables: the first true and false positives and negatives.

With ``show_data`` values stand beside the scores, in original units. Rows of data sets are not ours to pass on: without it,
results hold names of features and scores only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ...cafe import CAFE
from ..datasets import Dataset
from .drawing import COLOURS, figure
from .infidelity import prepare
from .methods import CAFES, method
from .published_numbers import METHOD_TITLES
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace, round_numbers

CASES = {  # label, prediction
    "true positive": (1, 1),
    "true negative": (0, 0),
    "false positive": (0, 1),
    "false negative": (1, 0),
}
BESIDE = "deeplift_rescale"
METHODS = (BESIDE, *CAFES)


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One network per data set."""
    for name in settings["data"]:

        def run(name: str = name) -> Any:
            return explain_rows(name, settings, place)

        yield Task(name, run)


def explain_rows(name: str, settings: Settings, place: Workplace) -> dict[str, Any]:
    """The first row of each case in test order, with its scores."""
    table, model = prepare(name, settings["seed"], settings, place)
    with torch.no_grad():
        output = model(table.x_test)
    logit = output[:, 0] if output.shape[1] == 1 else output[:, 1] - output[:, 0]
    predicted = (logit > 0).long()
    examples = {}
    for case, (label, prediction) in CASES.items():
        rows = ((table.y_test.long() == label) & (predicted == prediction)).nonzero()
        if len(rows):
            row = int(rows[0])
            target = 0 if output.shape[1] == 1 else prediction
            scores = {key: _scores(key, model, table, row, target) for key in METHODS}
            example = {"row": row, "probability": float(logit[row].sigmoid()), "scores": scores}
            shown = settings["show_data"]
            examples[case] = example | {"values": table.readable(row)} if shown else round_numbers(example)
    accuracy = float((predicted == table.y_test.long()).double().mean())
    classes = list(table.class_names) or ["0", "1"]
    outputs = {"classes": classes, "outputs": output.shape[1]}
    return {"test rows": len(output), "accuracy": accuracy, "notes": list(table.notes), **outputs, "examples": examples}


def _scores(key: str, model: Any, table: Dataset, row: int, target: int) -> dict[str, Any]:
    """Scores by feature, a one-hot block being one, and for CAFE that of the bias."""
    x = table.x_test[row : row + 1]
    if key not in CAFES:
        return {"features": _by_feature(table, method(key)(model, x, target=target)[0]), "bias": None}
    e: Any = CAFE.published(model, float(key.removeprefix("cafe c="))).explain(x, target=target)
    lacking = float(e.combined.sum() + e.bias.sum() - (e.output - e.baseline_output).sum())
    return {"features": _by_feature(table, e.combined[0]), "bias": float(e.bias[0]), "lacking": lacking}


def _by_feature(table: Dataset, scores: Tensor) -> dict[str, float]:
    return {name: float(scores[list(columns)].sum()) for name, columns in table.features.items()}


def report(settings: Settings, results: Results) -> Report:
    """A chart per data set, the same numbers as tables, and what they say about biases."""
    tables, figures = [], {}
    findings: list[Finding] = []
    for name in settings["data"]:
        found = results[name]
        for case, example in found["examples"].items():
            tables.append(_table(name, case, example, found))
        if found["examples"]:
            figures[f"examples-{name}"] = _chart(name, found, settings["shown"])
        findings += _findings(name, found)
    return Report(tables, findings, figures)


def _title(case: str, example: Any, found: Any) -> str:
    positive = found["classes"][1]
    return f"{case} (test row {example['row']}): probability of '{positive}' {example['probability']:.2f}"


def _output_name(case: str, found: Any) -> str:
    return "the only logit" if found["outputs"] == 1 else f"the logit of '{found['classes'][CASES[case][1]]}'"


def _table(name: str, case: str, example: Any, found: Any) -> Table:
    rows: list[list[Any]] = []
    values = example.get("values")
    for feature, own in example["scores"][BESIDE]["features"].items():
        scores = (own, *(example["scores"][key]["features"][feature] for key in CAFES))
        rows.append([feature, *([values[feature]] if values else []), *scores])
    rows.append(["bias", *([None] if values else []), *(example["scores"][key]["bias"] for key in METHODS)])
    columns = ["feature", *(["value"] if values else []), *(METHOD_TITLES[key] for key in METHODS)]
    note = f"Combined scores for {_output_name(case, found)}; DeepLIFT has no score for the bias."
    return Table(f"{name}-{case.replace(' ', '-')}", f"{name}, {_title(case, example, found)}", columns, rows, note)


def _chart(name: str, found: Any, shown: int) -> Any:
    """Four panels; in each, the features with the largest scores, and the bias, side by side for all methods."""
    lines = min(shown, len(next(iter(found["examples"].values()))["scores"][BESIDE]["features"])) + 1
    drawn = figure(14, 2 * (0.42 * lines + 1.2) + 0.6)
    panels = drawn.subplots(2, 2, squeeze=False).flatten()
    for axes, case in zip(panels, CASES, strict=True):
        example = found["examples"].get(case)
        if example is None:
            axes.set_axis_off()
            axes.text(0.5, 0.5, f"no {case} in {found['test rows']} test rows", ha="center", transform=axes.transAxes)
            continue
        sizes = {
            feature: max(abs(example["scores"][key]["features"][feature]) for key in METHODS)
            for feature in example["scores"][BESIDE]["features"]
        }
        features = sorted(sizes, key=lambda feature: -sizes[feature])[:shown]
        values = example.get("values")
        labels = [f"{feature} = {values[feature]}" if values else feature for feature in features] + ["bias"]
        for place, key in enumerate(METHODS):
            entry = example["scores"][key]
            widths = [entry["features"][feature] for feature in features] + [entry["bias"] or 0.0]
            places = [line + 0.2 * (place - 1.5) for line in range(len(labels))]
            axes.barh(places, widths, 0.2, color=COLOURS[key], label=METHOD_TITLES[key])
        axes.axvline(0, color="0.4", linewidth=0.8)
        axes.set_yticks(range(len(labels)), labels, parse_math=False)
        axes.invert_yaxis()
        axes.set_title(_title(case, example, found).replace("): ", ")\n"), fontsize=11)  # short enough beside long names
        axes.set_xlabel(f"score for {_output_name(case, found)}")
    handles, names = next(axes for axes in panels if axes.patches).get_legend_handles_labels()
    drawn.legend(handles, names, loc="outside lower center", ncols=4, frameon=False)
    drawn.suptitle(f"{name} (accuracy {found['accuracy']:.1%} on {found['test rows']} test rows)", fontweight="bold")
    return drawn


def _findings(name: str, found: Any) -> Iterable[Finding]:
    shares: dict[str, list[float]] = {key: [] for key in CAFES}
    lacking = 0.0
    for example in found["examples"].values():
        for key in CAFES:
            entry = example["scores"][key]
            size = sum(map(abs, entry["features"].values())) + abs(entry["bias"])
            shares[key].append(abs(entry["bias"]) / size)
            lacking = max(lacking, abs(entry["lacking"]) / size)
    if shares[CAFES[0]]:
        numbers = "; ".join(f"{METHOD_TITLES[key]} {', '.join(f'{v:.0%}' for v in values)}" for key, values in shares.items())
        claim = f"{name}: the bias has a part of at least 5 % in every example, which DeepLIFT does not show"
        least = min(min(values) for values in shares.values())
        yield Finding(
            claim, least >= 0.05, f"Share of the bias in all absolute scores: {numbers} ({', '.join(found['examples'])})."
        )
        claim = f"{name}: combined scores and bias add up to the output"
        yield Finding(claim, lacking < 1e-6, f"Largest gap {lacking:.1e} of the absolute scores.")
    wrong = found["examples"].get("false negative")
    if wrong is not None and found["outputs"] == 1:
        entries = {key: wrong["scores"][key] for key in CAFES}
        strongest = {key: min([*entry["features"].values(), 0.0]) for key, entry in entries.items()}
        holds = all(entry["bias"] < strongest[key] for key, entry in entries.items())
        numbers = "; ".join(
            f"{METHOD_TITLES[key]}: bias {entry['bias']:.2f}, most negative feature {strongest[key]:.2f}"
            for key, entry in entries.items()
        )
        yield Finding(f"{name}: the false negative is due to the bias more than to any feature", holds, f"{numbers}.")


# An epoch of the demo is a single batch: 2000 of them are as many steps as a dozen epochs on all of MIMIC-IV.
COMMON = {"family": "mlp", "seed": 42, "mimic_demo": True, "demo_epochs": 2000, "train_rows": None, "epochs": 100, "shown": 8,
          "show_data": False}  # fmt: skip
# Not heloc: its terms are not open, and with the public weights of its network the scores of a row tell the row.
EXAMPLES = Study(
    "examples-tabular",
    "explained rows of tables: the first true and false positives and negatives, beside DeepLIFT Rescale",
    "mimic (the demo, or mimic_demo=false for your own files), titanic, adult with OpenXAI's network",
    {
        "toy": COMMON | {"data": ["titanic"], "train_rows": 50, "epochs": 2},
        "quick": COMMON | {"data": ["mimic", "titanic", "adult"]},
        "full": COMMON | {"data": ["mimic", "titanic", "adult"], "mimic_demo": False},
    },
    {"toy": "0.1", "quick": "0.3", "full": "10"},
    tasks,
    report,
)
