"""What the paper's text says of its networks and methods: accuracies, complexity, and which methods are slow."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from .methods import FAST
from .published_numbers import METHOD_TITLES, SAMPLING, figure_of_paper
from .record import Finding, Settings
from .variants import kinds

OURS = "cafe c=0.5"
NEAR = 0.03  # of an accuracy
ALIKE = 1.15  # complexity of CAFE, as a multiple of that of other methods, that counts as similar
SLOW = 10

Seconds = Mapping[tuple[str, str], float]  # per row, by data and method


def judge_accuracies(settings: Settings, accuracies: Mapping[str, float]) -> Iterable[Finding]:
    """The paper's accuracies of the networks it trains."""
    family = settings["family"]
    for kind, data in kinds(settings["data"], family).items():
        theirs = {name: figure_of_paper("accuracies", family, name.partition("@")[0]) for name in data}
        known = {name: value for name, value in theirs.items() if value is not None}
        if known:
            near = [name for name in known if abs(accuracies[name] - known[name]) <= NEAR]
            numbers = "; ".join(f"{name} {accuracies[name]:.3f}, paper {value:.2f}" for name, value in known.items())
            claim = f"accuracy of the trained networks within {NEAR} of the paper{kind}"
            yield Finding(claim, len(near) == len(known), f"On {len(near)} of {len(known)}: {numbers}.")


def judge_complexity(settings: Settings, complexities: Mapping[tuple[str, str], float]) -> Iterable[Finding]:
    """MLPs: explanations of CAFE are about as complex as others. FT-Transformers: they are more complex."""
    family = settings["family"]
    rivals = [key for key in FAST if key in settings["methods"]]
    for kind, data in kinds(settings["data"], family).items():
        ratios: dict[str, float] = {}
        for name in data:
            others = [complexities[name, key] for key in rivals if (name, key) in complexities]
            if others and (name, OURS) in complexities:
                ratios[name] = complexities[name, OURS] / statistics.fmean(others)
        if not ratios:
            continue
        numbers = "; ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        if family == "mlp":
            claim = f"complexity of CAFE 0.5 at most {ALIKE} times the mean of comparably fast methods, MLPs{kind}"
            holds = max(ratios.values()) <= ALIKE
        else:
            claim = f"complexity of CAFE 0.5 above the mean of comparably fast methods on most data sets, FT-Transformers{kind}"
            holds = sum(ratio > 1 for ratio in ratios.values()) > len(ratios) / 2
        yield Finding(claim, holds, f"Times: {numbers}.")


def judge_slow_methods(settings: Settings, seconds: Seconds) -> Iterable[Finding]:
    """The methods with an hourglass in the paper's tables take more than ten times as long as CAFE on average."""
    means: dict[str, float] = {}
    for key in [key for key in SAMPLING if key in settings["methods"]]:
        ratios = [
            seconds[name, key] / seconds[name, OURS] for name in settings["data"] if {(name, key), (name, OURS)} <= set(seconds)
        ]
        if ratios:
            means[key] = statistics.fmean(ratios)
    if means:
        numbers = "; ".join(f"{METHOD_TITLES[key]} {ratio:.3g}" for key, ratio in means.items())
        claim = f"sampling methods take more than {SLOW} times as long as CAFE 0.5 on average"
        yield Finding(claim, min(means.values()) > SLOW, f"Times, per row: {numbers}.")


def text_findings(settings: Settings, ours: Mapping[Any, tuple[float, float]], runs: Mapping[str, list[Any]]) -> list[Finding]:
    """All findings about the text; ``runs`` are the results of each data set."""
    accuracies = {name: statistics.fmean(run["accuracy"] for run in results) for name, results in runs.items()}
    complexities = {(column, key): mean for (metric, column, key), (mean, _) in ours.items() if metric == "complexity"}
    seconds = {
        (column, key): mean / runs[column][0]["limited"].get(key, runs[column][0]["rows"])
        for (metric, column, key), (mean, _) in ours.items()
        if metric == "seconds"
    }
    return [
        *judge_accuracies(settings, accuracies),
        *judge_complexity(settings, complexities),
        *judge_slow_methods(settings, seconds),
    ]
