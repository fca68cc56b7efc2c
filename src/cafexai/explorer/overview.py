"""What all rows have in common, from the scores that were made in the background."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from .._inputs.table_values import word as cell_word
from ..plotting.row_lines import number
from .classes import classes_of
from .requests import word
from .scoring import Scoring
from .table import Table

FEATURES, SWARM, GROUPS, BINS = 20, 12, 10, 20


def overview(scoring: Scoring, output: int | None = None) -> dict[str, Any]:
    """Mean scores of every feature, and single rows for the most important ones: of the rows explained for one output."""
    shown = _output(scoring, output)
    names, up, down, sizes = _means(scoring, shown)
    order = np.argsort(-sizes, kind="stable")  # by mean |net|
    bars = [
        {"name": names[i], "exact": [up[i], down[i], up[i] - down[i]], "up": number(up[i]), "down": number(down[i])}
        | {"net": number(up[i] - down[i]), "size": number(sizes[i])}
        for i in order[:FEATURES].tolist()
    ]
    shares = scoring.columns["share"][: scoring.done]
    own = shares[scoring.explained[: len(shares)] == shown]
    return {
        **scoring.as_json(),
        "kind": scoring.kind,
        "outputs": _outputs(scoring),
        "output": shown,
        "bars": bars,
        "more": max(len(names) - FEATURES, 0),
        "swarm": _swarm(scoring, order[:SWARM].tolist(), shown),
        "shares": _counts(own),
        "mean": _mean(own),
    }


def _outputs(scoring: Scoring) -> list[dict[str, Any]]:
    """The outputs that rows are explained for, the most frequent first."""
    classes = classes_of(scoring.session)
    kind = getattr(scoring.session.cafe.model, "output_kind", "logit")
    names = scoring.session.output_names or ([f"the {kind} of {classes[1]!r}"] if classes else ["output"])
    ranked = sorted(scoring.sums.items(), key=lambda entry: (-entry[1].rows, entry[0]))
    return [{"place": place, "name": names[place], "rows": sums.rows} for place, sums in ranked]


def _output(scoring: Scoring, wanted: int | None) -> int:
    """The wanted output if rows are explained for it, else the most frequent one."""
    known = [one["place"] for one in _outputs(scoring)]
    return wanted if wanted is not None and wanted in known else known[0] if known else 0


def _means(scoring: Scoring, output: int) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    """By feature: mean positive, mean negative, mean |net| of the rows that are explained for one output."""
    sums = scoring.sums.get(output)
    if sums is None:
        return [], np.zeros(0), np.zeros(0), np.zeros(0)
    if scoring.kind == "text":
        words = list(sums.by_word)
        counted = np.array([sums.by_word[name] for name in words]).reshape(len(words), 4) / sums.rows
        return words, counted[:, 1], counted[:, 2], counted[:, 3]
    return list(scoring.names), sums.up / sums.rows, sums.down / sums.rows, sums.sizes / sums.rows


def _swarm(scoring: Scoring, wanted: list[int], output: int) -> list[dict[str, Any]]:
    """Net scores of the sampled rows, with the rank of the value of the feature from 0 to 1 where it has one."""
    kept = [(place, nets, values) for place, own, nets, values in list(scoring.kept) if own == output]
    found = []
    for i in wanted if kept and scoring.names else []:
        nets = [float(nets[i]) for _, nets, _ in kept]
        ranks: list[float | None] = [None] * len(kept)
        if all(values is not None for _, _, values in kept):
            own = np.array([values[i] for _, _, values in kept if values is not None])
            distinct = np.unique(own[~np.isnan(own)])
            if len(distinct) > 1:
                ranks = [None if np.isnan(one) else float(np.searchsorted(distinct, one) / (len(distinct) - 1)) for one in own]
        name = scoring.names[i]
        found.append(
            {
                "name": name,
                "nets": nets,
                "ranks": ranks,
                "places": [place for place, _, _ in kept],
                "category": name in scoring.categories,
            }
        )
    return found


def by_group(table: Table, scoring: Scoring, column: Any, cohort: np.ndarray | None = None) -> dict[str, Any]:
    """The mean share of conflict, for groups of rows by one column; of a cohort only."""
    name = word(column, table.names, "column")
    assert table.frame is not None
    places: Any = slice(scoring.done) if cohort is None else cohort[cohort < scoring.done]
    shares = scoring.columns["share"][places]
    values = table.frame[name].iloc[places]
    labels: list[str]
    if table.rows.data.kinds.get(name) == "number" and values.nunique() > GROUPS:
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        edges = np.unique(np.nanquantile(numbers, np.linspace(0, 1, 6)))
        codes = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, max(len(edges) - 2, 0))
        codes = np.where(np.isnan(numbers), -1, codes)
        labels = [f"{number(low)} to {number(high)}" for low, high in itertools.pairwise(edges)]
    else:
        codes, kinds = values.factorize(sort=True)
        counts = np.bincount(codes[codes >= 0], minlength=len(kinds))
        kept = np.sort(np.argsort(-counts, kind="stable")[:GROUPS])
        moved = np.full(len(kinds) + 1, -1)
        moved[kept] = np.arange(len(kept))
        codes, labels = moved[codes], [cell_word(kinds[i]) for i in kept]
    groups = []
    for place, label in enumerate(labels):
        own = shares[codes == place]
        if len(own):
            groups.append({"name": label, "rows": len(own), "exact": float(np.nanmean(own)), "told": _mean(own)})
    total = scoring.total if cohort is None else len(cohort)
    return {"column": name, "groups": groups, "covered": len(shares), "total": total}


def drift(first: Scoring, second: Scoring, output: int | None = None) -> dict[str, Any]:
    """The conflict of two files side by side, and the features whose influence on one output changed most."""
    found: dict[str, Any] = {"files": []}
    ends = _ends(np.concatenate([one.columns["share"][: one.done] for one in (first, second)]))
    for scoring in (first, second):
        own = scoring.columns["share"][: scoring.done]
        mean = _mean(own)
        found["files"].append({**scoring.as_json(), "mean": mean, **_counts(own, ends)})
    if first.done and second.done:
        shares = (first.columns["share"][: first.done], second.columns["share"][: second.done])
        found["apart"] = number(_apart(*shares))
        shown = _output(first, output)
        found["of"] = first.session.output_names[shown] if max(len(first.sums), len(second.sums)) > 1 else ""
        names, up, down, _ = _means(first, shown)
        known, more_up, more_down, _ = _means(second, shown)
        others = {name: (float(more_up[i]), float(more_down[i])) for i, name in enumerate(known)}
        moved = [(name, up[i], down[i], *others[name]) for i, name in enumerate(names) if name in others]
        moved.sort(key=lambda one: -(abs(one[3] - one[1]) + abs(one[4] - one[2])))
        found["moved"] = [
            {"name": name, "before": [number(a), number(b)], "after": [number(c), number(d)]} for name, a, b, c, d in moved[:10]
        ]
    return found


def _apart(one: np.ndarray, two: np.ndarray) -> float:
    """The largest distance of the two cumulated distributions (Kolmogorov and Smirnov's statistic)."""
    values = np.sort(np.concatenate([one, two]))
    ranks = [np.searchsorted(np.sort(part), values, side="right") / len(part) for part in (one, two)]
    return float(np.abs(ranks[0] - ranks[1]).max())


def _counts(shares: np.ndarray, ends: tuple[float, float] | None = None) -> dict[str, Any]:
    """How many rows have which share of conflict, between these ends or those of the rows."""
    own = shares[np.isfinite(shares)]
    low, high = ends if ends is not None else _ends(own)
    counts, _ = np.histogram(own, BINS, (low, high))
    return {"counts": counts.tolist(), "low": low, "high": high}


def _ends(shares: np.ndarray) -> tuple[float, float]:
    low, high = (float(shares.min()), float(shares.max())) if len(shares) else (0.0, 1.0)
    return (low, high) if high > low else (max(low - 0.01, 0.0), low + 0.01)


def _mean(shares: np.ndarray) -> str:
    return f"{100 * float(np.nanmean(shares)):.2f}\u00a0%" if len(shares) else ""
