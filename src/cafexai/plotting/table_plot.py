"""One row of a table as a picture: what pushed the output up, what down, and how it adds up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..explanation import Explanation
from .conflict_words import conflict_sentence
from .figures import add_heading, figure, light, rows_down
from .labels import labels, probability, shorten, with_c
from .looks import current, points
from .palette import DOWN, NET, PALE_DOWN, PALE_UP, UP
from .rounding import Shown, ShownLine, in_digits, round_explanation
from .row_lines import Line, baseline_lines, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .picture import Picture

THICK = 0.62  # of a bar


def bars(explanation: Explanation, most: int = 12, order: str = "net") -> Picture:
    """The explanation of one row: scores of both signs on the left, on the right the nets from baseline to output."""
    row = round_explanation(explanation, most, order=order)
    said = f"Bias: the constants inside the model. {with_c(explanation)}."
    meaning = f"{describe_conflict(row)} {said}".strip()
    axis = current().ax
    if axis is not None:
        handles = _one_sided(axis, row, "")
        axis.set_title(headline(explanation, row).split("\n")[0], fontsize=points(10), parse_math=False)
        axis.legend(handles=handles, fontsize=points(8), frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16))
        return axis.figure  # type: ignore[return-value]
    drawn, handles = two_sided(row, explanation.baseline_output.item(), ("What each feature did", "output"))
    add_heading(
        drawn, headline(explanation, row), "\n".join([meaning, *baseline_lines(explanation), *explanation.notes]), handles
    )
    return drawn


def biases(explanation: Explanation, most: int = 12) -> Picture:
    """What the constants of every layer did to one row."""
    if not explanation.bias_by_layer:
        inside = explanation.meta.settings.get("biases") == "reference"
        reason = "they are part of the reference in this variant" if inside else "the model has none"
        use = 'Use CAFE(model, variant="default", biases="scores").'
        raise ValueError(f"plot.biases(): no bias has a score, as {reason}. {use}")
    found = [(name, *scores[0].double().tolist()) for name, scores in explanation.bias_by_layer.items()]
    found.sort(key=lambda layer: -layer[1] - layer[2])
    lines = [Line(f"layer {name}" if name else "the model", "", up, down, net, True) for name, up, down, net in found[:most]]
    if rest := found[most:]:
        up, down, net = (sum(layer[k] for layer in rest) for k in (1, 2, 3))
        lines.append(Line(f"{len(rest)} other{'s' * (len(rest) > 1)}", "", up, down, net))
    end = explanation.bias.item()
    row = in_digits(lines, 0.0, end)
    drawn, handles = two_sided(row, 0.0, ("What the constants of each layer did", "bias"))
    times = f" {row.times}" if row.times else ""
    add_heading(drawn, f"The biases in {explanation.target_name()}: {row.end}{times}", "", handles)
    return drawn


def headline(explanation: Explanation, row: Shown) -> str:
    """What is explained, from where to where, and how much was cancelled."""
    target, chance, times = explanation.target_name(), probability(explanation), f" ({row.times})" if row.times else ""
    target = f"{target[0].upper()}{target[1:]}"
    called = "" if explanation.row_names is None else f"{shorten(explanation.row_names[0], 40)}: "
    words = f"{called}{target}: {row.start} at the baseline, {row.end} here{times}"
    conflict = "" if row.between is None else f"\nConflict between features: {row.between.short}"
    return f"{words}{f' ({chance})' if chance else ''}{conflict}"


def describe_conflict(row: Shown) -> str:
    """The sentence on the conflict of a row, if it is known."""
    return "" if row.between is None else conflict_sentence(row.between)


def two_sided(row: Shown, start: float, titles: tuple[str, str]) -> tuple[Picture, list[Any]]:
    """Bars of both signs, and the walk of the nets from start to end; what the legend shows is returned too."""
    lines = row.lines
    if current().paper:  # in a column the bars alone
        drawn = figure(4.7, 2.7 + 0.33 * len(lines))
        left, right = drawn.subplots(), None
    else:
        drawn = figure(11, 2.5 + 0.33 * len(lines))
        left, right = drawn.subplots(1, 2, sharey=True, width_ratios=(1.15, 1))
    handles = _one_sided(left, row, titles[0])
    if right is not None:
        _walk(right, row, start, titles[1])
        _frame(right, row)
    return drawn, handles


def _one_sided(axes: Axes, row: Shown, title: str) -> list[Any]:
    """The bars of both signs with their names; what the legend shows is returned."""
    names = labels([line.name for line in row.lines], 34)
    rows_down(axes, [_label(name, line) for name, line in zip(names, row.lines, strict=True)])
    handles = _scores(axes, [line.exact for line in row.lines], title)
    _frame(axes, row)
    return handles


def _frame(axes: Axes, row: Shown) -> None:
    """Room above and below, a light grid, and a line above the biases."""
    lines = row.lines
    axes.set_ylim(len(lines) + 0.05, -1.05)
    light(axes)
    if lines[-1].name == "bias" and not lines[-1].exact.single:
        axes.axhline(len(lines) - 1.5, color="0.6", linewidth=0.8)


def _label(name: str, line: ShownLine) -> str:
    """A feature with its value; that it is as in the baseline, if so."""
    words = f"{name} = {shorten(line.value, 22)}" if line.value else name
    return f"{words} (as in the baseline)" if line.exact.same and line.exact.single else words


def _scores(axes: Axes, lines: Sequence[Line], title: str) -> list[Any]:
    """Positive to the right, negative to the left, the net as a mark; what the legend shows is returned."""
    places = range(len(lines))
    ups, downs = (
        [single if line.single or line.name == "bias" else many for line in lines]
        for single, many in ((UP, PALE_UP), (DOWN, PALE_DOWN))
    )
    down = axes.barh(places, [-line.negative for line in lines], THICK, color=downs, label="negative: pushes the output down")
    up = axes.barh(places, [line.positive for line in lines], THICK, color=ups, label="positive: pushes the output up")
    nets = [line.net for line in lines]
    net = axes.plot(nets, places, "D", color=NET, markeredgecolor="white", label="net: positive - negative", linestyle="none")
    axes.axvline(0, color="0.4", linewidth=0.8)
    axes.set_title(title, fontsize=points(11))
    axes.set_xlabel("influence on the output")
    _clip(axes, lines)
    return [down, up, *net]


def _clip(axes: Axes, lines: Sequence[Line]) -> None:
    """Keep single features visible: sums of many, and biases far longer than they are, leave the picture with their number."""
    longest = max((max(line.positive, line.negative) for line in lines if line.single), default=0.0)
    others = max((max(line.positive, line.negative) for line in lines if not line.single and line.name != "bias"), default=0.0)
    bias = max((max(line.positive, line.negative) for line in lines if line.name == "bias"), default=0.0)
    reach = 1.1 * (max(longest, bias) if bias < 3 * longest else 1.2 * longest)
    if not 0 < reach < max(others, bias):
        return
    axes.set_xlim(-reach, reach)
    for place, line in enumerate(lines):
        looks: dict[str, Any] = {"color": "white" if line.name == "bias" else "black", "va": "center", "fontsize": points(9)}
        if line.positive > reach:
            axes.text(0.98 * reach, place, f"{number(line.positive)} →", ha="right", **looks)
        if line.negative > reach:
            axes.text(-0.98 * reach, place, f"← {number(line.negative)}", **looks)


def _walk(axes: Axes, row: Shown, start: float, what: str) -> None:
    """The nets laid end to end."""
    before, lines = start, row.lines
    axes.plot([start, start], [-0.55, 0], color="0.5", linewidth=0.8)
    for place, line in enumerate(lines):
        net = line.exact.net
        after = before + net
        colours = (UP, DOWN) if line.exact.single or line.name == "bias" else (PALE_UP, PALE_DOWN)
        axes.barh(place, net, THICK, left=before, color=colours[net <= 0])
        axes.plot([after, after], [place, min(place + 1, len(lines) - 0.45)], color="0.5", linewidth=0.8)
        label = line.net if line.net.startswith("-") else f"+{line.net}"
        axes.annotate(label, (max(before, after), place), (4, 0), textcoords="offset points", va="center", fontsize=points(9))
        before = after
    axes.text(
        start, -0.6, f"baseline {what} {row.start}" if what == "output" else f"start {row.start}", ha="center", va="bottom"
    )
    axes.text(before, len(lines) - 0.4, f"{what} {row.end}", ha="center", va="top", fontweight="bold")
    axes.use_sticky_edges = False
    axes.margins(x=0.22)  # room for the labels
    axes.tick_params(axis="y", labelleft=False)
    axes.set_title(f"How the nets add up to the {what}{f' (numbers {row.times})' if row.times else ''}", fontsize=points(11))
    axes.set_xlabel(what)
