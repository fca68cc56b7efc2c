"""A comparison of methods as a picture and as a page of a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from ..metrics import METRICS
from ..plotting.figures import add_heading, figure, light, rows_down
from ..plotting.looks import points
from ..plotting.palette import NET, QUIET, UP
from ..reporting.notebook import table
from .result import HTML, Comparison, title

if TYPE_CHECKING:
    from ..plotting.picture import Picture

FAR = 30  # values that differ by more than this factor are shown on a logarithmic axis


def picture(comparison: Comparison) -> Picture:
    """A panel per metric and one for the seconds: bars from 0, or dots where the axis is logarithmic and has no 0."""
    metrics, methods = [*comparison.metrics, "seconds"], list(comparison.seconds)
    missing = [f"{method} cannot run: {reason}" for method, reason in comparison.reasons.items()]
    drawn = figure(2.2 + 2.7 * len(metrics), 1.9 + 0.36 * max(len(methods), 3) + 0.2 * len(missing))
    panels = drawn.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    for axes, metric in zip(panels, metrics, strict=True):
        _panel(axes, comparison, metric, methods)
    rows_down(panels[0], methods, 9)
    rows = f"{comparison.rows} row" + "s" * (comparison.rows > 1)
    best = "Blue: the best. Lines: standard errors. "
    add_heading(drawn, f"{len(methods)} methods on {rows}", "\n".join([best + "Dots: logarithmic axis.", *missing]))
    return drawn


def _panel(axes: Any, comparison: Comparison, metric: str, methods: list[str]) -> None:
    if metric == "seconds":
        sizes, errors = dict(comparison.seconds), {}
    else:
        known = [method for method in methods if metric in comparison.values[method]]
        sizes = {method: comparison.mean(method, metric) for method in known}
        errors = {method: comparison.standard_error(method, metric) for method in known}
    first = comparison.best(metric)[0]
    logarithmic = bool(sizes) and min(sizes.values()) > 0 and max(sizes.values()) > FAR * min(sizes.values())
    for place, method in enumerate(methods):
        if method not in sizes:
            continue
        size, error = sizes[method], errors.get(method, float("nan"))
        colour = UP if method in first else QUIET
        if logarithmic:
            low = min(error, 0.9 * size) if error == error else 0.0
            axes.errorbar(
                [size],
                [place],
                xerr=[[low], [error if error == error else 0.0]],
                fmt="o",
                color=colour,
                ecolor=NET,
                elinewidth=1,
            )
        else:
            axes.barh(
                place, size, 0.62, color=colour, xerr=error if error == error else None, error_kw={"lw": 1, "ecolor": NET}
            )
    if logarithmic:
        axes.set_xscale("log")
    light(axes)
    axes.tick_params(axis="x", labelsize=points(8))
    direction = METRICS[metric].best if metric in METRICS else "low" if metric == "seconds" else None
    said = {"low": "less is better", "high": "more is better"}.get(direction or "", "")
    axes.set_title(title(metric), fontsize=points(10))
    axes.set_xlabel(said, fontsize=points(8))


def page(comparison: Comparison) -> str:
    """The table of the comparison: the best in bold, the second best underlined."""
    lines = []
    for method in (method for method in comparison.methods if method in comparison.seconds):
        cells = [comparison.cell(method, metric, HTML) for metric in comparison.metrics]
        lines.append([escape(method), *cells, f"{comparison.seconds[method]:.3g}"])
    said = [f"{method} cannot run: {reason}" for method, reason in comparison.reasons.items()]
    said += [comparison.spread(), comparison.tested, *comparison.notes]
    return table(
        ["method", *map(title, comparison.metrics), "seconds"], lines, "Comparison of methods", [one for one in said if one]
    )
