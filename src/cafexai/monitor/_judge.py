"""From counts to a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ._bins import LEVELS, MISSING, NEW, Bins, Counts, Numbers
from ._reference import Reference, column_statistics, family_statistics, list_columns, pair_statistics
from ._statistics import correct, correlations, kolmogorov_smirnov, normal_p, smirnov_p, stability_index, wasserstein
from ._verdict import Effect, Moved, MovedPair, Verdict
from ._window import Window

CERTAIN = 0.01  # corrected p-values below it are named
LOST = 0.9  # a share of missing values that makes a column missing
FROZEN = 1e-12  # variance, in units of that of the reference, of a column that does not vary
MATTERS = 0.1  # standard deviations of the output that make an alert
WORSE = 0.02  # a loss of accuracy, beyond two standard errors, that makes an alert
DRAWS = 200  # bootstrap samples
NAMED = 3  # features or pairs in a sentence


def judge(reference: Reference, window: Window) -> Verdict:
    """Compare a window with the reference."""
    whole = reference.window
    values = family_statistics(reference.features, window, whole, reference.pair_noise)
    statistics = {family: (value, reference.limits[family]) for family, value in values.items()}
    alarms = {family: pair for family, pair in statistics.items() if pair[0] > pair[1]}
    columns = broken_columns(reference, window)
    moved, pairs = moved_columns(reference, window), moved_pairs(reference, window)
    output, conflict = (_effect(reference, window, place) for place in (-2, -1))
    accuracy = _accuracy(whole, window)
    kind = _kind(alarms, columns)
    severity = _severity(kind, output, columns, accuracy, window, "output" in alarms)
    found = Verdict(
        kind=kind,
        severity=severity,
        sentence="",
        rows=window.rows,
        alarms=alarms,
        statistics=statistics,
        moved=moved,
        pairs=pairs,
        output=output,
        conflict=conflict,
        columns=columns,
        ranking=_ranking(whole.sizes / whole.rows, window.sizes / window.rows),
        accuracy=accuracy,
        false_alarms=reference.false_alarms,
    )
    return Verdict(**{**vars(found), "sentence": _sentence(found, len(reference.features))})


def broken_columns(reference: Reference, window: Window) -> dict[str, str]:
    """Inputs that are missing, do not vary any more, or have values never seen before."""
    found = {}
    for place, feature in enumerate(reference.features):
        before, now = reference.window.counts[place], window.counts[place]
        shares = now / window.rows
        variance = window.products[place, place] / window.rows - (window.sums[place] / window.rows) ** 2
        usual = before.max() / reference.window.rows  # the share of the most frequent bin
        if shares[MISSING] >= LOST and before[MISSING] / reference.window.rows < LOST:
            found[feature] = "missing"
        elif variance < FROZEN and usual**window.rows < 1e-6:
            found[feature] = "frozen"
        elif shares[NEW] > reference.limits["new values"]:
            found[feature] = "new values"
    return found


def moved_columns(reference: Reference, window: Window) -> tuple[Moved, ...]:
    """Columns whose distribution changed for certain, the largest distance first."""
    whole, names = reference.window, list_columns(reference)
    distances = kolmogorov_smirnov(window.counts, whole.counts)
    p = correct(smirnov_p(column_statistics(window, whole)))
    found = []
    for place in np.argsort(-distances, kind="stable"):
        if p[place] < CERTAIN:
            one, two = window.counts[place], whole.counts[place]
            gap = float(wasserstein(reference.bins[place], one, two))
            kind, feature = names[place]
            found.append(Moved(kind, feature, float(distances[place]), float(p[place]), gap, stability_index(one, two)))
    return tuple(found)


def moved_pairs(reference: Reference, window: Window) -> tuple[MovedPair, ...]:
    """Pairs of inputs whose correlation changed for certain, the largest change first."""
    whole, count = reference.window, len(reference.features)
    rows, columns = np.triu_indices(count, 1)
    if not len(rows):
        return ()
    z = pair_statistics(window, whole, reference.pair_noise)[rows, columns]
    p = correct(normal_p(z))
    before, now = (correlations(part.sums, part.products, part.rows)[rows, columns] for part in (whole, window))
    order = [place for place in np.argsort(-np.abs(z), kind="stable") if p[place] < CERTAIN]
    names = reference.features
    return tuple(
        MovedPair(names[rows[one]], names[columns[one]], float(before[one]), float(now[one]), float(p[one])) for one in order
    )


def _effect(reference: Reference, window: Window, place: int) -> Effect:
    """Wasserstein's distance of one column in standard deviations of the reference."""
    bins, whole = reference.bins[place], reference.window.counts[place]
    spread = _spread(bins, whole)
    now = window.counts[place]
    drawn = np.random.default_rng(0).multinomial(window.rows, now / max(now.sum(), 1), DRAWS)
    sizes = wasserstein(bins, drawn, whole) / spread
    low, high = np.quantile(sizes, [0.05, 0.95])
    return Effect(float(wasserstein(bins, now, whole) / spread), float(low), float(high))


def _spread(bins: Bins, counts: Counts) -> float:
    """The standard deviation of a column, from its bins."""
    middles = np.concatenate([[0.0], np.cumsum(bins.widths())])
    shares = counts[:LEVELS] / max(counts[:LEVELS].sum(), 1)
    mean = (shares * middles).sum()
    return float(np.sqrt((shares * (middles - mean) ** 2).sum())) or 1.0


def _accuracy(whole: Window, window: Window) -> tuple[float, float] | None:
    if not whole.labelled or not window.labelled:
        return None
    return whole.right / whole.labelled, window.right / window.labelled


def _kind(alarms: Mapping[str, object], columns: Mapping[str, str]) -> str:
    """The most specific kind that fits."""
    if {"missing", "frozen"} & set(columns.values()):
        return "missing or frozen column"
    if "new values" in columns.values():
        return "new values"
    if "inputs" in alarms:
        return "covariate shift"
    if "correlations" in alarms:
        return "correlation shift"
    if "scores" in alarms:
        return "covariate shift"  # of several columns together: scores see what single columns and pairs do not
    return "output shift" if {"output", "conflict"} & set(alarms) else "none"


def _severity(
    kind: str, output: Effect, columns: Mapping[str, str], accuracy: tuple[float, float] | None, window: Window, moved: bool
) -> str:
    if accuracy is not None:
        error = np.sqrt(max(accuracy[1] * (1 - accuracy[1]), 1e-12) / window.labelled)
        if accuracy[0] - accuracy[1] > max(WORSE, 2 * error):
            return "alert"
    if kind == "none":
        return "none"
    lost = {"missing", "frozen"} & set(columns.values())
    return "alert" if lost or (moved and output.size >= MATTERS) else "warn"


def _ranking(before: Numbers, now: Numbers) -> float:
    """nDCG of the present order of features, with their former sizes as gains."""
    discount = 1 / np.log2(np.arange(2, len(before) + 2))
    best = (np.sort(before)[::-1] * discount).sum()
    return float((before[np.argsort(-now, kind="stable")] * discount).sum() / best) if best > 0 else 1.0


def _sentence(verdict: Verdict, features: int) -> str:
    """The verdict in one or two sentences."""
    parts = [_change(verdict)]
    if verdict.kind != "none":
        pushing = {one.feature for one in verdict.moved if one.kind in ("positive", "negative", "net")}
        if "output" in verdict.alarms:
            parts.append(f"the model's output moved by {verdict.output}")
        else:
            parts.append("the model's output did not move noticeably")
        parts.append(f"{len(pushing)} of {features} features push differently")
    if verdict.accuracy is not None:
        parts.append(f"accuracy is {verdict.accuracy[1]:.1%}, in the reference {verdict.accuracy[0]:.1%}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _change(verdict: Verdict) -> str:
    if verdict.kind == "none":
        return f"no change was found in {verdict.rows} rows"
    if verdict.columns:
        return "; ".join(_broken(what, names) for what, names in _by_value(verdict.columns).items())
    if verdict.kind == "correlation shift":
        pairs = [f"{_quote(one.first)} and {_quote(one.second)}" for one in verdict.pairs[:NAMED]]
        named = ", and ".join(pairs) if pairs else "some columns"
        return f"each input looks the same, but {named} no longer move together as before"
    inputs = [one.feature for one in verdict.moved if one.kind == "input"]
    if inputs:
        return f"{_list(inputs)} {'has' if len(inputs) == 1 else 'have'} other values than in the reference"
    if verdict.kind == "covariate shift":
        return "each input looks the same, but together they push the model differently"
    return "the inputs look the same"


def _broken(what: str, names: Sequence[str]) -> str:
    verb = "is" if len(names) == 1 else "are"
    words = {"missing": f"{verb} missing", "frozen": f"no longer {'varies' if len(names) == 1 else 'vary'}"}
    return f"{_list(names)} {words.get(what, ('has' if len(names) == 1 else 'have') + ' values never seen in the reference')}"


def _by_value(columns: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for feature, what in columns.items():
        found.setdefault(what, []).append(feature)
    return found


def _list(names: Sequence[str]) -> str:
    shown = [_quote(name) for name in names[:NAMED]]
    if len(names) > NAMED:
        return f"{', '.join(shown)} and {len(names) - NAMED} more columns"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _quote(name: str) -> str:
    return f"`{name}`"
