"""Tables and findings of the infidelity studies: our numbers beside the paper's, and the claims about their order."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Iterable
from typing import Any

from .methods import CAFES, FAST
from .paper_text_claims import text_findings
from .published_numbers import METHOD_TITLES, SAMPLING, figure_of_paper
from .record import Finding, Report, Results, Settings, Table, brief
from .variants import AUTHORS, Variant, kinds, own_settings

SIZES = ("small", "large")
SIZED = ("infidelity", "structural_infidelity")  # metrics with a small and a large perturbation
COMPARED = ("gradient_x_input", "deeplift_rescale", "integrated_gradients", *CAFES)  # the order of these is judged
OURS = "cafe c=0.5"
TITLES = {
    "infidelity": "Infidelity",
    "structural_infidelity": "Structural infidelity",
    "max_sensitivity": "Max-sensitivity",
    "complexity": "Complexity",
    "seconds": "Runtime in seconds",
}
FAMILIES = {"mlp": "MLPs", "ft": "FT-Transformers"}
FASTER = "every comparably fast method"
RIVALS = {
    FASTER: [key for key in FAST if key != "integrated_gradients"],
    "Integrated Gradients": ["integrated_gradients"],
    "DeepLIFT RevealCancel, which the paper could not run": ["deeplift_revealcancel"],
    "the sampling methods": list(SAMPLING),
}

Key = tuple[str, str, str]  # metric, column, method (or "one minus two")
Numbers = dict[Key, tuple[float, float]]  # mean and standard error
Limited = dict[tuple[str, str], int]  # data and method: how many rows, where not all


def pairs(methods: Iterable[str]) -> list[tuple[str, str]]:
    """Methods whose difference on the same rows and draws is kept: far sharper than the difference of two means."""
    known = list(methods)
    ordered = list(itertools.combinations([key for key in COMPARED if key in known], 2))
    rivals = [(key, OURS) for key in known if OURS in known and key != OURS]
    return ordered + [pair for pair in rivals if pair not in ordered and pair[::-1] not in ordered]


def report(settings: Settings, results: Results) -> Report:
    """A table per metric with the paper's figures, and the claims about levels and order."""
    ours = collect(settings, results)
    limited = {(name, key): rows for name in settings["data"] for key, rows in _of(name, results)[0]["limited"].items()}
    shown = [metric for metric in TITLES if any(key[0] == metric for key in ours)]
    tables = [_networks(settings, results), *(_table(metric, settings, ours, limited) for metric in shown)]
    findings = [*_levels(settings, ours), *_orders(settings, ours)]
    for metric in SIZED:
        findings += _claims(metric, settings, ours, limited)
    findings += [*_constants(settings, ours), *_nettings(settings, ours), *_robust(settings, ours), *_quick(settings, ours)]
    findings += text_findings(settings, ours, {name: _of(name, results) for name in settings["data"]})
    return Report(tables, findings)


def collect(settings: Settings, results: Results) -> Numbers:
    """Mean over the seeds, with its standard error: over rows (or units) for one seed, else over seeds."""
    ours: Numbers = {}
    for name in settings["data"]:
        runs = [{**result["methods"], **result["differences"]} for result in _of(name, results)]
        for key in runs[0]:
            for metric in runs[0][key]:
                values = [run[key][metric] for run in runs]
                means = [mean for mean, _ in values]
                error = values[0][1] if len(means) == 1 else statistics.stdev(means) / math.sqrt(len(means))
                kind, _, size = metric.partition(" ")
                ours[kind, f"{name} {size}".strip(), key] = (statistics.mean(means), error)
    return ours


def _theirs(table: str, key: str, column: str) -> float | None:
    """The paper's number; variants of our networks stand beside the same one."""
    return figure_of_paper(table, key, re.sub(r"@\S+", "", column))


def _of(name: str, results: Results) -> list[Any]:
    return [result for key, result in results.items() if key.rsplit("-", 1)[0] == name]


def _networks(settings: Settings, results: Results) -> Table:
    rows = []
    for name in settings["data"]:
        runs = _of(name, results)
        variant = Variant.of(name, settings["family"])
        given = variant.given
        accuracy = statistics.mean(run["accuracy"] for run in runs)
        trained = "OpenXAI's weights" if given else f"trained for {variant.epochs(own_settings(name, settings))} epochs"
        trained += f" at a rate of {variant.rate:g}" if variant.rate else ""
        rows.append([name, trained, None if given else runs[0]["train rows"], len(runs), runs[0]["rows"], f"{accuracy:.1%}"])
    note = ""
    if settings["family"] == "ft":
        token = {"cls": "[CLS]", "last": "the last token (as in the authors' code)"}[settings["head"]]
        lookup = {
            "product": "are multiplied by their embeddings, so that they have gradients",
            "argmax": "are looked up by their argmax as in the authors' code, so that gradients are 0 on them",
        }[settings["lookup"]]
        note = f"The head reads {token}; one-hot blocks {lookup}. @{AUTHORS}: the last token and argmax, as in their code."
    refusals: dict[str, list[str]] = {}
    for name in settings["data"]:
        if refused := _of(name, results)[0]["refused"]:
            refusals.setdefault(", ".join(METHOD_TITLES[key] for key in refused), []).append(name)
    for methods, names in refusals.items():
        note += f" {', '.join(names)}: without {methods}, which refuse these networks: the category that is looked up would be "
        note += "taken as a constant, and scores would not add up."
    columns = ["data", "networks", "training rows", "seeds", "test rows", "accuracy on them"]
    return Table("networks", "The explained networks", columns, rows, note)


def _columns(metric: str, settings: Settings) -> list[str]:
    sizes = SIZES if metric in SIZED else ("",)
    return [f"{name} {size}".strip() for name in settings["data"] for size in sizes]


def _table(metric: str, settings: Settings, ours: Numbers, limited: Limited) -> Table:
    family = settings["family"]
    columns = _columns(metric, settings)
    header = ["method", *(part for column in columns for part in (column, "paper", "difference"))]
    rows: list[list[Any]] = []
    for key in settings["methods"]:
        cells: list[Any] = [METHOD_TITLES[key]]
        for column in columns:
            mean, error = ours.get((metric, column, key), (None, 0.0))
            theirs = _theirs(f"{metric} {family}", key, column)
            apart = None if mean is None or not theirs else f"{mean / theirs - 1:+.1%}"
            star = "*" if (column.split()[0], key) in limited and metric != "structural_infidelity" else ""
            cells += [None if mean is None else f"{mean:.4g}{star} ± {brief(error, 2)}", theirs, apart]
        rows.append(cells)
    over = "the units" if metric == "structural_infidelity" else "the rows"
    note = f"Mean ± standard error over {over}, or over the seeds where there are several." if metric != "seconds" else (
        "Seconds for the test rows, one thread of a machine with other work on it; the paper's were taken on a graphics card."
    )  # fmt: skip
    if limited and metric != "structural_infidelity":
        counts = {
            rows: sorted({METHOD_TITLES[key] for (_, key), own in limited.items() if own == rows}) for rows in limited.values()
        }
        note += (
            " *: the first test rows only, " + "; ".join(f"{rows} for {', '.join(keys)}" for rows, keys in counts.items()) + "."
        )
    return Table(f"{metric}-{family}", f"{TITLES[metric]}, {FAMILIES[family]}", header, rows, note)


def _levels(settings: Settings, ours: Numbers) -> Iterable[Finding]:
    """The networks of OpenXAI are the paper's own: levels can be compared."""
    for name in settings["data"]:
        if not Variant.of(name, settings["family"]).given:
            continue
        apart = {}
        for key in COMPARED:
            for size in SIZES:
                column = f"{name} {size}"
                theirs = figure_of_paper("infidelity mlp", key, column)
                if theirs and ("infidelity", column, key) in ours:
                    apart[f"{METHOD_TITLES[key]}, {size}"] = ours["infidelity", column, key][0] / theirs - 1
        if apart:
            worst = max(apart, key=lambda k: abs(apart[k]))
            claim = f"infidelity on {name} within 15 % of the paper"
            yield Finding(claim, abs(apart[worst]) <= 0.15, f"Largest difference {apart[worst]:+.1%} ({worst}).")


def _difference(metric: str, column: str, one: str, two: str, ours: Numbers) -> tuple[float, float]:
    """Mean of one minus two over the same rows and draws, with its standard error."""
    if (found := ours.get((metric, column, f"{one} minus {two}"))) is not None:
        return found
    mean, error = ours[metric, column, f"{two} minus {one}"]
    return -mean, error


def _orders(settings: Settings, ours: Numbers) -> Iterable[Finding]:
    """Same order of methods as in the paper; differences below two standard errors, or none in the paper, are ties."""
    compared = [key for key in COMPARED if key in settings["methods"]]
    for name in settings["data"]:
        wrong, count, ties = [], 0, 0
        for size, (one, two) in itertools.product(SIZES, itertools.combinations(compared, 2)):
            column = f"{name} {size}"
            first, second = (_theirs(f"infidelity {settings['family']}", key, column) for key in (one, two))
            if first is None or second is None or not {("infidelity", column, key) for key in (one, two)} <= set(ours):
                continue
            apart, error = _difference("infidelity", column, one, two, ours)
            count += 1
            if abs(apart) <= 2 * error or first == second:
                ties += 1
            elif (apart < 0) != (first < second):
                wrong.append(
                    f"{METHOD_TITLES[one]} minus {METHOD_TITLES[two]} {brief(apart, 2, '+')} ± {brief(error, 1)} ({size})"
                )
        if count:
            numbers = f"{count} pairs, {ties} ties" + (
                f", {len(wrong)} the other way round: {'; '.join(wrong[:3])}." if wrong else "."
            )
            holds = None if ties == count else not wrong
            yield Finding(f"methods in the paper's order of infidelity on {name}", holds, numbers)


def _claims(metric: str, settings: Settings, ours: Numbers, limited: Limited) -> Iterable[Finding]:
    """CAFE 0.5 against its rivals; a rival must be better by more than two standard errors of the difference to count."""
    for (kind, data), rivals in itertools.product(kinds(settings["data"], settings["family"]).items(), RIVALS):
        known = {name: [key for key in RIVALS[rivals] if (metric, f"{name} large", key) in ours] for name in data}
        if not all(known.values()) or (metric, f"{data[0]} large", OURS) not in ours:
            continue
        verdicts = {name: _verdict(metric, name, known[name], ours, limited) for name in data}
        title = f"{TITLES[metric].lower()} of CAFE 0.5"
        if metric == "infidelity" and rivals == FASTER:
            for name, (holds, _, numbers) in verdicts.items():
                yield Finding(f"{title} on {name}: as low as that of {rivals}, or lower", holds, f"{numbers}.")
        good = [name for name, (holds, _, _) in verdicts.items() if holds]
        clear = sum(clearly for _, clearly, _ in verdicts.values())
        five_of_seven = settings["family"] == "ft" and rivals == FASTER  # the paper's claim for these networks
        where = "five sevenths of the data sets" if five_of_seven else "all data sets"
        where += kind
        worse = [f"{name}: {verdicts[name][2]}" for name in data if name not in good]
        count = f"On {len(good)} of {len(data)}, on {clear} of them lower by more than two standard errors"
        missing = {key for name in data for key in RIVALS[rivals] if ("infidelity", f"{name} large", key) not in ours}
        absent = missing & set(settings["methods"])
        without = [f"without {', '.join(sorted(METHOD_TITLES[key] for key in absent))}, see the networks"] if absent else []
        numbers = "; ".join([count, *without, *worse])
        enough = len(good) >= len(data) * (5 / 7 if five_of_seven else 1)
        yield Finding(f"{title} on {where}: as low as that of {rivals}, or lower", enough, f"{numbers}.")


def _constants(settings: Settings, ours: Numbers) -> Iterable[Finding]:
    """The paper: on real data CAFE 0.5 outperforms CAFE 1."""
    for kind, data in kinds(settings["data"], settings["family"]).items():
        columns = [f"{name} {size}" for name in data for size in SIZES]
        if not all(("infidelity", column, f"{OURS} minus {CAFES[-1]}") in ours for column in columns):
            continue
        apart = {column: _difference("infidelity", column, OURS, CAFES[-1], ours) for column in columns}
        lower = [column for column, (mean, _) in apart.items() if mean < 0]
        clear = [column for column, (mean, error) in apart.items() if mean < -2 * error]
        higher = [column for column, (mean, error) in apart.items() if mean > 2 * error]
        numbers = f"Lower in {len(lower)} of {len(columns)} columns, clearly in {len(clear)}; clearly higher in {len(higher)}"
        verdict = None if len(clear) == len(higher) else len(lower) > len(columns) / 2 and len(clear) > len(higher)
        where = f" ({', '.join(higher)})" if higher else ""
        yield Finding(f"infidelity: CAFE 0.5 below CAFE 1 in most columns{kind}", verdict, f"{numbers}{where}.")


def _nettings(settings: Settings, ours: Numbers) -> Iterable[Finding]:
    """Feature netting, which is ours, against the paper's CAFE 0.5 on the same rows and draws."""
    netted = "feature c=0.5"
    if not {OURS, netted} <= set(settings["methods"]):
        return
    lower, higher, numbers = [], [], []
    for column in _columns("infidelity", settings):
        apart, error = _difference("infidelity", column, netted, OURS, ours)
        lower += [column] if apart < -2 * error else []
        higher += [column] if apart > 2 * error else []
        numbers.append(
            f"{column} {ours['infidelity', column, netted][0]:.4g} against {ours['infidelity', column, OURS][0]:.4g}"
        )
    count = f"Lower in {len(lower)} of {len(numbers)} columns, higher in {len(higher)}, else within two standard errors"
    holds = None if not lower and not higher else not higher
    claim = "infidelity at c = 0.5: feature netting, which is ours, as low as path netting, or lower"
    yield Finding(claim, holds, f"{count}. {'; '.join(numbers)}.")


def _verdict(metric: str, name: str, known: list[str], ours: Numbers, limited: Limited) -> tuple[bool, bool, str]:
    """Under both perturbations: no method is better beyond two standard errors, all are worse beyond them, and the numbers.

    The numbers are those of the method that is better most clearly, or else of the one with the lowest mean.
    """
    holds, clear, numbers = True, True, []
    for size in SIZES:
        column = f"{name} {size}"
        apart = {key: _difference(metric, column, key, OURS, ours) for key in known}
        better = {key: mean / error for key, (mean, error) in apart.items() if mean < -2 * error and error}
        holds &= all(mean >= -2 * error for mean, error in apart.values())
        clear &= all(mean > 2 * error for mean, error in apart.values())
        lowest = min(known, key=lambda key: ours[metric, column, key][0])
        rival = min(better, key=lambda key: better[key]) if better else lowest
        own, other = ours[metric, column, OURS][0], ours[metric, column, rival][0]
        mean, error = apart[rival]
        fewer = f" on {limited[name, rival]} rows" if (name, rival) in limited and metric == "infidelity" else ""
        numbers.append(
            f"{own:.4g} against {other:.4g} ({METHOD_TITLES[rival]}, {size}; "
            f"difference {brief(mean, 2, '+')} ± {brief(error, 1)}{fewer})"
        )
    return holds, clear, ", ".join(numbers)


def _robust(settings: Settings, ours: Numbers) -> Iterable[Finding]:
    """The paper: CAFE 1 is the most robust fast method on MLPs; on FT-Transformers both are on four of seven data sets."""
    mlps = settings["family"] == "mlp"
    metric, rivals = "max_sensitivity", [key for key in RIVALS[FASTER] if key in settings["methods"]]
    for own, (kind, data) in itertools.product(
        CAFES[-1:] if mlps else CAFES[:0:-1], kinds(settings["data"], settings["family"]).items()
    ):
        if not rivals or (metric, data[0], own) not in ours:
            continue
        best, numbers = [], []
        for name in data:
            rival = min((key for key in rivals if (metric, name, key) in ours), key=lambda key: ours[metric, name, key][0])
            value, other = ours[metric, name, own][0], ours[metric, name, rival][0]
            best += [name] if value <= other else []
            numbers.append(f"{name} {value:.3g} against {other:.3g} ({METHOD_TITLES[rival]})")
        needed = len(data) * (1 if mlps else 4 / 7)
        where = "all" if mlps else "at least four sevenths of the"
        title = f"max-sensitivity of CAFE {own.removeprefix('cafe c=')}"
        claim = f"{title}: lowest among comparably fast methods on {where} data sets{kind}"
        yield Finding(claim, len(best) >= needed, f"On {len(best)} of {len(data)}: {'; '.join(numbers)}.")


def _quick(settings: Settings, ours: Numbers) -> Iterable[Finding]:
    """The paper: CAFE takes about as long as other gradient-based methods."""
    if not {"deeplift_rescale", OURS} <= set(settings["methods"]):
        return
    both = [name for name in settings["data"] if ("seconds", name, "deeplift_rescale") in ours]
    ratios = {name: ours["seconds", name, OURS][0] / ours["seconds", name, "deeplift_rescale"][0] for name in both}
    shown = ", ".join(f"{name} {ratio:.2g}" for name, ratio in ratios.items())
    yield Finding(
        "CAFE 0.5 takes less than five times as long as DeepLIFT Rescale", max(ratios.values()) < 5, f"Times: {shown}."
    )
