"""What the model does if rows are changed: predicted beside observed, what-if curves, and scores over values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._inputs.table_values import is_date_column, is_missing
from ..explanation import Explanation
from .figures import add_heading, figure, light, rows_down
from .labels import labels, shorten
from .looks import points
from .palette import NET, QUIET, SERIES, UP, VALUES
from .row_lines import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .picture import Picture

LINES = 30  # rows of a what-if picture
NAMED = 8  # lines that have a name


def check_picture(check: Any) -> Picture:
    """A ``ChangeCheck``: bars of predicted and observed changes, one at a time on the left, cumulated on the right."""
    if not check.features:
        raise ValueError("check.plot(): no feature differs from the baseline, so there is nothing to show.")
    pairs = zip(labels(check.features, 30), check.values, strict=True)
    names = [f"{name} = {shorten(value, 18)}" if value else name for name, value in pairs]
    drawn = figure(11, 2.4 + 0.42 * len(names))
    left, right = drawn.subplots(1, 2, sharey=True)
    handles = _beside(left, names, check.predicted, check.observed, "Set to the baseline one at a time")
    _beside(right, names, check.predicted_together, check.observed_together, "Together with all above")
    right.tick_params(axis="y", labelleft=False)
    add_heading(drawn, f"Does the model do what the scores say? {check.row}, {check.target}", check.sentence, handles)
    return drawn


def _beside(axes: Axes, names: list[str], predicted: Any, observed: Any, title: str) -> list[Any]:
    places = np.arange(len(names))
    one = axes.barh(places - 0.19, predicted.tolist(), 0.36, color=UP, label="predicted by the scores")
    two = axes.barh(places + 0.19, observed.tolist(), 0.36, color=NET, label="observed change of the output")
    axes.axvline(0, color="0.4", linewidth=0.8)
    rows_down(axes, names)
    light(axes)
    axes.set_title(title, fontsize=points(11))
    axes.set_xlabel("change of the output")
    return [one, two]


def what_if_picture(curves: Any) -> Picture:
    """A ``WhatIf``: a line per row over a number, dots over categories, a mark where each row is."""
    rows = min(len(curves.outputs), LINES)
    drawn = figure(7.5, 4.6)
    axes = drawn.subplots()
    dates = is_date_column(curves.values)
    line = curves.is_number or dates
    across = days_of(curves.values).tolist() if dates else list(curves.values) if line else list(range(len(curves.values)))
    handles: list[Any] = []
    for row in range(rows):
        colour = SERIES[row % len(SERIES)] if rows <= NAMED else QUIET
        looks: dict[str, Any] = {"color": colour, "linewidth": 1.8 if rows <= NAMED else 0.8}
        looks |= {} if line else {"linestyle": ":", "marker": "o", "markersize": 5}
        name = f"row {row}" if curves.row_names is None else shorten(curves.row_names[row], 24)
        handles += axes.plot(across, curves.outputs[row].tolist(), label=name, **looks)
        own = curves.own_values[row]
        if dates:
            place = None if is_missing(own) else days_of([own])[0]
        else:
            place = own if line else curves.values.index(own) if own in curves.values else None
        if place is not None and place == place:
            axes.plot([place], [curves.own_outputs[row].item()], "D", color=colour, markeredgecolor="black", markersize=7)
    if dates:
        with_dates(axes.xaxis)
    if not line:
        axes.set_xticks(across, labels([str(value) for value in curves.values], 16), parse_math=False, rotation=30, ha="right")
    light(axes, "both")
    axes.set_xlabel(curves.feature, parse_math=False)
    axes.set_ylabel(curves.target, parse_math=False)
    more = f" ({len(curves.outputs) - rows} more rows not shown)" if len(curves.outputs) > rows else ""
    below = f"All other features stay as they are. A diamond marks the row as it is.{more}"
    add_heading(drawn, f"What if {shorten(curves.feature, 40)} were different?", below, handles if 1 < rows <= NAMED else [], 4)
    return drawn


def dependence(explanation: Explanation, feature: str, color: str | None = None) -> Picture:
    """Net scores of a feature over its values, one dot per row, coloured by the value of another feature."""
    names = list(explanation.names())
    for what, name in (("feature", feature), ("color", color)):
        if name is not None and name not in names:
            known = f"{', '.join(names[:20])}{' ...' * (len(names) > 20)}"
            raise ValueError(f"plot.dependence({what}={name!r}): there is no such feature. Features: {known}.")
    if explanation.kind != "table" or explanation.values() is None:
        raise ValueError("plot.dependence(...): it shows features with a value each, the columns of a table.")
    values = explanation.flat(explanation.shown).double().cpu().numpy()
    nets = explanation.flat(explanation.combined).double().cpu().numpy()[:, names.index(feature)]
    drawn = figure(7.8, 4.8)
    axes = drawn.subplots()
    axes.axhline(0, color="0.4", linewidth=0.8)
    words = explanation.features.categories.get(feature)
    own, dates = values[:, names.index(feature)], words is not None and is_date_column(words)
    missing = np.isnan(own)
    if words is not None and dates:
        own = _at_days(own, words)
    spread = np.random.default_rng(0).uniform(-0.18, 0.18, len(own)) if words is not None and not dates else 0.0
    _dots(axes, own + spread, nets, explanation, color, values, names)
    if dates:
        with_dates(axes.xaxis)
    else:
        _ticks(axes, own, words, missing)
    told = " Dashed: the value at the baseline." if _mark_baseline(axes, explanation, feature, words) else ""
    light(axes, "y")
    axes.set_xlabel(feature, parse_math=False)
    axes.set_ylabel(f"net score of {shorten(feature, 30)}", parse_math=False)
    gone = f" {int(missing.sum())} rows in which it is missing are not shown." if missing.any() else ""
    below = f"One dot per row.{told}{gone}"
    add_heading(drawn, f"What {shorten(feature, 30)} does to {explanation.target_name()}", below)
    return drawn


def _dots(
    axes: Axes, across: np.ndarray, nets: np.ndarray, e: Explanation, color: str | None, values: np.ndarray, names: list[str]
) -> None:
    if color is None:
        axes.scatter(across, nets, s=16, color=UP, alpha=0.7, linewidths=0)
        return
    shade = values[:, names.index(color)]
    words = e.features.categories.get(color)
    dates = words is not None and is_date_column(words)
    if words is None or dates:
        shade = shade if words is None else _at_days(shade, words)
        drawn = axes.scatter(across, nets, s=16, c=shade, cmap=VALUES, alpha=0.85, linewidths=0)
        assert axes.figure is not None
        bar = axes.figure.colorbar(drawn, ax=axes, aspect=30, pad=0.02)
        bar.set_label(color, parse_math=False)
        if dates:
            with_dates(bar.ax.yaxis)
        bar.outline.set_visible(False)
        return
    codes, counts = np.unique(shade[~np.isnan(shade)].astype(int), return_counts=True)
    shown = codes if len(codes) <= len(SERIES) else np.sort(codes[np.argsort(-counts, kind="stable")[: len(SERIES) - 1]])
    looks: dict[str, Any] = {"s": 16, "alpha": 0.8, "linewidths": 0}
    rest = ~np.isin(shade, shown)  # what is missing, too
    if rest.any():
        axes.scatter(across[rest], nets[rest], color=QUIET, label="others" if len(shown) < len(codes) else "missing", **looks)
    for place, code in enumerate(shown.tolist()):
        here = shade == code
        axes.scatter(across[here], nets[here], color=SERIES[place], label=shorten(words[code], 24), **looks)
    legend = axes.legend(title=color, frameon=False, fontsize=points(8), loc="center left", bbox_to_anchor=(1.0, 0.5))
    legend.get_title().set_parse_math(False)


def days_of(dates: Sequence[Any]) -> np.ndarray:
    """Dates as the numbers that matplotlib has for them."""
    from matplotlib.dates import date2num

    return np.asarray(date2num(np.array([np.datetime64(str(date)) for date in dates]).astype("datetime64[s]")))


def with_dates(axis: Any) -> None:
    """Numbers of days along an axis are written as dates."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    place = AutoDateLocator(maxticks=8)
    axis.set_major_locator(place)
    axis.set_major_formatter(ConciseDateFormatter(place))


def _at_days(codes: np.ndarray, words: Sequence[str]) -> np.ndarray:
    """Codes of dates as days; NaN stays NaN."""
    there = np.isfinite(codes) & (codes >= 0)
    return np.where(there, days_of(words)[np.where(there, codes, 0).astype(int)], np.nan)


def _ticks(axes: Axes, own: np.ndarray, words: tuple[str, ...] | None, missing: np.ndarray) -> None:
    if words is not None:
        codes = np.unique(own[~missing]).astype(int).tolist()
        named = labels([words[code] for code in codes], 16)
        axes.set_xticks(codes, named, parse_math=False, rotation=30 if len(codes) > 5 else 0)


def _mark_baseline(axes: Axes, e: Explanation, feature: str, words: tuple[str, ...] | None) -> bool:
    """A line at the baseline, if all rows have the same."""
    starts = e.features.baseline_display
    if e.meta.settings.get("baselines", 1) != 1 or (starts is None and (e.grouped or e.features.display is not None)):
        return False
    column = (e.flat(e.baselines) if starts is None else starts)[:, list(e.names()).index(feature)].double()
    first = column[0].item()
    same = bool((column == first).all()) and np.isfinite(first) and (words is None or 0 <= first < len(words))
    if same:
        place = days_of(words)[int(first)] if words is not None and is_date_column(words) else first
        axes.axvline(place, color=NET, linewidth=1, linestyle="--", zorder=0)
        told = f"baseline {number(first) if words is None else words[int(first)]}"
        axes.annotate(told, (place, 1), (3, -2), fontsize=points(8),
            xycoords=("data", "axes fraction"), textcoords="offset points", va="top", parse_math=False)  # fmt: skip
    return same
