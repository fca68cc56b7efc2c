"""What the studies of the truth find: what the default has to reach, and where it does not."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from . import truth_losses
from .published_numbers import METHOD_TITLES
from .record import Finding, Results, Settings
from .truth import BLOCKS, DEFAULT, EVALUATING, EXACT, FROZEN, MISSING, PUBLISHED, QUARTER, REFINED, RIVAL
from .truth_measures import MEASURES, Level, by_set, find_measured, over_sets

AS_IS, NORMALISED = 1.02, 1.0  # times the infidelity of Integrated Gradients: what the default may have
EQUAL = 5e-4  # differences below what tables show are none
MASKING = 0.8  # the correlation with masking that is asked for on texts
SHAPLEY = 0.9  # the correlation with Shapley values that is asked of explain_blocks on texts
GAIN, SHARE = 0.03, 0.8  # open beside frozen attention: correlation with putting away, error against Shapley values
CHOSEN = ("infidelity_as_is", "occlusion_correlation")  # c is judged by these


def title(name: str) -> str:
    """A method as a reader wants it."""
    name, *changes = name.split(" ")
    own = {DEFAULT: "CAFE, the default (c = 0.5)", PUBLISHED: "CAFE as published (c = 0.5)", REFINED: "CAFE, refine=20"}
    own |= {EXACT: "Shapley values, exact", BLOCKS: "CAFE, explain_blocks", MISSING: "CAFE, if_missing of explain_blocks"}
    base = "CAFE" if changes and name == DEFAULT else own.get(name) or METHOD_TITLES[name]
    return ", ".join([base, *(change.replace("c=", "c = ") for change in changes)])


def findings(settings: Settings, results: Results, known: Sequence[str]) -> Iterable[Finding]:
    """What the default has to reach on every network."""
    kinds = find_measured(settings, results)
    if "infidelity" in known:
        yield from truth_losses.findings(settings, results)
    for name in known:
        if not MEASURES[name].ratio:
            yield _at_least(settings, results, kinds, name)
    for name, limit in (("infidelity_as_is", AS_IS), ("infidelity", NORMALISED)):
        if name in known:
            yield _at_most(settings, results, kinds, name, limit)
    if FROZEN in settings["methods"] and "infidelity" not in known:
        yield _gain(settings, results, kinds)
        yield _nearer(settings, results, kinds)
    if "encoder" in settings:
        asked = [DEFAULT, *(name for name in EVALUATING if name in settings["methods"] and name != QUARTER[0])]
        yield from (_reaches(settings, results, kinds, name, "occlusion_correlation", MASKING) for name in asked)
        yield _reaches(settings, results, kinds, EXACT, "short_correlation", MASKING)
        yield _reaches(settings, results, kinds, BLOCKS, "shapley_correlation", SHAPLEY)
    if "cafe c=0.25" in settings["methods"] or "cafe c=0" in settings["methods"]:
        yield from (_best_constant(settings, results, kinds, DEFAULT, name) for name in known if name in CHOSEN)
    if QUARTER[0] in settings["methods"]:
        yield _best_constant(settings, results, kinds, BLOCKS, "shapley_correlation")
        yield _best_constant(settings, results, kinds, MISSING, "occlusion_correlation")


def verdict(ahead: Iterable[Level]) -> bool | None:
    """Whether all are at least 0 (no, if one is below by more than two standard errors; else undecided)."""
    ahead = list(ahead)
    if any(mean < -max(2 * error, EQUAL) for mean, error in ahead):
        return False
    return True if ahead and all(mean >= -EQUAL for mean, _ in ahead) else None


def _at_least(settings: Settings, results: Results, kinds: Sequence[str], name: str) -> Finding:
    of, ahead, numbers = MEASURES[name], [], []
    for kind in kinds:
        found = [over_sets(settings, results, kind, method, name) for method in (DEFAULT, RIVAL)]
        apart = over_sets(settings, results, kind, DEFAULT, name, apart=RIVAL)
        if apart is None or found[0] is None or found[1] is None:
            continue
        sign = 1 if of.best == "high" else -1
        ahead.append((sign * apart[0], apart[1]))
        numbers.append(f"{kind} {found[0][0]:.3f} against {found[1][0]:.3f} (difference {apart[0]:+.3f} ± {apart[1]:.2g})")
    claim = f"{of.title}: the default at least as good as Integrated Gradients on every network"
    return Finding(claim, verdict(ahead), "; ".join(numbers) + ".")


def _at_most(settings: Settings, results: Results, kinds: Sequence[str], name: str, limit: float) -> Finding:
    room, numbers = [], []
    for kind in kinds:
        found = over_sets(settings, results, kind, DEFAULT, name)
        if found is None:
            continue
        room.append((limit - found[0], found[1]))
        each = ", ".join(f"{one} {mean:.2f}" for one, (mean, _) in by_set(settings, results, kind, DEFAULT, name).items())
        published = over_sets(settings, results, kind, PUBLISHED, name)
        as_published = f"; as published {published[0]:.3g}" if published else ""
        numbers.append(f"{kind} {found[0]:.3f} ± {found[1]:.2g} ({each}{as_published})")
    claim = f"{MEASURES[name].title}: the default has at most {limit} times that of Integrated Gradients on every network"
    return Finding(claim, verdict(room), "; ".join(numbers) + ".")


def _reaches(settings: Settings, results: Results, kinds: Sequence[str], method: str, name: str, limit: float) -> Finding:
    """Whether a method reaches a limit on every network."""
    found = {kind: over_sets(settings, results, kind, method, name) for kind in kinds}
    known = {kind: pair for kind, pair in found.items() if pair is not None}
    numbers = "; ".join(f"{kind} {mean:.3f} ± {error:.2g}" for kind, (mean, error) in known.items())
    claim = f"{title(method)}: {MEASURES[name].title} is at least {limit} on every network"
    return Finding(claim, verdict((mean - limit, error) for mean, error in known.values()), f"{numbers}.")


def _gain(settings: Settings, results: Results, kinds: Sequence[str]) -> Finding:
    """Open beside frozen attention, row by row."""
    found = {kind: over_sets(settings, results, kind, DEFAULT, "occlusion_correlation", apart=FROZEN) for kind in kinds}
    known = {kind: pair for kind, pair in found.items() if pair is not None}
    holds = verdict((mean - GAIN, error) for mean, error in known.values())
    if holds and any(mean < 2 * error for mean, error in known.values()):
        holds = None
    numbers = "; ".join(f"{kind} {mean:+.3f} ± {error:.2g}" for kind, (mean, error) in known.items())
    claim = f"{MEASURES['occlusion_correlation'].title}: open attention gains at least {GAIN}, and two standard errors"
    return Finding(f"{claim}, on every network", holds, f"{numbers}.")


def _nearer(settings: Settings, results: Results, kinds: Sequence[str]) -> Finding:
    """The error against Shapley values, open beside frozen attention."""
    room, numbers = [], []
    for kind in kinds:
        pair = [over_sets(settings, results, kind, method, "shapley_rmse") for method in (DEFAULT, FROZEN)]
        apart = over_sets(settings, results, kind, DEFAULT, "shapley_rmse", apart=FROZEN)
        if pair[0] is not None and pair[1] is not None and apart is not None:
            share, error = pair[0][0] / pair[1][0], apart[1] / pair[1][0]
            room.append((SHARE - share, error))
            numbers.append(f"{kind} {pair[0][0]:.3f} of {pair[1][0]:.3f}, {share:.3f} ± {error:.2g}")
    claim = f"{MEASURES['shapley_rmse'].title}: open attention has at most {SHARE} of frozen attention on every network"
    return Finding(claim, verdict(room), "; ".join(numbers) + ".")


def _best_constant(settings: Settings, results: Results, kinds: Sequence[str], method: str, name: str) -> Finding:
    """Which c of a method is best on average."""
    others = {c: f"{method} c={c}" for c in ("0", "0.25", "1")}
    constants = {"0.5": method} | {c: other for c, other in others.items() if other in settings["methods"]}
    means = {}
    for c, own in sorted(constants.items()):
        cells = [over_sets(settings, results, kind, own, name) for kind in kinds]
        if all(cell is not None for cell in cells):
            means[c] = statistics.fmean(cell[0] for cell in cells if cell is not None)
    best = (max if MEASURES[name].best == "high" else min)(means, key=lambda c: means[c])
    shown = ", ".join(f"c = {c}: {mean:.3f}" for c, mean in means.items())
    of = {DEFAULT: "the default", BLOCKS: "explain_blocks", MISSING: "if_missing of explain_blocks"}[method]
    return Finding(f"{MEASURES[name].title}: c = 0.5 is the best c of {of}, mean over the networks", best == "0.5", f"{shown}.")
