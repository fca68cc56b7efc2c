"""Tables and findings of the study of the monitor."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from .monitor_figures import draw_alarm_against_harm, draw_strengths
from .monitor_shifts import KINDS
from .record import Finding, Report, Results, Settings, Table

RIGHT = 0.9  # the share of windows whose kind must be right
INPUTS = (  # what no model is needed for
    "monitor, inputs",
    "exact KS of inputs",
    "monitor, correlations",
    "correlation matrix of inputs",
)
WITHOUT_MODEL = ("inputs", "new values", "correlations")  # families
HARM = 0.02  # a loss of accuracy that should be found
ALARMS = ("alarms", "p, uncorrected", "p, corrected")  # ways to raise a false alarm


def report(settings: Settings, results: Results) -> Report:
    """AUROC by statistic and shift, kinds, false alarms, alarms beside harm."""
    shifts = {key: result for key, result in results.items() if "shifts" in result}
    fresh = {key.removesuffix("-false-alarms"): result for key, result in results.items() if "false alarms" in result}
    seeds = {key.removesuffix("-kinds"): result for key, result in results.items() if "kinds" in result}
    tables = [_added(shifts), _by_statistic(shifts), _by_shift(shifts), _kinds(shifts), _kinds_by_seed(seeds)]
    tables.append(_false_alarms(fresh))
    findings = [*_false_alarm_findings(settings, fresh), *_seed_findings(seeds), *_findings(settings, shifts)]
    findings += _harm_findings(shifts)
    cells = list(_cells(shifts))
    figures = {"alarm-against-harm": draw_alarm_against_harm(cells), "strengths": draw_strengths(cells)}
    return Report(tables, findings, {name: one for name, one in figures.items() if one is not None})


def _cells(results: Results) -> Iterable[tuple[str, str, str, Mapping[str, Any]]]:
    """Task, shift, window size, and what was found."""
    for key, result in results.items():
        for shift, sizes in result["shifts"].items():
            for size, found in sizes.items():
                yield key, shift, size, found


def _added(results: Results) -> Table:
    names = [
        "monitor without the model",
        "monitor, all",
        "monitor, scores",
        "monitor, output",
        "monitor, conflict",
        "monitor, s_conf",
    ]
    rows: list[list[Any]] = []
    for shift in dict.fromkeys(shift for _, shift, _, _ in _cells(results)):
        cells = [found for _, own, _, found in _cells(results) if own == shift]
        values = [statistics.fmean(found["auroc"][name] for found in cells) for name in names]
        losses = [found["harm"] for found in cells if found["harm"] is not None]
        rows.append([shift, *values, values[1] - values[0], statistics.fmean(losses) if losses else None])
    if rows:
        known = [[row[place] for row in rows if row[place] is not None] for place in range(1, len(rows[0]))]
        rows.append(["mean", *(statistics.fmean(values) for values in known)])
    shown = [[row[0], *(None if value is None else round(value, 3) for value in row[1:])] for row in rows]
    columns = [
        "shift",
        "inputs, new values, correlations",
        "the whole monitor",
        "scores",
        "output",
        "conflict",
        "s_conf",
        "gain",
    ]
    note = "AUROC of clean against shifted windows, mean over tasks. Gain: the whole monitor minus what needs no model."
    return Table("added", "What scores, output and conflict add to inputs", [*columns, "loss of accuracy"], shown, note)


def _by_statistic(results: Results) -> Table:
    tasks = list(results)
    values: dict[str, dict[str, list[float]]] = {}
    for key, _, _, found in _cells(results):
        for name, value in found["auroc"].items():
            values.setdefault(name, {}).setdefault(key, []).append(value)
    rows = [
        [name, *(round(statistics.fmean(by[key]), 3) if key in by else None for key in tasks)] for name, by in values.items()
    ]
    note = "AUROC of clean against shifted windows, mean over shifts and window sizes. Ordinary tests need no variant."
    return Table("statistics", "What sees shifts", ["statistic", *tasks], rows, note)


def _by_shift(results: Results) -> Table:
    results = {key: result for key, result in results.items() if key.endswith("-default")}
    names = list(dict.fromkeys(name for _, _, _, found in _cells(results) for name in found["auroc"]))
    shifts = list(dict.fromkeys(shift for _, shift, _, _ in _cells(results)))
    rows = []
    for name in names:
        cells = [
            [found["auroc"][name] for _, own, _, found in _cells(results) if own == shift and name in found["auroc"]]
            for shift in shifts
        ]
        rows.append([name, *(round(statistics.fmean(values), 3) if values else None for values in cells)])
    return Table(
        "shifts",
        "By shift",
        ["statistic", *shifts],
        rows,
        "AUROC, mean over networks and window sizes; scores of the default variant.",
    )


def _kinds(results: Results) -> Table:
    rows = []
    for key, shift, size, found in _cells(results):
        harm = None if found["harm"] is None else round(found["harm"], 3)
        kind = None if found["kind"] is None else round(found["kind"], 2)
        alarms = [round(found[name], 2) for name in ("alarms", "alerts", "unknown")]
        lost = None if found["auc"] is None else round(found["auc"], 3)
        output = None if found["output"] is None else round(found["output"], 2)
        rows.append([key, shift, int(size), *alarms, kind, found["needed"], output, harm, lost])
    columns = ["task", "shift", "rows", "alarms", "alerts", "harm unknown", "right kind", "rows needed", "output moved"]
    columns += ["loss of accuracy", "loss of AUC"]
    note = (
        "Shares of windows; the output moved by so many standard deviations. An alert: the change matters to the model. Rows "
        "needed: the smallest of some window sizes at which nine of ten windows raise an alarm."
    )
    return Table("verdicts", "Alarms, kinds and harm", columns, rows, note)


def _kinds_by_seed(results: Results) -> Table:
    rows: list[list[Any]] = []
    for key, size, shift, said in _verdicts(results):
        others = Counter(one for one in said if one != KINDS[shift])
        shown = ", ".join(f"{one} ({count})" for one, count in others.most_common())
        lost = round(results[key]["correlation"], 2) if shift.startswith("pair") else None
        rows.append([key, shift, KINDS[shift], lost, int(size), len(said), said.count(KINDS[shift]), shown])
    note = (
        "Verdicts on one window per seed at full strength. A seed splits the rows into reference and window anew, fits a "
        "monitor, and draws what changes. The network is the same. Correlation: of the pair that is decoupled, before it is."
    )
    columns = ["task", "shift", "kind", "correlation", "rows", "seeds", "right", "other verdicts"]
    return Table("kinds", "Kinds by seed", columns, rows, note)


def _verdicts(results: Results) -> Iterable[tuple[str, str, str, list[str]]]:
    """Task, window size, shift, and the kind in the verdict of each seed."""
    for key, result in results.items():
        for shift in KINDS:
            for size, found in result["kinds"].items():
                if shift in found:
                    yield key, size, shift, found[shift]


def _seed_findings(results: Results) -> Iterable[Finding]:
    for shift, kind in KINDS.items():
        counts = {
            f"{key}, {size} rows": (said.count(kind), len(said)) for key, size, own, said in _verdicts(results) if own == shift
        }
        if counts:
            missed = [key for key, (right, seeds) in counts.items() if right < RIGHT * seeds]
            shown = "; ".join(f"{key} {right} of {seeds}" for key, (right, seeds) in counts.items())
            yield Finding(f"{shift}: the kind is {kind!r} in nine of ten seeds on every data set", not missed, f"{shown}.")


def _false_alarms(results: Results) -> Table:
    rows: list[list[Any]] = []
    for key, result in results.items():
        for size, counts in result["false alarms"].items():
            row: list[Any] = [key, int(size), counts["windows"]]
            for name in ALARMS:
                low, high = binomial_interval(counts[name], counts["windows"])
                row += [counts[name], f"{low:.3f} to {high:.3f}"]
            rows.append(row)
    columns = ["task", "rows", "windows", *(title for name in ALARMS for title in (name, f"{name}: 95 % interval"))]
    note = (
        "Windows share no row with each other or with the reference of their split. Rows come back in other splits, so the "
        "exact binomial intervals are slightly too narrow. Alarms: what verdicts report. p: the smallest of all p-values is "
        "below the stated rate, before and after the correction for their number."
    )
    return Table("false-alarms", "Alarms on windows without a shift", columns, rows, note)


def binomial_interval(count: int, total: int) -> tuple[float, float]:
    """The exact 95 % interval of a share (Clopper and Pearson), by bisection."""

    def tail(p: float, at_least: int) -> float:
        return sum(math.comb(total, k) * p**k * (1 - p) ** (total - k) for k in range(at_least, total + 1))

    def solve(wanted: float, at_least: int) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if tail(middle, at_least) < wanted else (low, middle)
        return (low + high) / 2

    return (0.0 if count == 0 else solve(0.025, count)), (1.0 if count == total else solve(0.975, count + 1))


def _false_alarm_findings(settings: Settings, results: Results) -> Iterable[Finding]:
    rate = settings["false_alarms"]
    counts = {f"{key}, {size} rows": found for key, result in results.items() for size, found in result["false alarms"].items()}
    for name in ALARMS:
        beyond = [where for where, found in counts.items() if binomial_interval(found[name], found["windows"])[0] > rate]
        shown = "; ".join(f"{where} {found[name]} of {found['windows']}" for where, found in counts.items())
        yield Finding(f"false alarms ({name}) within the stated rate of {rate:g}", not beyond, f"{shown}.")
        count, total = (sum(found[key] for found in counts.values()) for key in (name, "windows"))
        low, high = binomial_interval(count, total) if total else (0.0, 1.0)
        claim = f"false alarms ({name}) within the stated rate of {rate:g} on all data sets together"
        yield Finding(claim, low <= rate, f"{count} of {total}; interval {low:.3f} to {high:.3f}.")


def _harm_findings(results: Results) -> Iterable[Finding]:
    """Whether alarms and alerts find what makes predictions worse."""
    cells = [cell for cell in _cells(results) if cell[3]["harm"] is not None and cell[3]["harm"] >= HARM]
    for name in ("alarms", "alerts"):
        missed = [cell for cell in cells if cell[3][name] < RIGHT]
        shown = "; ".join(f"{key}, {shift}, {size} rows: {found[name]:.0%}" for key, shift, size, found in missed)
        claim = f"{name} in nine of ten windows wherever accuracy falls by at least {HARM:g}"
        numbers = f"In {len(cells) - len(missed)} of {len(cells)} cases. {f'Not: {shown}.' if missed else ''}"
        yield Finding(claim, not missed, numbers.strip())


def _variant_finding(results: Results) -> Iterable[Finding]:
    """Whether scores of the default variant see as much as those of feature netting, on the same networks."""
    means: dict[str, dict[str, float]] = {}
    for key in results:
        name, _, variant = key.rpartition("-")
        values = [found["auroc"]["monitor, scores"] for own, _, _, found in _cells(results) if own == key]
        if values:
            means.setdefault(name, {})[variant] = statistics.fmean(values)
    both = {name: by for name, by in means.items() if len(by) == 2}
    if both:
        shown = "; ".join(f"{name} {by['default']:.3f} and {by['feature']:.3f}" for name, by in both.items())
        good = all(by["default"] >= by["feature"] - 0.02 for by in both.values())
        claim = "scores of the default variant see shifts as well as those of feature netting (mean AUROC within .02)"
        yield Finding(claim, good, f"Default and feature netting: {shown}.")


def _findings(settings: Settings, results: Results) -> Iterable[Finding]:
    for shift, kind in KINDS.items():
        shares = {f"{key}, {size} rows": found["kind"] for key, own, size, found in _cells(results) if own == shift}
        if shares:
            good = sum(share >= RIGHT for share in shares.values())
            worst = min(shares, key=lambda name: shares[name])
            numbers = f"In {good} of {len(shares)} cases; lowest {shares[worst]:.2f} ({worst})."
            yield Finding(f"{shift}: the kind is {kind!r} in nine of ten windows", good == len(shares), numbers)
    worse = []
    for key, shift, size, found in _cells(results):
        best = max(found["auroc"].get(name, 0.0) for name in INPUTS)
        error = math.sqrt(max(best * (1 - best), 0.0025) / settings["count"])
        if found["auroc"]["monitor, all"] < best - 2 * error:
            worse.append(f"{key}, {shift}, {size} rows: {found['auroc']['monitor, all']:.2f} against {best:.2f}")
    yield from _variant_finding(results)
    claim = "the monitor as a whole sees every shift as well as the better of inputs and correlations (two standard errors)"
    yield Finding(claim, not worse, f"{'; '.join(worse) if worse else 'No exception'}.")
    quiet = [found for _, shift, _, found in _cells(results) if shift == "least important"]
    if quiet:
        alarms, alerts = (statistics.fmean(found[name] for found in quiet) for name in ("alarms", "alerts"))
        numbers = f"Alarms in {alarms:.0%}, alerts in {alerts:.0%} of the windows."
        yield Finding(
            "shuffling the least important columns raises alarms, but no alerts", alarms > 0.5 > 0.1 > alerts, numbers
        )
