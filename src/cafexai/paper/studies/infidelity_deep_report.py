"""Tables and findings on the faithfulness of both nettings on deeper networks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from .published_numbers import METHOD_TITLES, SAMPLING
from .record import Finding, Report, Results, Settings, Table

SIZES = ("small", "large")
FIRST = "first"
BEST = f"cafe reference c={FIRST}"
RIVAL = "integrated_gradients"
CHEAP = ("gradient_x_input", "lrp", "deeplift_rescale", "deeplift_revealcancel", "cafe c=0", "cafe c=0.5", "cafe c=1")


def column(name: str, activation: str) -> str:
    """How a family of networks is called."""
    return f"{name} {activation}"


def columns(settings: Settings) -> list[str]:
    """All families of networks."""
    return [column(name, activation) for name in settings["data"] for activation in settings["activations"]]


def title(key: str) -> str:
    """A method as a reader wants it."""
    kind, _, c = key.partition(" reference c=")
    if not c:
        return METHOD_TITLES[key]
    netting = "" if kind == "cafe" else ", feature netting"
    return f"CAFE{netting}, biases in the reference (c = {'0.5, then 0' if c == FIRST else c})"


def of_seeds(settings: Settings, results: Results, where: str, key: str, size: str) -> list[float]:
    """The infidelity of a method, a seed each."""
    return [results[f"{where.replace(' ', '-')}-{seed}"]["methods"][key][size] for seed in settings["seeds"]]


def relative(settings: Settings, results: Results, where: str, key: str, size: str) -> list[float]:
    """The same as a multiple of that of Integrated Gradients."""
    pairs = (of_seeds(settings, results, where, name, size) for name in (key, RIVAL))
    return [one / other for one, other in zip(*pairs, strict=True)]


def level(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error over the seeds."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return statistics.fmean(values), error


def report(settings: Settings, results: Results) -> Report:
    """A table per perturbation, one relative to Integrated Gradients, and what the numbers say."""
    tables = [_networks(settings, results)]
    for size in SIZES:
        tables += [_table(settings, results, size, to_rival) for to_rival in (False, True)]
    tables.append(_times(settings, results))
    return Report(tables, list(_findings(settings, results)))


def _networks(settings: Settings, results: Results) -> Table:
    rows = []
    for where in columns(settings):
        runs = [results[f"{where.replace(' ', '-')}-{seed}"] for seed in settings["seeds"]]
        rows.append([where, runs[0]["rows"], f"{statistics.fmean(run['accuracy'] for run in runs):.1%}"])
    note = f"Hidden layers {settings['hidden']}, trained on {settings['train_rows']} rows for {settings['epochs']} epochs."
    return Table("networks", "The explained networks", ["networks", "explained rows", "accuracy on all test rows"], rows, note)


def _table(settings: Settings, results: Results, size: str, to_rival: bool) -> Table:
    rows: list[list[Any]] = []
    for key in settings["methods"]:
        cells: list[Any] = [title(key)]
        for where in columns(settings):
            mean, error = level((relative if to_rival else of_seeds)(settings, results, where, key, size))
            cells.append(f"{mean:.3f} ± {error:.3f}" if to_rival else f"{mean:.4g} ± {error:.2g}")
        rows.append(cells)
    note = "Mean ± standard error over the seeds; the same rows and draws for all methods."
    if to_rival:
        return Table(f"relative-{size}", f"Infidelity as a multiple of that of Integrated Gradients, {size} perturbation",
                     ["method", *columns(settings)], rows, note)  # fmt: skip
    return Table(f"infidelity-{size}", f"Infidelity, {size} perturbation", ["method", *columns(settings)], rows, note)


def _times(settings: Settings, results: Results) -> Table:
    rows = [
        [title(key), *(f"{level(of_seeds(settings, results, where, key, 'seconds'))[0]:.3g}" for where in columns(settings))]
        for key in settings["methods"]
    ]
    note = "Seconds for the explained rows in float64, other work on the same machine."
    return Table("seconds", "Runtime", ["method", *columns(settings)], rows, note)


def against(settings: Settings, results: Results, one: str, others: Iterable[str]) -> tuple[list[str], list[str], list[str]]:
    """Where ``one`` is lower than the best of the others, where higher, by two standard errors over the seeds; all numbers."""
    lower, higher, numbers = [], [], []
    known = [key for key in others if key in settings["methods"] and key != one]
    for where in columns(settings):
        for size in SIZES:
            mine = of_seeds(settings, results, where, one, size)
            best = min(known, key=lambda key: statistics.fmean(of_seeds(settings, results, where, key, size)))
            other = of_seeds(settings, results, where, best, size)
            apart, error = level([a / b - 1 for a, b in zip(mine, other, strict=True)])
            lower += [where] if apart < -2 * error else []
            higher += [where] if apart > 2 * error else []
            numbers.append(f"{where} {size} {apart:+.1%} ± {error:.1%}" + (f" ({title(best)})" if len(known) > 1 else ""))
    return lower, higher, numbers


def _finding(claim: str, settings: Settings, results: Results, one: str, others: Sequence[str]) -> Finding:
    lower, higher, numbers = against(settings, results, one, others)
    count = f"Lower in {len(lower)} of {len(numbers)} cases, higher in {len(higher)}, else within two standard errors"
    holds = None if len(settings["seeds"]) < 2 or not (lower or higher) else not higher
    return Finding(claim, holds, f"{count}. {'; '.join(numbers)}.")


def _findings(settings: Settings, results: Results) -> Iterable[Finding]:
    path, feature = ([key for key in settings["methods"] if key.startswith(f"{kind} c=")] for kind in ("cafe", "feature"))

    cases = [(where, size) for where in columns(settings) for size in SIZES]
    means = {
        key: statistics.fmean(statistics.fmean(relative(settings, results, where, key, size)) for where, size in cases)
        for key in settings["methods"]
    }
    order = sorted(means, key=lambda key: means[key])
    shown = "; ".join(f"{title(key)} {means[key]:.3f}" for key in order)
    cheap = [key for key in order if key not in SAMPLING and key not in ("gradient_shap", "smoothgrad", RIVAL)]
    yield Finding(
        "no method that needs neither samples nor steps is more faithful on average than CAFE with biases in the reference and "
        "c = 0.5 at the first activation, 0 behind it (ours)",
        cheap[0] in (BEST, BEST.replace("cafe", "feature")),
        f"Mean over all cases of infidelity as a multiple of that of Integrated Gradients: {shown}.",
    )
    yield _finding(
        f"infidelity of {title(BEST)}: as low as that of Integrated Gradients, or lower", settings, results, BEST, [RIVAL]
    )
    yield _finding(
        f"infidelity of {title(BEST)}: as low as that of the best of gradient x input, LRP, DeepLIFT (both rules) and CAFE as "
        "published, or lower",
        settings,
        results,
        BEST,
        CHEAP,
    )
    best_path, best_feature = (min(keys, key=lambda key: means[key]) for keys in (path, feature))
    yield _finding(
        f"infidelity of feature netting at its best c ({best_feature.partition('=')[2]}): as low as that of path netting at "
        f"its best c ({best_path.partition('=')[2]}), or lower",
        settings,
        results,
        best_feature,
        [best_path],
    )
    for key in path:
        c = key.partition("=")[2]
        if c != "0":  # the same there
            claim = f"infidelity at c = {c}: feature netting as low as path netting, or lower"
            yield _finding(claim, settings, results, f"feature c={c}", [key])
