"""One explained image in detail: maps of what pushed up, what down, what remained and what cancelled, pixel by pixel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..explanation import Explanation
from .figures import add_heading, bare, figure
from .looks import points
from .palette import CONFLICT, DOWN, UP, both_signs, fading
from .pixels import find_places, maps, reach, visible_image
from .regions import RegionScores
from .row_lines import number
from .table_plot import describe_conflict, headline
from .totals import in_total, sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .picture import Picture

MEANING = {
    "positive": "positive: pushes up",
    "negative": "negative: pushes down",
    "net": "net: positive - negative",
    "conflict": "within: cancelled in the pixel itself",
}


def details(explanation: Explanation, regions: RegionScores | None = None, beside: Any = None) -> Picture:
    """All sides of one row, pixel by pixel or by region; ``beside``: scores of another method, or another explanation."""
    found = maps(explanation) if regions is None else _by_region(regions)
    ends = {side: reach(values) for side, values in found.items()}
    ends["positive"] = ends["negative"] = max(ends["positive"], ends["negative"])  # to be compared
    other = None if beside is None else _other(explanation, beside)
    height, width = found["net"].shape
    picture = visible_image(explanation)
    count = (picture is not None) + len(found) + (other is not None)
    across = 2.6 if count > 5 else 2.9
    drawn = figure(across * count, 1.55 + (across - 0.1) * min(max(height / width, 0.4), 2))
    axes = list(drawn.subplots(1, count))
    if picture is not None:
        draw_picture(axes.pop(0), picture)
    for one, (side, values) in zip(axes, found.items(), strict=False):
        draw_map(one, values, side, ends[side])
        one.set_title(MEANING[side], fontsize=points(10))
    if other is not None:
        draw_map(axes[-1], other, "net", reach(other))
        axes[-1].set_title(name_of_other(beside), fontsize=points(10))
    where = "pixel" if explanation.meta.settings.get("layer") is None else "place"
    row = in_total(explanation, f"{height * width} {where}{'s' * (height * width > 1)}")
    said = [sentence(row), describe_conflict(row), _told_apart(explanation), *explanation.notes]
    add_heading(drawn, headline(explanation, row), "\n".join(line for line in said if line))
    return drawn


def _told_apart(explanation: Explanation) -> str:
    """The net of class tokens, which are not on the maps; "" if there are none."""
    places = find_places(explanation)
    if places is None or not places.prefix:
        return ""
    apart = places.sum_prefix(explanation.parts(explanation.combined)[0])
    return f"Not on the maps: {places.prefix_name}, net {number(apart)}."


def _by_region(regions: RegionScores) -> dict[str, np.ndarray]:
    """All sides of every region at each of its pixels."""
    sides = {"positive": regions.positive, "negative": regions.negative, "net": regions.net}
    sides["conflict"] = np.minimum(regions.positive, regions.negative)
    return {side: regions.spread(values) for side, values in sides.items()}


def draw_picture(axes: Axes, picture: np.ndarray, scale: bool = True) -> None:
    """The image as it is; ``scale`` leaves as much room below as a map with its scale takes."""
    drawn = axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_title("the image", fontsize=points(10))
    bare(axes)
    if scale:
        colour_scale(axes, drawn, "neither", hidden=True)


def name_of_other(beside: Any) -> str:
    """What stands beside, in words."""
    return "net of the other explanation" if isinstance(beside, Explanation) else "the other method"


def draw_map(axes: Axes, values: np.ndarray, side: str, end: float) -> None:
    """One map with its scale below; an arrow at its end where a few pixels are beyond it."""
    colours = {"positive": fading("#FFFFFF", UP), "negative": fading("#FFFFFF", DOWN), "conflict": fading("#FFFFFF", CONFLICT)}
    signed = side == "net"
    looks: dict[str, Any] = {"cmap": both_signs() if signed else colours[side], "vmin": -end if signed else 0, "vmax": end or 1}
    drawn = axes.imshow(values, interpolation="nearest", **looks)
    beyond = end < float(np.abs(values).max(initial=0))
    colour_scale(axes, drawn, ("both" if signed else "max") if beyond else "neither")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color("0.8")


def colour_scale(axes: Axes, drawn: Any, extend: str, hidden: bool = False) -> None:
    """The colours of a map and what they mean, below it."""
    bar = axes.figure.colorbar(drawn, ax=axes, orientation="horizontal", shrink=0.85, aspect=18, pad=0.03, extend=extend)
    axes.set_anchor("N")  # at the top of its room, which is what the layout measures for the titles above
    bar.ax.locator_params(nbins=4)
    bar.ax.tick_params(labelsize=points(8), labelcolor="white" if hidden else "black", length=0 if hidden else 3)
    bar.outline.set_visible(False)
    bar.solids.set_visible(not hidden)  # type: ignore[union-attr]


def scores_beside(one: Explanation, beside: Any) -> Tensor:
    """Net scores of another explanation, or of another method, for the same row and in the same shape: (1, ...)."""
    shape = tuple(one.parts(one.positive)[0].shape)
    scores: Tensor = beside.parts(beside.combined)[0] if isinstance(beside, Explanation) else torch.as_tensor(beside)
    scores = scores[None] if tuple(scores.shape) == shape[1:] else scores
    if tuple(scores.shape) != shape:
        raise ValueError(
            f"plot(row, beside=...): the scores have shape {tuple(scores.shape)}, and one row of this explanation has "
            f"{shape[1:]}. Give the other method's scores of this row, or all rows of them."
        )
    return scores


def _other(one: Explanation, beside: Any) -> np.ndarray:
    """The scores to stand beside, per pixel."""
    places = find_places(one)
    assert places is not None
    return places.sum(scores_beside(one, beside))
