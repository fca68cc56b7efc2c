"""The tables on synthetic data beside the paper's, and whether its claims hold."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .methods import NETTED, UNITS
from .published_numbers import METHOD_TITLES, SAMPLING, figure_of_paper
from .record import Finding, Report, Results, Settings, Table


def columns(settings: Settings) -> list[str]:
    """Names of the columns as in the paper's figures: "5 gelu" for trained networks, "5" for constructed ones."""
    dimensions = [str(dimension) for dimension, _ in settings["columns"]]
    return [f"{d} {a}" for a in settings["activations"] for d in dimensions] if settings["trained"] else dimensions


def report(settings: Settings, results: Results) -> Report:
    """The table with the paper's figures, and the paper's claims."""
    ours = collect(settings, results)
    findings = list((_comparisons if settings["trained"] else _constructed_claims)(settings, ours))
    return Report([_table(settings, ours)], findings)


class Level(NamedTuple):
    """Mean over the data sets with its standard error, and the mean on each data set."""

    mean: float
    error: float
    sets: tuple[float, ...]


def level(values: Sequence[float]) -> Level:
    """The level of one value per data set."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return Level(statistics.fmean(values), error, tuple(values))


Ours = dict[tuple[str, str], Level]  # by method (or "validation", "test") and column


def collect(settings: Settings, results: Results) -> Ours:
    """The levels of all methods in all columns, mean over the networks of each data set."""
    ours: Ours = {}
    for column in columns(settings):
        sets = [results[f"{column.replace(' ', '-')}-{seed}"]["networks"] for seed in settings["seeds"]]
        flat = [[{**run["methods"], **{k: v for k, v in run.items() if k != "methods"}} for run in runs] for runs in sets]
        for name in flat[0][0]:
            ours[name, column] = level([statistics.fmean([run[name] for run in runs]) for runs in flat])
    return ours


def _kind(settings: Settings) -> str:
    return "trained" if settings["trained"] else "procedural"


def _table(settings: Settings, ours: Ours) -> Table:
    kind = _kind(settings)
    header = ["method", *(part for column in columns(settings) for part in (column, "paper", "difference"))]
    errors = {"validation": "RMSE of the networks, validation", "test": "RMSE of the networks, test"}
    rows: list[list[Any]] = []
    ours_too = [name for name in UNITS if any((name, column) in ours for column in columns(settings))]
    for name in [*(errors if settings["trained"] else ("test",)), *settings["methods"], *ours_too]:
        cells: list[Any] = [errors.get(name) or METHOD_TITLES[name]]
        for column in columns(settings):
            if (name, column) not in ours:
                cells += [None, figure_of_paper(f"synthetic {kind}", name, column), None]
                continue
            mean, error, _ = ours[name, column]
            theirs = figure_of_paper(f"synthetic {kind}" + (" networks" if name in errors else ""), name, column)
            apart = f"{mean / theirs - 1:+.1%}" if theirs else None
            marker = "*" if f"{name} {column}" in settings.get("limits", {}) else ""
            cells += [f"{mean:.3g}{marker} ± {error:.2g}", theirs, apart]
        rows.append(cells)
    note = "RMSE against the known attributions, mean over features; mean over the data sets ± its standard error."
    if not settings["trained"]:
        note += (
            " KernelSHAP, LIME and Shapley Value Sampling ran on the same network without its zero weights (equal outputs), "
        )
        note += (
            "Shapley Value Sampling beyond 10 dimensions on the parts that the network sums up (equally distributed scores)."
        )
    for entry, rows_of in settings.get("limits", {}).items():
        name, _, column = entry.rpartition(" ")
        if column in columns(settings) and name in settings["methods"]:
            what = f"ran on the first {rows_of} test rows of each set only (*)" if rows_of else "was left out"
            note += f" {METHOD_TITLES[name]} {what} in {column} dimensions: it takes too long."
    return Table(f"synthetic-{kind}", f"RMSE of attributions, {kind} networks", header, rows, note)


def _best(settings: Settings, ours: Ours, rivals: Sequence[str], claim: str) -> Finding:
    """Whether CAFE 1 has the lowest RMSE in every column; undecided where it is lower by less than two standard errors."""
    numbers, right, clear = [], 0, 0
    for column in columns(settings):
        best = min([name for name in rivals if (name, column) in ours], key=lambda name: ours[name, column].mean)
        mine, other = ours["cafe c=1", column], ours[best, column]
        ahead = level([b - a for a, b in zip(mine.sets, other.sets, strict=True)])  # on the same data: levels differ by set
        right += ahead.mean > 0
        clear += ahead.mean > 2 * ahead.error
        numbers.append(f"{column}: {mine.mean:.3g} against {other.mean:.3g} ({METHOD_TITLES[best]})")
    count = f"So in {right} of {len(numbers)} columns, by more than two standard errors over the data sets in {clear}"
    holds = False if right < len(numbers) else True if clear == len(numbers) else None
    return Finding(claim, holds, f"{count}. {'; '.join(numbers)}.")


def _comparisons(settings: Settings, ours: Ours) -> Iterable[Finding]:
    rivals = [name for name in settings["methods"] if name not in ("cafe c=1", "deeplift_revealcancel", *NETTED)]
    yield _best(settings, ours, rivals, "CAFE 1 has the lowest RMSE of the paper's methods in all columns")
    if "deeplift_revealcancel" in settings["methods"]:
        claim = "CAFE 1 has a lower RMSE than DeepLIFT RevealCancel, which the paper could not run, in all columns"
        yield _best(settings, ours, ["deeplift_revealcancel"], claim)
    if settings["trained"] and (ours_too := NETTED[-1]) in settings["methods"]:
        claim = "CAFE 1 has a lower RMSE with path netting, the paper's, than with feature netting in all columns"
        yield _best(settings, ours, [ours_too], claim)
    if settings["trained"] and all(("unit c=1", column) in ours for column in columns(settings)):
        claim = "CAFE 1 has a lower RMSE with path netting, the paper's, than with unit netting in all columns"
        yield _best(settings, ours, ["unit c=1"], claim)


EXACT = ("gradient_x_input", "deeplift_rescale", "integrated_gradients", "cafe c=0")


def _constructed_claims(settings: Settings, ours: Ours) -> Iterable[Finding]:
    names = columns(settings)
    for name, with_netting in (
        ("cafe c=1", ""),
        (NETTED[-1], " with feature netting, which is ours,"),
        ("unit c=1", " with unit netting, which is ours,"),
    ):
        if any((name, column) in ours for column in names):
            known = [ours[name, column].mean for column in names if (name, column) in ours]
            every = "all columns" if len(known) == len(names) else f"all {len(known)} columns where it ran"
            claim = f"CAFE 1{with_netting} is exactly 0.00 in {every}"
            yield Finding(claim, max(known) < 0.005, f"Largest RMSE {max(known):.2g}.")
    known_methods = [name for name in EXACT if name in settings["methods"]]
    apart = max(abs(ours[name, c].mean / ours["cafe c=0", c].mean - 1) for name in known_methods for c in names)
    yield Finding(
        "CAFE 0 = Gradient x Input = DeepLIFT = Integrated Gradients", apart < 1e-6, f"Largest difference {apart:.1g}."
    )
    yield from _comparisons(settings, ours)
    yield _levels(settings, ours, [*known_methods, "lrp", "gradient_shap", "cafe c=0.5"], "methods without chance")
    yield _levels(settings, ours, ["smoothgrad", *SAMPLING], "methods with chance, where all test rows were used")


def _levels(settings: Settings, ours: Ours, names: Sequence[str], which: str) -> Finding:
    """Within 5 % of the paper, or of the rounding of its figures."""
    apart = {}
    for name in names:
        for column in columns(settings):
            theirs = figure_of_paper("synthetic procedural", name, column)
            if theirs and name in settings["methods"] and f"{name} {column}" not in settings["limits"]:
                apart[f"{METHOD_TITLES[name]}, {column}"] = ours[name, column].mean / theirs - 1
    claim = f"RMSE within 5 % of the paper in all columns, {which}"
    if not apart or len(settings["seeds"]) < 5:
        return Finding(claim, None, "The level hangs on the weights that five seeds draw; these are fewer seeds or methods.")
    worst = max(apart, key=lambda k: abs(apart[k]))
    return Finding(claim, abs(apart[worst]) <= 0.05, f"Largest of {len(apart)} differences {apart[worst]:+.1%} ({worst}).")
