"""The numbers of the studies of the truth: measures by network and data set, means over seeds and data sets."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .infidelity_deep_report import level
from .record import Results, Settings
from .truth import APART, RIVAL

Level = tuple[float, float]  # mean and standard error


@dataclass(frozen=True)
class Measure:
    """What tables call it, and which values are good; ``ratio``: shown as a multiple of that of Integrated Gradients."""

    title: str
    best: str
    ratio: bool = False


MEASURES = {
    "infidelity": Measure("Infidelity, normalised", "low", True),
    "infidelity_as_is": Measure("Infidelity as is", "low", True),
    "occlusion_correlation": Measure("Pearson's correlation with removing features (tokens, cells) one at a time", "high"),
    "short_correlation": Measure("Pearson's correlation with masking single tokens of short sentences", "high"),
    "sign_agreement": Measure("Sign agreement with removing features (tokens, cells) one at a time", "high"),
    "shapley_correlation": Measure("Pearson's correlation with Shapley values", "high"),
    "shapley_rmse": Measure("Root mean square error against Shapley values", "low"),
    "shapley_distance": Measure("L1 distance to Shapley values", "low"),
    "shapley_top": Measure("Share of rows with the same top feature as Shapley values", "high"),
    "max_sensitivity": Measure("Max-sensitivity", "low"),
    "deletion": Measure("Deletion", "low"),
    "insertion": Measure("Insertion", "high"),
    "deletion_as_is": Measure("Deletion as is, in units of the logit", "low"),
    "insertion_as_is": Measure("Insertion as is, in units of the logit", "high"),
    "comprehensiveness": Measure("Comprehensiveness", "high"),
    "sufficiency": Measure("Sufficiency", "low"),
}


def families(settings: Settings) -> list[tuple[str, str]]:
    """All pairs of a network and a data set."""
    return [(kind, name) for kind, names in settings["networks"].items() for name in names]


def key_of(kind: str, name: str, seed: int) -> str:
    """The key of a task."""
    return f"{kind.replace(' ', '-')}-{name}-{seed}"


def runs(settings: Settings, results: Results, kind: str, name: str) -> list[Any]:
    """The results of a network on a data set, a seed each; none if it was left out."""
    keys = [key_of(kind, name, seed) for seed in settings["seeds"]]
    return [results[key] for key in keys if key in results]


def find_measured(settings: Settings, results: Results) -> list[str]:
    """The networks that could be measured."""
    return [kind for kind, names in settings["networks"].items() if any(runs(settings, results, kind, name) for name in names)]


def compare_methods(runs_of: Sequence[Any], method: str, measure: str, apart: str | None = None) -> Level | None:
    """Mean and standard error of a measure on one network and data set, or of its distance to the method ``apart``."""
    if not runs_of or any(measure not in run["methods"].get(method, {}) for run in runs_of):
        return None
    at = 0 if apart is None else 2 * (1 + APART.index(apart))
    values, errors = [], []
    for run in runs_of:
        numbers = run["methods"][method][measure]
        unit = run["methods"][RIVAL][measure][0] if MEASURES[measure].ratio else 1
        values.append(numbers[at] / unit)
        errors.append(numbers[3 if MEASURES[measure].ratio and apart is None else at + 1] / unit)
    return level(values) if len(values) > 1 else (values[0], errors[0])


def by_set(
    settings: Settings, results: Results, kind: str, method: str, measure: str, apart: str | None = None
) -> dict[str, Level]:
    """The same for every data set of a network on which it is known."""
    found = {}
    for name in settings["networks"][kind]:
        pair = compare_methods(runs(settings, results, kind, name), method, measure, apart)
        if pair is not None:
            found[name] = pair
    return found


def over_sets(
    settings: Settings, results: Results, kind: str, method: str, measure: str, apart: str | None = None
) -> Level | None:
    """The mean over the data sets of a network on which Integrated Gradients have it too; None if it is not known there."""
    known = by_set(settings, results, kind, method, measure, apart)
    if not known or len(known) < len(by_set(settings, results, kind, RIVAL, measure)):
        return None
    return mean_of(list(known.values()))


def mean_of(known: Sequence[Level]) -> Level:
    """The mean of independent means."""
    return statistics.fmean(mean for mean, _ in known), math.sqrt(sum(error**2 for _, error in known)) / len(known)
