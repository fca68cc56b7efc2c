"""Tables of the studies of the truth: every measure by network, the networks, and the runtimes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from .record import Report, Results, Settings, Table
from .truth_findings import findings, title
from .truth_losses import STANDARDISED, losses
from .truth_measures import MEASURES, by_set, find_measured, mean_of, runs

NOTE = (
    "Mean ± standard error over networks trained with different seeds, data sets averaged; where there is one, over its rows. "
    "The same rows, and the same draws, for all methods."
)


def report(settings: Settings, results: Results) -> Report:
    """A table per measure, one of the networks, and what the default has to reach."""
    known = [name for name in MEASURES if any(name in method for run in results.values() for method in run["methods"].values())]
    tables = [_networks(settings, results)]
    tables += [losses(settings, results)] if "infidelity" in known else []
    tables += [table for name in known for table in _tables(settings, results, name)]
    tables += [_times(settings, results)]
    return Report(tables, list(findings(settings, results, known)))


def _networks(settings: Settings, results: Results) -> Table:
    rows: list[list[Any]] = []
    for kind, names in settings["networks"].items():
        of_kind = {name: runs(settings, results, kind, name) for name in names}
        known = {name: found for name, found in of_kind.items() if found}
        if not known:
            rows.append([kind, ", ".join(names), 0, None, "left out: its package is not installed"])
            continue
        shown = ", ".join(name + _accuracy(found) for name, found in known.items())
        every = [run for found in known.values() for run in found]
        rows.append([kind, shown, len(every), min(run["rows"] for run in every), ""])
    columns = ["network", "data (accuracy)", "networks", "explained rows of each", "note"]
    return Table("networks", "The explained networks", columns, rows)


def _accuracy(found: Sequence[Any]) -> str:
    known = [run["accuracy"] for run in found if run["accuracy"] is not None]
    return f" ({statistics.fmean(known):.1%})" if known else ""


def _tables(settings: Settings, results: Results, name: str) -> Iterable[Table]:
    """The methods on all networks; those trained on standardised columns in a table of their own."""
    of = MEASURES[name]
    what = of.title + (", as a multiple of that of Integrated Gradients" if of.ratio else "")
    for apart in (False, True):
        kinds = [kind for kind in find_measured(settings, results) if kind.startswith(STANDARDISED) is apart]
        every = {kind: [_cell(settings, results, kind, one, name) for one in settings["methods"]] for kind in kinds}
        columns = {kind: cells for kind, cells in every.items() if any(cells)}
        rows = [list(row) for row in zip(map(title, settings["methods"]), *columns.values(), strict=True)]
        file, where = name.replace("_", "-") + ("-standardised" if apart else ""), ", standardised columns" if apart else ""
        head = ["method", *(kind.removeprefix(STANDARDISED) for kind in columns)]
        if columns:
            yield Table(file, f"{what}{where} ({of.best} is good)", head, [row for row in rows if any(row[1:])], NOTE)


def _cell(settings: Settings, results: Results, kind: str, method: str, name: str) -> str | None:
    known = by_set(settings, results, kind, method, name)
    if not known:
        return None
    mean, error = mean_of(list(known.values()))
    all_sets = sum(bool(runs(settings, results, kind, one)) for one in settings["networks"][kind])
    return f"{mean:.3f} ± {error:.2g}" + (f" ({len(known)} of {all_sets} data sets)" if len(known) < all_sets else "")


def _times(settings: Settings, results: Results) -> Table:
    kinds = find_measured(settings, results)
    rows = []
    for method in settings["methods"]:
        cells = []
        for kind in kinds:
            of_kind = [run for name in settings["networks"][kind] for run in runs(settings, results, kind, name)]
            seconds = [run["methods"][method]["seconds"] for run in of_kind if "seconds" in run["methods"].get(method, {})]
            cells.append(f"{statistics.fmean(seconds):.3g}" if seconds else None)
        rows.append([title(method), *cells])
    note = "Seconds for all explained rows, other work on the same machine: they say little about small differences."
    return Table("seconds", "Runtime", ["method", *kinds], rows, note)
