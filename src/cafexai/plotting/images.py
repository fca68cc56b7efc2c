"""One explained image: the picture, and maps of what pushed up, what down, what remained and what cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..explanation import Explanation
from .figures import bare, figure, headed
from .palette import CONFLICT, DOWN, UP, both_signs, fading
from .pixels import maps, per_pixel, reach, seen
from .rounding import Shown, in_digits
from .row_lines import bias_line, sum_line
from .table_plot import headline, told_conflict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .picture import Picture

MEANING = {
    "positive": "positive: pushes up",
    "negative": "negative: pushes down",
    "net": "net: positive - negative",
    "conflict": "within: cancelled in the pixel itself",
}


def image(explanation: Explanation, beside: Any = None) -> Picture:
    """The maps of one row, summed over the channels; ``beside``: scores of another method, or another explanation."""
    found = maps(explanation)
    ends = {side: reach(values) for side, values in found.items()}
    ends["positive"] = ends["negative"] = max(ends["positive"], ends["negative"])  # to be compared
    other = None if beside is None else _other(explanation, beside)
    height, width = found["net"].shape
    count = 1 + len(found) + (other is not None)
    across = 2.6 if count > 5 else 2.9
    drawn = figure(across * count, 1.55 + (across - 0.1) * min(max(height / width, 0.4), 2))
    axes = drawn.subplots(1, count)
    axes[0].imshow(seen(explanation), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes[0].set_title("the image", fontsize=10)
    bare(axes[0])
    _scale(axes[0], axes[0].images[0], "neither", hidden=True)  # as much room below as the maps take
    for one, (side, values) in zip(axes[1:], found.items(), strict=False):
        draw_map(one, values, side, ends[side])
        one.set_title(MEANING[side], fontsize=10)
    if other is not None:
        draw_map(axes[-1], other, "net", reach(other))
        axes[-1].set_title(
            "net of the other explanation" if isinstance(beside, Explanation) else "the other method", fontsize=10
        )
    row = in_total(explanation, f"{height * width} pixel{'s' * (height * width > 1)}")
    headed(drawn, headline(explanation, row), "\n".join([sentence(row), told_conflict(row), *explanation.notes]))
    return drawn


def in_total(explanation: Explanation, name: str) -> Shown:
    """One row in a few numbers that add up: all features together, and the biases."""
    start, end = explanation.baseline_output.item(), explanation.output.item()
    return in_digits([sum_line(explanation, name), bias_line(explanation)], start, end, conflict_of=explanation)


def sentence(row: Shown) -> str:
    """The sum in words: baseline, features, biases, output."""
    parts = [f"baseline output {row.start}"]
    for line in row.lines:
        net = line.net[1:] if line.net.startswith("-") else line.net
        parts.append(
            f"{'-' if line.net.startswith('-') else '+'} {net} from {line.name} ({line.positive} up, {line.negative} down)"
        )
    return f"{'  '.join(parts)}  = output {row.end}" + (f"   (all numbers {row.times})" if row.times else "")


def draw_map(axes: Axes, values: np.ndarray, side: str, end: float) -> None:
    """One map with its scale below; an arrow at its end where a few pixels are beyond it."""
    colours = {"positive": fading("#FFFFFF", UP), "negative": fading("#FFFFFF", DOWN), "conflict": fading("#FFFFFF", CONFLICT)}
    signed = side == "net"
    looks: dict[str, Any] = {"cmap": both_signs() if signed else colours[side], "vmin": -end if signed else 0, "vmax": end or 1}
    drawn = axes.imshow(values, interpolation="nearest", **looks)
    beyond = end < float(np.abs(values).max(initial=0))
    _scale(axes, drawn, ("both" if signed else "max") if beyond else "neither")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color("0.8")


def _scale(axes: Axes, drawn: Any, extend: str, hidden: bool = False) -> None:
    """The colours of a map and what they mean, below it."""
    bar = axes.figure.colorbar(drawn, ax=axes, orientation="horizontal", shrink=0.85, aspect=18, pad=0.03, extend=extend)
    bar.ax.locator_params(nbins=4)
    bar.ax.tick_params(labelsize=8, labelcolor="white" if hidden else "black", length=0 if hidden else 3)
    bar.outline.set_visible(False)
    bar.solids.set_visible(not hidden)  # type: ignore[union-attr]


def _other(explanation: Explanation, beside: Any) -> np.ndarray:
    """The scores to stand beside, per pixel."""
    shape = tuple(explanation.parts(explanation.positive)[0].shape)
    scores = beside.parts(beside.combined)[0] if isinstance(beside, Explanation) else torch.as_tensor(beside)
    scores = scores[None] if tuple(scores.shape) == shape[1:] else scores
    if tuple(scores.shape) != shape:
        raise ValueError(
            f"plot(row, beside=...): the scores have shape {tuple(scores.shape)}, and one row of this explanation has "
            f"{shape[1:]}. Give the other method's scores of this row, or all rows of them."
        )
    return per_pixel(scores)
