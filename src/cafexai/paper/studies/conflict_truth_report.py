"""Tables and findings on scores of conflict beside the exact one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from .record import Finding, Report, Results, Settings, Table

WANTED, NEAR = 0.85, 0.97  # rank correlation with the truth; correlation with Shapley values
Families = dict[str, list[Mapping[str, Any]]]  # "2 layers, adult" -> the results of its seeds


def report(settings: Settings, results: Results) -> Report:
    """Rank correlation, size and hidden conflicts by family; baselines by table."""
    families = _families(results, lambda kind: kind != "baseline")
    tables = [_spearman(families), _sizes(families)]
    planted = {name: found for name, found in families.items() if "auroc" in found[0]}
    baselines = _families(results, lambda kind: kind == "baseline")
    tables += [_hidden(planted)] * bool(planted) + [_baselines(baselines)] * bool(baselines)
    return Report(tables, [*_findings(families, planted, baselines)])


def _families(results: Results, wanted: Any) -> Families:
    found: Families = {}
    for key, result in results.items():
        kind, name, _ = key.split("--")
        if wanted(kind):
            found.setdefault(f"{kind.replace('-', ' ')}, {name.replace('-', ' ')}", []).append(result)
    return found


def mean(values: Any) -> float:
    """The mean of what is a number; NaN if nothing is."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _names(families: Families) -> list[str]:
    return list(next(iter(families.values()))[0]["scores"])


def _of(found: list[Mapping[str, Any]], name: str, what: str) -> float:
    return mean(one["scores"][name][what] for one in found)


def _spearman(families: Families) -> Table:
    names = _names(families)
    rows = [[family, *(_of(found, name, "spearman") for name in names)] for family, found in families.items()]
    rows.append(["mean", *(mean(row[place] for row in rows) for place in range(1, len(names) + 1))])
    note = "The truth is the largest magnitude of Definition 4 over all pairs of sets of features, from all 2^n evaluations."
    return Table("spearman", "Rank correlation with the exact conflict", ["network", *names], rows, note)


def _sizes(families: Families) -> Table:
    names = _names(families)
    rows = []
    for family, found in families.items():
        low, high = (mean(one["share_range"][end] for one in found) for end in (0, 1))
        shares = [f"{low:.2f} to {high:.2f}", mean(one["share_error"] for one in found)]
        rows.append([family, *(_of(found, name, "size") for name in names), *shares])
    columns = ["network", *names, "measured share, 10 to 90 % of rows", "its mean error"]
    return Table("sizes", "Mean score / mean exact conflict", columns, rows)


def _hidden(planted: Families) -> Table:
    rows = [
        [family, mean(one["auroc"] for one in found), mean(one["named"] for one in found), mean(one["fit"] for one in found)]
        for family, found in planted.items()
    ]
    columns = ["network", "AUROC of rows with the pair", "the pair is named first", "RMSE of the network"]
    return Table("hidden", "Hidden conflicts of planted pairs", columns, rows, "Visible pairs are not hidden: 0.5 is right.")


def _baselines(families: Families) -> Table:
    rows = []
    for family, found in families.items():
        for name in found[0]["baselines"]:
            own = [one["baselines"][name] for one in found]
            price = mean(one["baselines"][name]["seconds"] / one["baselines"]["zero"]["seconds"] for one in found)
            rows.append(
                [f"{family.partition(', ')[2]}, {name}", *(mean(o[w] for o in own) for w in ("correlation", "first")), price]
            )
    columns = ["table, baseline", "correlation with Shapley values", "same strongest feature", "seconds / those of zero"]
    return Table("baselines", "Net scores beside exact Shapley values over background rows", columns, rows)


def _findings(families: Families, planted: Families, baselines: Families) -> Iterator[Finding]:
    scores = {family: _of(found, "measured", "spearman") for family, found in families.items()}
    below = {family: value for family, value in scores.items() if not value >= WANTED}
    lowest = min(scores, key=lambda family: scores[family])
    numbers = f"Lowest: {scores[lowest]:.3f} ({lowest})" + (f"; below: {', '.join(below)}." if below else ".")
    yield Finding(
        f"the measured conflict has a rank correlation of at least {WANTED} with the truth everywhere", not below, numbers
    )
    above = max(one["above"] for found in families.values() for one in found)
    yield Finding("the measured conflict is never above the truth", above < 1e-6, f"At most by {above:.1e} of the mean truth.")
    names = [name for name in _names(families) if name != "measured"]
    best = {name: mean(_of(found, name, "spearman") for found in families.values()) for name in names}
    own = mean(scores.values())
    shown = ", ".join(f"{name} {value:.3f}" for name, value in best.items())
    yield Finding(
        "the measured conflict ranks rows better than every other score on average",
        own > max(best.values()),
        f"{own:.3f}; {shown}.",
    )
    words = [one["one word"] for found in families.values() for one in found if "one word" in one]
    if words:
        yield Finding("texts of one word have no conflict", max(words) == 0, f"Largest: {max(words):g}.")
    if planted:
        hidden = {family: mean(one["auroc"] for one in found) for family, found in planted.items() if "visible" not in family}
        told = ", ".join(f"{family} {value:.3f}" for family, value in hidden.items())
        yield Finding(
            "hidden conflicts find rows with a planted gate or XOR (AUROC at least 0.95)",
            min(hidden.values()) >= 0.95,
            f"{told}.",
        )
    if baselines:
        near = {
            family: mean(one["baselines"]["background"]["correlation"] for one in found) for family, found in baselines.items()
        }
        told = ", ".join(f"{family.partition(', ')[2]} {value:.3f}" for family, value in near.items())
        yield Finding(
            f"with background baselines nets correlate with Shapley values by at least {NEAR}",
            min(near.values()) >= NEAR,
            f"{told}.",
        )
