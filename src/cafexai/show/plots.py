"""One explanation as a picture: what pushed the output up, what down, and how it adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._extras import needs
from ..explanation import Explanation
from .lines import Line, aligned, bias_line, feature_lines, number
from .text import shortened, target_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UP, DOWN, NET = "#0072B2", "#D55E00", "#1A1A1A"  # blue and vermilion are told apart with any colour vision
THICK = 0.62  # of a bar


def bars(explanation: Explanation, most: int = 12) -> Figure:
    """The explanation of one row: scores of both signs on the left, on the right the nets from baseline to output."""
    figure_class = needs("matplotlib.figure", "plot").Figure
    lines = [*feature_lines(explanation, most), bias_line(explanation)]
    start, end = explanation.baseline_output.item(), explanation.output.item()
    conflict = explanation.conflict.item()
    figure: Figure = figure_class(figsize=(11, 2.5 + 0.33 * len(lines)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.15, 1))
    handles = _scores(left, lines)
    _walk(right, lines, start, end)
    for axes in (left, right):
        _clean(axes, len(lines))
    target = target_name(explanation)
    figure.suptitle(
        f"{target[0].upper()}{target[1:]}: {number(start)} at the baseline, {number(end)} here.  Conflict: {number(conflict)}",
        fontsize=13,
        fontweight="bold",
    )
    meaning = (
        f"Conflict: influence of the features in both directions that cancelled out ({number(conflict)}). "
        f"Bias: the constants inside the model. c = {explanation.settings.get('c')}."
    )
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=3,
        frameon=False,
        title="\n".join([meaning, *explanation.notes]),
        title_fontsize=9,
    )
    return figure


def _scores(axes: Axes, lines: list[Line]) -> list[Any]:
    """Positive to the right, negative to the left, the net as a mark; what the legend shows is returned."""
    places = range(len(lines))
    down = axes.barh(places, [-line.negative for line in lines], THICK, color=DOWN, label="negative: pushes the output down")
    up = axes.barh(places, [line.positive for line in lines], THICK, color=UP, label="positive: pushes the output up")
    nets = [line.net for line in lines]
    net = axes.plot(nets, places, "D", color=NET, markeredgecolor="white", label="net: positive - negative")
    axes.axvline(0, color="0.4", linewidth=0.8)
    axes.set_yticks(places, [_label(line) for line in lines], parse_math=False)  # a "$" in a name is a "$"
    axes.set_title("What each feature did", fontsize=11)
    axes.set_xlabel("influence on the output")
    _clip(axes, lines)
    return [down, up, *net]


def _clip(axes: Axes, lines: list[Line]) -> None:
    """Keep single features visible beside long sums: bars that leave the picture carry their number."""
    reach = 1.3 * max(max(line.positive, line.negative) for line in lines if line.single)
    if not 0 < 3 * reach < max(max(line.positive, line.negative) for line in lines):
        return
    axes.set_xlim(-reach, reach)
    for place, line in enumerate(lines):
        if line.positive > reach:
            axes.text(0.98 * reach, place, f"{number(line.positive)} →", color="white", ha="right", va="center", fontsize=9)
        if line.negative > reach:
            axes.text(-0.98 * reach, place, f"← {number(line.negative)}", color="white", va="center", fontsize=9)


def _walk(axes: Axes, lines: list[Line], start: float, end: float) -> None:
    """The nets laid end to end."""
    before = start
    axes.plot([start, start], [-0.55, 0], color="0.5", linewidth=0.8)
    for place, (line, label) in enumerate(zip(lines, aligned([line.net for line in lines], 3, "+"), strict=True)):
        after = before + line.net
        axes.barh(place, line.net, THICK, left=before, color=UP if line.net > 0 else DOWN)
        axes.plot([after, after], [place, min(place + 1, len(lines) - 0.45)], color="0.5", linewidth=0.8)
        axes.annotate(label, (max(before, after), place), (4, 0), textcoords="offset points", va="center", fontsize=9)
        before = after
    axes.text(start, -0.6, f"baseline output {number(start)}", ha="center", va="bottom")
    axes.text(end, len(lines) - 0.4, f"output {number(end)}", ha="center", va="top", fontweight="bold")
    axes.use_sticky_edges = False
    axes.margins(x=0.18)  # room for the labels
    axes.tick_params(axis="y", labelleft=False)
    axes.set_title("How the nets add up to the output", fontsize=11)
    axes.set_xlabel("output")


def _clean(axes: Axes, count: int) -> None:
    """The first line on top, the bias apart, a light grid."""
    axes.set_ylim(count + 0.05, -1.05)
    axes.axhline(count - 1.5, color="0.6", linewidth=0.8)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _label(line: Line) -> str:
    name = shortened(line.name, 30)
    return f"{name} = {line.value}" if line.value else name
