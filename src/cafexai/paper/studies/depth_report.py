"""Tables, a figure and findings on how both nettings behave with depth."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Any

from ...plotting.palette import DOWN, SERIES, UP
from .drawing import figure
from .methods import UNITS
from .published_numbers import METHOD_TITLES
from .record import Finding, Report, Results, Settings, Table

NETTINGS = ("path", "feature")
CONSTANTS = ("0", "0.5", "1")
OWN = (*(f"{netting} c={c}" for netting in NETTINGS for c in CONSTANTS), *UNITS)
BESIDE = ("gradient_x_input", "integrated_gradients")
MEASURES = {
    "total": "All influence (positive + negative of features and biases) by the size of the output",
    "features": "Influence of the features alone by the size of the output",
    "combined": "Sum of the sizes of the combined scores of the features by the size of the output",
    "rmse": "RMSE against the known attributions",
    "infidelity": "Infidelity, small perturbation",
    "sensitivity": "Max-sensitivity",
    "float32": "Error of combined scores in float32, relative to the largest",
    "seconds": "Seconds for all explained rows, in float64, other work on the same machine",
    "bytes": "Largest number of bytes in tensors",
}
OF_TASK = ("rmse", "infidelity", "sensitivity", "combined")  # measures of networks that are trained
COLOURS = {"path": DOWN, "feature": UP, "unit": SERIES[2]}
TIMES = 3  # the size of the combined scores may be so many times that of Integrated Gradients
DEEP = "deep c=0.5"


def networks(settings: Settings, *kinds: str) -> list[str]:
    """random-plain-8 and so on: weights, shape, hidden layers; ``kinds`` choose by the beginning of the name."""
    names = [f"{k}-{s}-{n}" for k in settings["kinds"] for s in settings["shapes"] for n in settings["layers"]]
    return [name for name in names if not kinds or name.startswith(kinds)]


def mean(settings: Settings, results: Results, network: str, key: str, name: str) -> float | None:
    """Over the seeds; sizes, which differ by orders of magnitude, as a geometric mean."""
    found = [results[f"{network}-{seed}"]["methods"].get(key, {}).get(name) for seed in settings["seeds"]]
    if any(value is None for value in found):
        return None
    if name in ("total", "features", "combined"):
        return math.exp(statistics.fmean(math.log(max(value, 1e-300)) for value in found))
    return statistics.fmean(found)


def title(key: str) -> str:
    """A method as a reader wants it."""
    netting, _, c = key.partition(" c=")
    if netting == "deep":
        return f"default of deep models (c = {c})"
    return f"{netting} netting (c = {c})" if c else METHOD_TITLES[key]


def report(settings: Settings, results: Results) -> Report:
    """A table per measure and family of networks, a figure of the sizes, and what the numbers say."""
    tables = [_networks(settings, results)]
    for kind in settings["kinds"]:
        for shape in settings["shapes"]:
            made = [_table(settings, results, f"{kind}-{shape}-", name) for name in MEASURES if _applies(name, kind)]
            tables += [table for table in made if table.rows]
    return Report(tables, list(_findings(settings, results)), {"growth": _growth(settings, results)})


def _applies(name: str, kind: str) -> bool:
    return kind == "trained" or name not in OF_TASK


def _networks(settings: Settings, results: Results) -> Table:
    rows = []
    for network in networks(settings, "trained"):
        runs = [results[f"{network}-{seed}"] for seed in settings["seeds"]]
        rows.append([network, *(f"{statistics.fmean(run[name] for run in runs):.3g}" for name in ("test", "spread"))])
    columns = ["network", "RMSE on the test rows", "standard deviation of what is predicted"]
    return Table("networks", "How well the trained networks solve their task", columns, rows)


def _table(settings: Settings, results: Results, family: str, name: str) -> Table:
    rows: list[list[Any]] = []
    for key in [*OWN, *(BESIDE if name in OF_TASK else ())]:
        cells = [mean(settings, results, f"{family}{n}", key, name) for n in settings["layers"]]
        if any(cell is not None for cell in cells):
            rows.append([title(key), *(None if cell is None else f"{cell:.3g}" for cell in cells)])
    kind, shape, _ = family.split("-")
    columns = ["method", *(f"{n} layer{'s' * (n > 1)}" for n in settings["layers"])]
    return Table(f"{family}{name}", f"{MEASURES[name]}: {kind} {shape} networks", columns, rows)


def _growth(settings: Settings, results: Results) -> Any:
    families = [(kind, shape) for kind in settings["kinds"] for shape in settings["shapes"]]
    drawn = figure(3.4 * len(families), 3.2)
    for place, (kind, shape) in enumerate(families):
        axes = drawn.add_subplot(1, len(families), place + 1)
        for netting in COLOURS:
            for c, line in zip(("0", "1"), ("--", "-"), strict=True):
                network = f"{kind}-{shape}-"
                found = [mean(settings, results, f"{network}{n}", f"{netting} c={c}", "total") for n in settings["layers"]]
                sizes = [size for size in found if size is not None]
                if len(sizes) < len(found):
                    continue
                axes.plot(settings["layers"], sizes, line, marker="o", color=COLOURS[netting], label=f"{netting}, c = {c}")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(settings["layers"], [str(n) for n in settings["layers"]])
        axes.set_xlabel("hidden layers")
        axes.set_title(f"{kind}, {shape}", fontsize=11)
        axes.spines[["right", "top"]].set_visible(False)
        if not place:
            axes.set_ylabel("all influence / |output|")
            axes.legend(frameon=False, fontsize=8)
    return drawn


def _findings(settings: Settings, results: Results) -> Iterable[Finding]:
    layers = settings["layers"]
    low, high = layers[0], layers[-1]
    for kind in settings["kinds"]:
        for shape in settings["shapes"]:
            sizes = {
                netting: [mean(settings, results, f"{kind}-{shape}-{n}", f"{netting} c=1", "total") or 0.0 for n in layers]
                for netting in NETTINGS
            }
            grown = {netting: values[-1] / values[0] for netting, values in sizes.items()}
            shown = "; ".join(
                f"{netting} " + ", ".join(f"{value:.3g}" for value in values) for netting, values in sizes.items()
            )
            yield Finding(
                f"with feature netting all influence by the size of the output (c = 1) grows at most linearly from {low} to "
                f"{high} hidden layers on {kind} {shape} networks",
                grown["feature"] <= high / low,
                f"{grown['feature']:.3g}-fold, with path netting {grown['path']:.3g}-fold. At {', '.join(map(str, layers))} "
                f"layers: {shown}.",
            )
    if "trained" in settings["kinds"]:
        for name, claim in (
            ("rmse", "RMSE against known attributions"),
            ("infidelity", "infidelity"),
            ("sensitivity", "max-sensitivity"),
        ):
            yield _compare_nettings(settings, results, name, claim)
    if mean(settings, results, f"trained-{settings['shapes'][0]}-{low}", DEEP, "combined") is not None:
        yield from (_judge_sizes(settings, results, shape) for shape in settings["shapes"])
    worst = max(
        mean(settings, results, network, f"path c={c}", "float32") or 0.0 for network in networks(settings) for c in CONSTANTS
    )
    yield Finding(
        f"combined scores of path netting in float32 are within 0.001 of those in float64 up to {high} layers",
        worst <= 1e-3,
        f"Largest error {worst:.2g} of the largest score.",
    )


def _judge_sizes(settings: Settings, results: Results, shape: str) -> Finding:
    """The default of deep models beside Integrated Gradients: how large are the combined scores?"""
    sizes = {
        key: [mean(settings, results, f"trained-{shape}-{n}", key, "combined") or math.nan for n in settings["layers"]]
        for key in (DEEP, "unit c=0.5", "path c=0.5", "integrated_gradients")
    }
    rival = sizes["integrated_gradients"]
    ratios = [one / other for one, other in zip(sizes[DEEP], rival, strict=True)]
    shown = "; ".join(f"{title(key)} " + ", ".join(f"{value:.3g}" for value in values) for key, values in sizes.items())
    return Finding(
        f"sum of the sizes of the combined scores by the output on trained {shape} networks: the default of deep models at "
        f"most {TIMES} times Integrated Gradients at every depth",
        max(ratios) <= TIMES,
        f"At most {max(ratios):.3g} times. At {', '.join(map(str, settings['layers']))} layers: {shown}.",
    )


def _compare_nettings(settings: Settings, results: Results, name: str, claim: str) -> Finding:
    """Feature netting against path netting at every c and depth of the trained networks."""
    lower, count, numbers = 0, 0, []
    for shape in settings["shapes"]:
        for c in ("0.5", "1"):
            line = []
            for n in settings["layers"]:
                ours, theirs = (
                    mean(settings, results, f"trained-{shape}-{n}", f"{netting} c={c}", name) or 0.0
                    for netting in ("feature", "path")
                )
                count += 1
                lower += ours <= theirs * (1 + 1e-9)
                line.append(f"{ours:.3g} ({theirs:.3g})")
            numbers.append(f"{shape}, c = {c}: {', '.join(line)}")
    return Finding(
        f"{claim} on trained networks: feature netting as low as path netting, or lower, at c = 0.5 and 1 and every depth",
        lower == count,
        f"So in {lower} of {count} cases. Feature (path) at {', '.join(map(str, settings['layers']))} layers: "
        f"{'; '.join(numbers)}.",
    )
