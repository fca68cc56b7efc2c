"""Tables and findings of the studies of the truth: every measure by network, and what the default has to reach."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .infidelity_deep_report import level
from .paper import METHOD_TITLES
from .record import Finding, Report, Results, Settings, Table
from .truth import DEEP, DEFAULT, EVALUATING, PUBLISHED, REFINED, RIVAL


@dataclass(frozen=True)
class Measure:
    """What tables call it, and which values are good; ``ratio``: shown as a multiple of that of Integrated Gradients."""

    title: str
    best: str
    ratio: bool = False


MEASURES = {
    "infidelity": Measure("Infidelity, normalised", "low", True),
    "infidelity_as_is": Measure("Infidelity as is", "low", True),
    "occlusion_correlation": Measure("Pearson's correlation with putting features (tokens, cells) away one at a time", "high"),
    "sign_agreement": Measure("Sign agreement with putting features (tokens, cells) away one at a time", "high"),
    "deletion": Measure("Deletion", "low"),
    "insertion": Measure("Insertion", "high"),
    "deletion_as_is": Measure("Deletion as is, in units of the logit", "low"),
    "insertion_as_is": Measure("Insertion as is, in units of the logit", "high"),
    "comprehensiveness": Measure("Comprehensiveness", "high"),
    "sufficiency": Measure("Sufficiency", "low"),
    "mask_correlation": Measure("Pearson's correlation with masking each token, mask token as baseline", "high"),
    "mask_sign": Measure("Sign agreement with masking each token, mask token as baseline", "high"),
}
AS_IS, NORMALISED = 1.5, 1.0  # times the infidelity of Integrated Gradients: what deep networks for tables may have
EQUAL = 5e-4  # differences below what tables show are none
TEXT = 0.8  # the correlation that a model of text has to reach
NOTE = (
    "Mean ± standard error over networks trained with different seeds, data sets averaged; where there is one, over its rows. "
    "The same rows, and the same draws, for all methods."
)


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


def reached(settings: Settings, results: Results) -> list[str]:
    """The networks that could be measured."""
    return [kind for kind in settings["networks"] if any(runs(settings, results, kind, name) for name in _sets(settings, kind))]


def _sets(settings: Settings, kind: str) -> list[str]:
    return list(settings["networks"][kind])


def compared(runs_of: Sequence[Any], method: str, measure: str, apart: bool = False) -> tuple[float, float] | None:
    """Mean and standard error of a measure on one network and data set, or of its distance to Integrated Gradients."""
    if method in EVALUATING:  # not asked for every seed
        runs_of = [run for run in runs_of if measure in run["methods"].get(method, {})]
    if not runs_of or any(measure not in run["methods"].get(method, {}) for run in runs_of):
        return None
    values, errors = [], []
    for run in runs_of:
        mean, error, ahead, unsure = run["methods"][method][measure]
        if MEASURES[measure].ratio:
            rival = run["methods"][RIVAL][measure][0]
            mean, error, ahead, unsure = mean / rival, unsure / rival, ahead / rival, unsure / rival
        values.append(ahead if apart else mean)
        errors.append(unsure if apart else error)
    return level(values) if len(values) > 1 else (values[0], errors[0])


def over_sets(
    settings: Settings, results: Results, kind: str, method: str, measure: str, apart: bool = False
) -> tuple[float, float] | None:
    """The same, mean over the data sets of a network; None if it is not known on all of them."""
    known = _by_set(settings, results, kind, method, measure, apart)
    if not known or len(known) < sum(bool(runs(settings, results, kind, name)) for name in _sets(settings, kind)):
        return None
    return _mean(known)


def _by_set(
    settings: Settings, results: Results, kind: str, method: str, measure: str, apart: bool = False
) -> list[tuple[float, float]]:
    found = [compared(runs(settings, results, kind, name), method, measure, apart) for name in _sets(settings, kind)]
    return [pair for pair in found if pair is not None]


def _mean(known: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return statistics.fmean(mean for mean, _ in known), math.sqrt(sum(error**2 for _, error in known)) / len(known)


def title(name: str) -> str:
    """A method as a reader wants it."""
    words, given, c = name.partition(" c=")
    if given:
        return f"CAFE, {', '.join(words.split())} (c = {c})"
    own = {DEFAULT: "CAFE, the default (c = 0.5)", PUBLISHED: "CAFE as published (c = 0.5)", REFINED: "CAFE, refine=20"}
    return own.get(name) or METHOD_TITLES[name]


def report(settings: Settings, results: Results) -> Report:
    """A table per measure, one of the networks, and what the default has to reach."""
    known = [name for name in MEASURES if any(name in method for run in results.values() for method in run["methods"].values())]
    tables = [_networks(settings, results), *(_table(settings, results, name) for name in known)]
    tables += [_times(settings, results)]
    return Report(tables, list(findings(settings, results, known)))


def _networks(settings: Settings, results: Results) -> Table:
    rows: list[list[Any]] = []
    for kind, name in families(settings):
        of_family = runs(settings, results, kind, name)
        if not of_family:
            rows.append([kind, name, 0, None, None, "left out: its package is not installed"])
            continue
        accuracies = [run["accuracy"] for run in of_family if run["accuracy"] is not None]
        accuracy = f"{statistics.fmean(accuracies):.1%}" if accuracies else None
        rows.append([kind, name, len(of_family), of_family[0]["rows"], accuracy, of_family[0]["way"]])
    columns = ["network", "data", "seeds", "explained rows", "accuracy", "what CAFE(model) uses"]
    return Table("networks", "The explained networks", columns, rows)


def _table(settings: Settings, results: Results, name: str) -> Table:
    kinds, of = reached(settings, results), MEASURES[name]
    rows = []
    for method in settings["methods"]:
        rows.append([title(method), *(_cell(settings, results, kind, method, name) for kind in kinds)])
    what = of.title + (", as a multiple of that of Integrated Gradients" if of.ratio else "")
    return Table(name.replace("_", "-"), f"{what} ({of.best} is good)", ["method", *kinds], rows, NOTE)


def _cell(settings: Settings, results: Results, kind: str, method: str, name: str) -> str | None:
    known = _by_set(settings, results, kind, method, name)
    if not known:
        return None
    mean, error = _mean(known)
    all_sets = sum(bool(runs(settings, results, kind, one)) for one in _sets(settings, kind))
    return f"{mean:.3f} ± {error:.2g}" + (f" ({len(known)} of {all_sets} data sets)" if len(known) < all_sets else "")


def _times(settings: Settings, results: Results) -> Table:
    kinds = reached(settings, results)
    rows = []
    for method in settings["methods"]:
        cells = []
        for kind in kinds:
            of_kind = [run for name in _sets(settings, kind) for run in runs(settings, results, kind, name)]
            seconds = [run["methods"][method]["seconds"] for run in of_kind if "seconds" in run["methods"].get(method, {})]
            cells.append(f"{statistics.fmean(seconds):.3g}" if seconds else None)
        rows.append([title(method), *cells])
    note = "Seconds for all explained rows, other work on the same machine: they say little about small differences."
    return Table("seconds", "Runtime", ["method", *kinds], rows, note)


def findings(settings: Settings, results: Results, known: Sequence[str]) -> Iterable[Finding]:
    """What the default has to reach, on the networks where it is not the published method."""
    kinds = reached(settings, results)
    shallow = [kind for kind in kinds if _shallow(settings, results, kind)]
    deep = [kind for kind in kinds if kind not in shallow]
    if shallow:
        yield _published(settings, results, shallow)
    for name in known:
        if not MEASURES[name].ratio and deep:
            yield _at_least(settings, results, deep, name)
    for name, limit in (("infidelity_as_is", AS_IS), ("infidelity", NORMALISED)):
        if name in known and deep:
            yield _at_most(settings, results, deep, name, limit)
    if "mask_correlation" in known:
        yield _text(settings, results, deep)
        yield from (_evaluated(settings, results, deep, name) for name in EVALUATING if name in settings["methods"])
    if deep and f"{DEEP} c=0" in settings["methods"]:
        yield from (_best_constant(settings, results, deep, name) for name in known if name in CHOSEN)


CHOSEN = ("infidelity_as_is", "occlusion_correlation")


def _shallow(settings: Settings, results: Results, kind: str) -> bool:
    """Results from before 0.2, when the default was the published method on shallow networks."""
    return all(run["way"].startswith("path") for name in _sets(settings, kind) for run in runs(settings, results, kind, name))


def _published(settings: Settings, results: Results, kinds: Sequence[str]) -> Finding:
    same = [run["published"] for kind in kinds for name in _sets(settings, kind) for run in runs(settings, results, kind, name)]
    return Finding(
        "on shallow networks the default gives the published scores bit for bit",
        all(same),
        f"So on {sum(same)} of {len(same)} networks ({', '.join(kinds)}).",
    )


def verdict(ahead: Sequence[tuple[float, float]]) -> bool | None:
    """Whether all are at least 0 (no, if one is below by more than two standard errors; else undecided)."""
    if any(mean < -max(2 * error, EQUAL) for mean, error in ahead):
        return False
    return True if all(mean >= -EQUAL for mean, _ in ahead) else None


def _at_least(settings: Settings, results: Results, kinds: Sequence[str], name: str) -> Finding:
    of, ahead, numbers = MEASURES[name], [], []
    for kind in kinds:
        found = [over_sets(settings, results, kind, method, name) for method in (DEFAULT, RIVAL)]
        apart = over_sets(settings, results, kind, DEFAULT, name, apart=True)
        if apart is None or found[0] is None or found[1] is None:
            continue
        sign = 1 if of.best == "high" else -1
        ahead.append((sign * apart[0], apart[1]))
        numbers.append(f"{kind} {found[0][0]:.3f} against {found[1][0]:.3f} (difference {apart[0]:+.3f} ± {apart[1]:.2g})")
    claim = f"{of.title}: the default at least as good as Integrated Gradients on every deep network"
    return Finding(claim, verdict(ahead) if ahead else None, "; ".join(numbers) + ".")


def _at_most(settings: Settings, results: Results, kinds: Sequence[str], name: str, limit: float) -> Finding:
    room, numbers = [], []
    for kind in kinds:
        found = over_sets(settings, results, kind, DEFAULT, name)
        if found is None:
            continue
        room.append((limit - found[0], found[1]))
        single = {one: compared(runs(settings, results, kind, one), DEFAULT, name) for one in _sets(settings, kind)}
        each = ", ".join(f"{one} {pair[0]:.2f}" for one, pair in single.items() if pair)
        published = over_sets(settings, results, kind, PUBLISHED, name)
        as_published = f"; as published {published[0]:.3g}" if published else ""
        numbers.append(f"{kind} {found[0]:.3f} ± {found[1]:.2g} ({each}{as_published})")
    claim = f"{MEASURES[name].title}: the default has at most {limit} times that of Integrated Gradients on every deep network"
    return Finding(claim, verdict(room) if room else None, "; ".join(numbers) + ".")


def _text(settings: Settings, results: Results, kinds: Sequence[str]) -> Finding:
    room, numbers = [], []
    for kind in kinds:
        for name in ("occlusion_correlation", "mask_correlation"):
            found = over_sets(settings, results, kind, DEFAULT, name)
            if found is not None:
                room.append((found[0] - TEXT, found[1]))
                numbers.append(f"{kind}, {'zero' if name[0] == 'o' else 'mask'} baseline {found[0]:.3f} ± {found[1]:.2g}")
    return Finding(f"the correlation with masking is at least {TEXT}", verdict(room), "; ".join(numbers) + ".")


def _evaluated(settings: Settings, results: Results, kinds: Sequence[str], method: str) -> Finding:
    """Whether a method that evaluates the model at masked sentences reaches it: how much can be asked of any."""
    found = {kind: over_sets(settings, results, kind, method, "mask_correlation") for kind in kinds}
    reached = {kind: pair for kind, pair in found.items() if pair is not None}
    numbers = "; ".join(f"{kind} {mean:.3f} ± {error:.2g}" for kind, (mean, error) in reached.items())
    claim = f"{title(method)}, 20 draws of masks or orders: the correlation with masking is at least {TEXT}"
    return Finding(claim, verdict([(mean - TEXT, error) for mean, error in reached.values()]), f"{numbers}.")


def _best_constant(settings: Settings, results: Results, kinds: Sequence[str], name: str) -> Finding:
    """Which c of the default is best on average."""
    names = {"0.5": DEFAULT} | {c: f"{DEEP} c={c}" for c in ("0", "0.25", "1") if f"{DEEP} c={c}" in settings["methods"]}
    means = {}
    for c, method in sorted(names.items()):
        cells = [over_sets(settings, results, kind, method, name) for kind in kinds]
        if all(cell is not None for cell in cells):
            means[c] = statistics.fmean(cell[0] for cell in cells if cell is not None)
    best = (max if MEASURES[name].best == "high" else min)(means, key=lambda c: means[c])
    shown = ", ".join(f"c = {c}: {mean:.3f}" for c, mean in means.items())
    return Finding(f"{MEASURES[name].title}: c = 0.5 is the best c of the default, mean over the deep networks", best == "0.5",
                   f"{shown}.")  # fmt: skip
