"""The paper's qualitative comparison: every tick is the outcome of a test on random models, or of what a method offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from . import property_tests as general
from . import property_tests_conflicts as conflicts
from .property_tests import Outcome
from .published_numbers import METHOD_TITLES, paper
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace

RUNS: dict[str, Callable[[str, int, int], Outcome]] = {  # by the paper's names
    "Missingness": general.missingness,
    "Linearity": general.linearity,
    "Completeness": general.completeness,
    "Completeness in networks with biases (not in the paper)": general.completeness_with_biases,
    "Implementation invariance": general.implementation_invariance,
    "Exactly computable without sampling": general.without_sampling,
    "Handles phi(0) != 0 nonlinearities": conflicts.nonzero_at_zero,
    "Accepts reference input": general.reference,
    "Safeguards against attribution explosion": conflicts.no_explosion,
    "Considers conflicts": conflicts.considers_conflicts,
    "Local conflict awareness for ReLU": conflicts.local_awareness,
    "Adjustable conflict sensitivity": conflicts.adjustable,
    "Separates + and - feature attributions": conflicts.separates,
    "Captures effects of biases": general.captures_biases,
}
MARKS = {True: "✓", False: "✗", None: ""}


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per property: all methods are put to the same test."""
    for test in RUNS.values():

        def run(test: Callable[[str, int, int], Outcome] = test) -> Any:
            outcomes = {key: test(key, settings["models"], settings["seed"]) for key in settings["methods"]}
            return {key: {"holds": outcome.holds, "shown": outcome.shown} for key, outcome in outcomes.items()}

        yield Task(test.__name__, run)


def report(settings: Settings, results: Results) -> Report:
    """Our ticks beside the paper's, the numbers behind them, and where the two differ."""
    theirs = paper()["properties"]
    methods = settings["methods"]
    ticks, numbers, findings = [], [], []
    for title, test in RUNS.items():
        name = test.__name__
        cells = [title]
        differing, compared = [], 0
        for key in methods:
            ours = bool(results[name][key]["holds"])
            mark = theirs.get(key, {}).get(title)
            expected = None if mark is None else bool(mark)
            cells.append(MARKS[ours] if expected in (None, ours) else f"{MARKS[ours]} (paper {MARKS[expected]})")
            compared += expected is not None
            if expected not in (None, ours):
                differing.append(f"{METHOD_TITLES[key]}: ours {MARKS[ours]}, {results[name][key]['shown']}")
        ticks.append(cells)
        numbers.append([title, (test.__doc__ or "").rstrip("."), *(results[name][key]["shown"] for key in methods)])
        if compared:
            same = f"{compared - len(differing)} of {compared} ticks agree."
            findings.append(Finding(f"ticks for '{title}' as in the paper", not differing, " ".join([same, *differing])))
    titles = [METHOD_TITLES[key] for key in methods]
    note = f"Each tick holds on {settings['models']} random models. CAFE has c = 0, 0.5 and 1, for conflicts c = 1."
    return Report(
        [
            Table("properties", "Which method has which property", ["property", *titles], ticks, note),
            Table("evidence", "What the tests saw", ["property", "test", *titles], numbers),
        ],
        findings,
    )


METHODS = ["gradient_x_input", "lrp", "deeplift_rescale", "deeplift_revealcancel", "integrated_gradients", "cafe"]
PROPERTIES = Study(
    "properties",
    "the qualitative comparison of methods, by tests",
    "nothing",
    {
        "toy": {"methods": METHODS, "models": 3, "seed": 0},
        "quick": {"methods": METHODS, "models": 30, "seed": 0},
        "full": {"methods": METHODS, "models": 300, "seed": 0},
    },
    {"toy": "0.1", "quick": "0.5", "full": "10"},
    tasks,
    report,
)
