"""Tables and findings on conflict scores of tables under two shifts, by both nettings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from .distributions import histograms
from .record import Finding, Report, Results, Settings, Table

SHIFTS = {"correlation": "correlation shift", "missing": "missing feature"}
SETS = {"train": "training", **SHIFTS}
NETTINGS = {"path": "conflict", "feature": "conflict_netted"}  # the paper's, and ours; where their scores are kept
UNITS = {"unit": "conflict_unit", "deep": "conflict_deep"}  # ours, at the price of path: unit netting; default of deep models
FAMILIES = {"mlp": "MLPs", "ft": "FT-Transformers"}


def networks(settings: Settings, family: str = "") -> list[str]:
    """The names of the networks: mlp-WIDTH and ft-HEADS-WIDTH."""
    names = [f"mlp-{width}" for width in settings["mlps"]] + [
        f"ft-{heads}-{width}" for heads, width in settings["transformers"]
    ]
    return [name for name in names if name.startswith(family)]


def report(settings: Settings, results: Results) -> Report:
    """Tables of all networks, a figure per family and netting, and whether s_conf moves as the paper expects."""
    nettings = {name: key for name, key in (NETTINGS | UNITS).items() if all(key in run for run in results.values())}
    tables = [_table(settings, results, netting) for netting in nettings] + [_apart(settings, results)]
    findings = [
        _moves(settings, results, "correlation", up=True),
        _moves(settings, results, "missing", up=False),
        _separates(settings, results),
        _detects(settings, results),
        _tells(settings, results),
        *(_sees(settings, results, netting) for netting in UNITS if netting in nettings),
    ]
    figures = {}
    for family in FAMILIES:
        lines = []
        for netting, key in nettings.items():
            panels = []
            for network in networks(settings, family):
                of_network = runs(network, results)
                distances = {name: mean([run[key]["distance"][name] for run in of_network]) for name in SHIFTS}
                panels.append((title(network), of_network[0][key], distances))
            lines.append((f"s_conf, {words(netting)}", panels))
        if networks(settings, family):
            figures[f"conflict-{family}"] = histograms(lines, SETS)
    return Report(tables, findings, figures)


def runs(network: str, results: Results) -> list[Any]:
    """The results of one network, a seed each."""
    return [result for key, result in results.items() if key.rsplit("-", 1)[0] == network]


def title(network: str) -> str:
    """ "ft-4-32" as a reader wants it."""
    *heads, width = network.split("-")[1:]
    return f"FT-Transformer, {heads[0]} heads, {width} wide" if heads else f"MLP {width}, {width}"


def words(netting: str) -> str:
    """A netting with the c that it is used with."""
    return "deep default, c = 0.5" if netting == "deep" else f"{netting} netting, c = 1"


def mean(values: Sequence[float]) -> float:
    """The mean over the seeds."""
    return statistics.fmean(values)


def spread(values: Sequence[float]) -> str:
    """Mean ± standard error over the seeds; one seed has none."""
    if len(values) == 1:
        return f"{values[0]:.4g}"
    return f"{mean(values):.4g} ± {statistics.stdev(values) / math.sqrt(len(values)):.2g}"


def _table(settings: Settings, results: Results, netting: str) -> Table:
    columns = ["network", *(f"s_conf, {name}" for name in SETS.values())]
    columns += [f"JS distance, {name}" for name in ("fresh rows", *SHIFTS.values())]
    columns += [f"AUROC, {name}" for name in SHIFTS.values()] + [f"accuracy, {name}" for name in SETS.values()]
    key, rows = (NETTINGS | UNITS)[netting], []
    for network in networks(settings):
        cells = [title(network)]
        for kind, names in (("mean", SETS), ("distance", ("fresh", *SHIFTS)), ("auroc", SHIFTS)):
            cells += [spread([run[key][kind][name] for run in runs(network, results)]) for name in names]
        cells += [spread([run["accuracy"][name] for run in runs(network, results)]) for name in SETS]
        rows.append(cells)
    note = (
        "Mean ± standard error over the seeds. JS distance: Jensen-Shannon distance (natural logarithm) of 50-bin histograms "
        "to that of the training rows; fresh rows have the training distribution and show what chance alone gives. AUROC: "
        "probability that a shifted row has a higher s_conf than a training row. The figures show the first seed; the "
        "distances beside them are means over the seeds."
    )
    whose = "as in the paper" if netting == "path" else "ours"
    head = f"Conflict scores under distributional shift, {words(netting)} ({whose})"
    return Table(key.replace("_", "-"), head, columns, rows, note)


def _apart(settings: Settings, results: Results) -> Table:
    """Accuracy in telling fresh rows, correlation shift and missing feature apart."""
    ways = list(runs(networks(settings)[0], results)[0]["told_apart"])
    rows = [
        [
            title(network),
            *(spread([mean(list(run["told_apart"][way].values())) for run in runs(network, results)]) for way in ways),
        ]
        for network in networks(settings)
    ]
    note = (
        "Share of rows that are given to the right one of three sets (fresh rows, correlation shift, missing feature; chance: "
        "one third) by the majority of the 25 nearest of the first half of all rows; judged on the second half. Mean ± "
        "standard error over the seeds. s_conf is that of the predicted class."
    )
    return Table("told-apart", "Which shift is it?", ["network", *ways], rows, note)


def _moves(settings: Settings, results: Results, shift: str, *, up: bool) -> Finding:
    """Whether the mean of s_conf moves as expected in all networks."""
    numbers, right, seeds, good = [], 0, 0, 0
    for network in networks(settings):
        pairs = [(run["conflict"]["mean"]["train"], run["conflict"]["mean"][shift]) for run in runs(network, results)]
        before, after = (mean(side) for side in zip(*pairs, strict=True))
        right += (after > before) == up
        good += sum((b > a) == up for a, b in pairs)
        seeds += len(pairs)
        numbers.append(f"{title(network)}: {before:.3g} to {after:.3g}")
    verb = "rises" if up else "falls"
    return Finding(
        f"s_conf {verb} under {SHIFTS[shift]} in all {len(numbers)} networks",
        right == len(numbers),
        f"It {verb} in {right} of {len(numbers)} networks (in {good} of {seeds} single trainings). {'; '.join(numbers)}.",
    )


def _separates(settings: Settings, results: Results) -> Finding:
    """Whether the shifts are told apart better than chance: AUROC above and below one half."""
    numbers, right = [], 0
    for network in networks(settings):
        up, down = (mean([run["conflict"]["auroc"][name] for run in runs(network, results)]) for name in SHIFTS)
        right += up > 0.5 > down
        numbers.append(f"{title(network)}: {up:.3f} and {down:.3f}")
    return Finding(
        f"single rows show it: AUROC of s_conf above 0.5 under {SHIFTS['correlation']} and below for a {SHIFTS['missing']}",
        right == len(numbers),
        f"So in {right} of {len(numbers)} networks. {'; '.join(numbers)}.",
    )


def _detects(settings: Settings, results: Results) -> Finding:
    """Whether feature netting makes s_conf a nearly perfect detector of the correlation shift."""
    numbers, right = [], 0
    for network in networks(settings):
        ours, paper = (
            [run[key]["auroc"]["correlation"] for run in runs(network, results)] for key in reversed(NETTINGS.values())
        )
        right += min(ours) >= 0.95
        numbers.append(f"{title(network)}: {mean(ours):.4f}, lowest {min(ours):.4f} (path {mean(paper):.3f})")
    claim = (
        "with feature netting, which is ours, the AUROC of s_conf for the correlation shift is at least 0.95 in every training"
    )
    return Finding(claim, right == len(numbers), f"So in {right} of {len(numbers)} networks. {'; '.join(numbers)}.")


def _tells(settings: Settings, results: Results) -> Finding:
    """Whether the pair of scores says which shift it is, better than either."""
    numbers, right = [], 0
    for network in networks(settings):

        def accuracy(way: str, network: str = network) -> float:
            return mean([mean(list(run["told_apart"][way].values())) for run in runs(network, results)])

        pair, conflict, logit = map(accuracy, ("s_conf and MaxLogit, feature", "s_conf, feature", "MaxLogit"))
        right += pair >= max(conflict, logit)
        path = accuracy("s_conf and MaxLogit, path")
        numbers.append(f"{title(network)}: {pair:.1%} (path {path:.1%}), s_conf {conflict:.1%}, MaxLogit {logit:.1%}")
    claim = (
        "s_conf with feature netting and MaxLogit together tell rows in distribution, under correlation shift and with a "
        "missing feature apart at least as well as either alone"
    )
    return Finding(claim, right == len(numbers), f"So in {right} of {len(numbers)} networks. {'; '.join(numbers)}.")


def _sees(settings: Settings, results: Results, netting: str) -> Finding:
    """Whether unit netting, at the price of path netting, sees the correlation shift better; and the missing feature."""
    numbers, right = [], 0
    for network in networks(settings):
        ours, path = ([run[key]["auroc"] for run in runs(network, results)] for key in (UNITS[netting], NETTINGS["path"]))
        one, other = (mean([auroc["correlation"] for auroc in side]) for side in (ours, path))
        low, least = (mean([auroc["missing"] for auroc in side]) for side in (ours, path))
        right += one >= other
        numbers.append(f"{title(network)}: {one:.3f} ({other:.3f}), missing feature {low:.3f} ({least:.3f})")
    return Finding(
        f"the AUROC of s_conf for the correlation shift is at least as high with {words(netting)}, ours, as with path netting",
        right == len(numbers),
        f"So in {right} of {len(numbers)} networks. AUROC (path): {'; '.join(numbers)}.",
    )
