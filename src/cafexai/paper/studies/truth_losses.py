"""What the default gains and loses beside the published method: every measure as a change, by depth and scaling."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from .infidelity_deep_report import level
from .record import Finding, Results, Settings, Table
from .truth import APART, DEFAULT, PUBLISHED
from .truth_measures import MEASURES, Level, find_measured, mean_of, runs

STANDARDISED = "standardised "  # networks trained on standardised columns; all others on the paper's scaling
SINGLE = "openxai"  # the paper's own networks are shown one by one
COMPARED = ("infidelity_as_is", "infidelity", "shapley_distance", "shapley_top", "max_sensitivity")
NOTE = (
    "Change from the published method to the default, both at c = 0.5, network by network; the share of rows with the same top "
    "feature in points. Mean ± standard error over seeds, activations and data sets averaged; of a single network over its "
    "rows. Shapley values are exact, on data sets with few features."
)


def losses(settings: Settings, results: Results) -> Table:
    """The default beside the published method."""
    rows = []
    for title, members in groups(settings, results).items():
        rows.append([title, *(_cell(change(settings, results, members, measure), measure) for measure in COMPARED)])
    columns = ["networks", *(MEASURES[measure].title for measure in COMPARED)]
    return Table("losses", "The default compared with the published method", columns, rows, NOTE)


def groups(settings: Settings, results: Results) -> dict[str, list[tuple[str, str]]]:
    """Networks and data sets by what tables call them: both activations of a depth together."""
    found: dict[str, list[tuple[str, str]]] = {}
    for kind in find_measured(settings, results):
        for name in settings["networks"][kind]:
            title = f"{kind}, {name}" if kind == SINGLE else kind.removesuffix(" gelu")
            found.setdefault(title, []).append((kind, name))
    return found


def change(settings: Settings, results: Results, members: Sequence[tuple[str, str]], measure: str) -> Level | None:
    """Mean and standard error of the relative change (of shares: the change); None if it is not known."""
    known = []
    for kind, name in members:
        changes, error = [], 0.0
        for run in runs(settings, results, kind, name):
            pair = [run["methods"].get(method, {}).get(measure) for method in (DEFAULT, PUBLISHED)]
            if pair[0] is not None and pair[1] is not None:
                unit = 1 if measure == "shapley_top" else pair[1][0]
                changes.append((pair[0][0] - pair[1][0]) / unit)
                error = pair[0][2 * (1 + APART.index(PUBLISHED)) + 1] / unit
        if changes:
            known.append(level(changes) if len(changes) > 1 else (changes[0], error))
    return mean_of(known) if known else None


def _cell(found: Level | None, measure: str) -> str | None:
    if found is None:
        return None
    unit = " points" if measure == "shapley_top" else " %"
    error = f" ± {100 * found[1]:.2g}" if found[1] else ""
    return f"{100 * found[0]:+.1f}{unit}{error}"


def findings(settings: Settings, results: Results) -> Iterable[Finding]:
    """On which networks the default is at least as good as the published method."""
    for measure in COMPARED:
        sign = 1 if MEASURES[measure].best == "high" else -1
        changes = {title: change(settings, results, members, measure) for title, members in groups(settings, results).items()}
        known = {title: found for title, found in changes.items() if found is not None}
        if not known:
            continue
        worse = {title: found for title, found in known.items() if sign * found[0] < 0}
        lost = [title for title, (mean, error) in worse.items() if abs(mean) > 2 * error]
        shown = "; ".join(f"{title} {_cell(found, measure)}" for title, found in worse.items())
        middle = statistics.median(mean for mean, _ in known.values())
        numbers = f"Median change {_cell((middle, 0.0), measure)} over {len(known)} kinds of networks. "
        numbers += f"Worse on: {shown}." if worse else "Worse on none."
        claim = f"{MEASURES[measure].title}: the default at least as good as the published method on every kind of network"
        yield Finding(claim, False if lost else None if worse else True, numbers)
