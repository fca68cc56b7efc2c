"""Tables, pictures and findings of the circuit in conflict, beside the paper's example."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .drawing import figure, heatmap
from .published_numbers import METHOD_TITLES, SAMPLING, figure_of_paper
from .record import Finding, Report, Results, Settings, Table

GRADIENTS = ("gradient_x_input", "lrp", "deeplift_rescale", "gradient_shap", "integrated_gradients")
PARTIAL = ("deeplift_revealcancel", *SAMPLING)
CANCELLED = "SpO2"  # the cancelled feature of the paper's circuit; CAFE 1 shows all of its effect


def report(settings: Settings, results: Results) -> Report:
    """Per circuit: incoming contributions, scores, and which part of the cancelled effect each method shows."""
    tables, figures = [_shares(settings, results)], {}
    findings: list[Finding] = []
    for name in settings["data"]:
        found = results[name]
        shown = _largest(found, settings["shown"])
        tables.append(_scores(name, found, shown, settings))
        figures[f"circuit-{name}"] = _picture(name, found, shown, settings)
        findings += _findings(name, found, settings)
    return Report(tables, findings, figures)


def _largest(found: Any, count: int) -> list[str]:
    """The features that bring most to one of the two units, the cancelled one among them."""
    sizes = {name: max(abs(unit[name]) for unit in found["contributions"]) for name in _features(found)}
    ordered = sorted(sizes, key=lambda name: (name != found["feature"], -sizes[name]))
    return ordered[:count]


def _features(found: Any) -> list[str]:
    return [name for name in found["contributions"][0] if name != "bias"]


def _percent(share: float, digits: int = 0) -> str:
    return f"{round(share, 6) + 0.0:.{digits}%}"  # no "-0 %"


def _paper_share(key: str) -> float | None:
    whole, own = figure_of_paper("circuit", "cafe c=1", CANCELLED), figure_of_paper("circuit", key, CANCELLED)
    return None if own is None or not whole else own / whole


def _shares(settings: Settings, results: Results) -> Table:
    rows = []
    for key in settings["methods"]:
        theirs = _paper_share(key)
        ours = [_percent(results[name]["shares"][key]) for name in settings["data"]]
        rows.append([METHOD_TITLES[key], *ours, None if theirs is None else _percent(theirs)])
    columns = [f"{name}, {results[name]['feature']}" for name in settings["data"]]
    note = (
        "What the inactive unit adds to the score of its cancelled feature, as a share of the effect that the feature would "
        "have through this unit alone. The paper's circuit is from another network and patient; its shares are of SpO2. "
        "LIME's penalty swallows effects that are small in absolute terms. Only units without a positive bias were considered: "
        "methods that start at the reference see part of what happens to units that are active there."
    )
    title = "How much of the cancelled effect a method shows"
    return Table("shares", title, ["method", *columns, "paper, SpO2"], rows, note)


def _scores(name: str, found: Any, shown: list[str], settings: Settings) -> Table:
    rows = []
    for key in settings["methods"]:
        if key in found["apart"]:
            pairs = found["apart"][key]
            cells = [f"{pairs[f][0]:.2f}+ / {pairs[f][1]:.2f}-" for f in (*shown, "bias")]
        else:
            cells = [*(f"{round(found['scores'][key][feature], 2) + 0.0:.2f}" for feature in shown), "none"]
        rows.append([METHOD_TITLES[key], *cells])
    columns = ["method", *(_label(found, feature).replace("\n", " ") for feature in shown), "bias"]
    active, inactive = found["units"]
    note = (
        f"Test row {found['row']}: unit {active} is active, unit {inactive} is not, for {found['feature']} is cancelled there. "
        f"Their weights in {found['above']} are {found['weights'][0]:.3g} and {found['weights'][1]:.3g}."
    )
    return Table(f"scores-{name}", f"Scores on the circuit from the {name} network", columns, rows, note)


def _picture(name: str, found: Any, shown: list[str], settings: Settings) -> Any:
    """Incoming contributions of both units above, scores of all methods below."""
    methods = settings["methods"]
    drawn = figure(1.25 * len(shown) + 5, 0.36 * len(methods) + 4.2)
    above, below = drawn.subplots(2, 1, height_ratios=(2.2, len(methods)))
    units = [[unit[feature] for feature in (*shown, "bias")] for unit in found["contributions"]]
    labels = [
        f"unit {number}, {'active' if value > 0 else 'inactive'} ({value:.2f})\nweight above {weight:.2f}"
        for number, value, weight in zip(found["units"], found["activations"], found["weights"], strict=True)
    ]
    _numbers(above, units, labels, [_label(found, feature) for feature in (*shown, "bias")])
    above.set_title(f"{name}, test row {found['row']}: what arrives at two hidden units below {found['above']}")
    cells = []
    for key in methods:
        bias = found["apart"].get(key, {}).get("bias")
        cells.append([*(found["scores"][key][f] for f in shown), float("nan") if bias is None else bias[0] - bias[1]])
    _numbers(below, cells, [METHOD_TITLES[key] for key in methods], [*shown, "bias"])
    below.set_title(f"Scores on this circuit alone (output {found['output']:.2f}); {found['feature']} is the cancelled feature")
    return drawn


def _label(found: Any, feature: str) -> str:
    known = "values" in found and feature != "bias"
    return f"{feature}\n= {found['values'][feature]}" if known else feature


def _numbers(axes: Any, cells: list[list[float]], rows: list[str], columns: list[str]) -> None:
    known = [abs(cell) for row in cells for cell in row if cell == cell]
    reach = max(known) or 1.0
    heatmap(axes, cells, reach)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xticks(
        range(len(columns)), columns, rotation=20 if len(columns) > 5 else 0, ha="right" if len(columns) > 5 else "center"
    )
    for y, row in enumerate(cells):
        for x, cell in enumerate(row):
            text = "none" if cell != cell else f"{round(cell, 2) + 0.0:.2f}"
            axes.text(x, y, text, ha="center", va="center", fontsize=8, color="white" if abs(cell) > 0.6 * reach else "black")


def _findings(name: str, found: Any, settings: Settings) -> Iterable[Finding]:
    shares, feature = found["shares"], found["feature"]

    def listed(keys: list[str]) -> str:
        parts = ", ".join(f"{METHOD_TITLES[key]} {_percent(shares[key], 1)}" for key in keys)
        return f"{parts} of the cancelled effect of {feature} ({found['effect']:.2g})."

    gradients = [key for key in GRADIENTS if key in settings["methods"]]
    claim = f"circuit from {name}: gradient-based methods see nothing of a feature that is cancelled in an inactive unit"
    hidden = (
        f" The audit of gradient x input on the circuit: {found['audit']['hidden']} of {found['audit']['conflicts']} hidden."
    )
    yield Finding(claim, all(abs(shares[key]) < 1e-3 for key in gradients), listed(gradients) + hidden)
    partial = [key for key in PARTIAL if key in settings["methods"]]
    claim = f"circuit from {name}: RevealCancel and the sampling methods show some of the cancelled effect, not all"
    yield Finding(claim, all(1e-3 < shares[key] < 0.999 for key in partial), listed(partial))
    if "cafe c=1" in settings["methods"]:
        claim = f"circuit from {name}: CAFE 1 shows the cancelled effect in full"
        yield Finding(claim, abs(shares["cafe c=1"] - 1) < 1e-6, listed(["cafe c=1"]))
        pairs = found["apart"]["cafe c=1"]
        both = [f"{key} {up:.2f}+ / {down:.2f}-" for key, (up, down) in pairs.items() if min(up, down) > 1e-6 and key != "bias"]
        claim = f"circuit from {name}: CAFE 1 tells apart the two effects of one feature, and reports the biases"
        bias = f"bias {pairs['bias'][0]:.2f}+ / {pairs['bias'][1]:.2f}-"
        yield Finding(claim, bool(both) and sum(pairs["bias"]) > 0, f"{'; '.join([*both[:4], bias])}.")
