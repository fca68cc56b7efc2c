"""Explained images: the picture with the net score of every region on top, the strongest regions outlined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..explanation import Explanation
from .figures import add_heading, figure, heading_height
from .image_details import colour_scale, details, draw_picture, name_of_other, scores_beside
from .labels import class_name, shorten
from .looks import current, points
from .palette import DOWN, UP, both_signs, rgb
from .pixels import find_places, reach, visible_image
from .regions import PALE, STRONG, Cut, RegionScores, region_scores
from .rounding import Shown, in_digits
from .row_lines import Line, bias_line, number
from .table_plot import describe_conflict, headline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .picture import Picture

VIEWS = ("regions", "pixels", "detail")
OUTLINED, COLUMNS = 5, 8  # regions that are outlined unless told otherwise; rows side by side
SCALES = 1.1  # inches for the titles of the maps and their scales of colours
NUMBERED = 20  # regions that are smaller than this share of the picture have an outline and no number


@dataclass(frozen=True)
class ImageOptions:
    """How images are drawn."""

    view: str = "regions"
    cut: Cut = field(default_factory=Cut)
    most: int = OUTLINED
    same_scale: bool = False
    beside: Any = None
    check: Any = None  # the explainer, whose model is evaluated

    def __post_init__(self) -> None:
        if self.view not in VIEWS:
            raise ValueError(f"plot(..., view={self.view!r}): unknown. Allowed values: {', '.join(map(repr, VIEWS))}.")
        if self.view == "pixels" and self.cut.given:
            raise ValueError(f'plot(..., view="pixels", {self.cut.given[0]}=...): give one of both.')
        if self.check is not None and not hasattr(self.check, "occlude_regions"):
            raise ValueError("plot(..., check=...): give the explainer, check=cafe; an explanation holds no model.")
        if self.check is not None and self.view == "detail":
            raise ValueError('plot(..., view="detail", check=...): give one of both.')


def image(explanation: Explanation, row: int, options: ImageOptions) -> Picture:
    """One row: the picture, the net of its regions on it, and what stands beside."""
    one, cut = explanation[row], _cut(explanation, options)
    if options.view == "detail":
        return details(one, region_scores(explanation, row, cut) if cut.given else None, options.beside)
    found = region_scores(explanation, row, cut)
    others = _others(one, found, options)
    measured = None if options.check is None else _measure(explanation, row, options.check, cut)
    end = _end(explanation, cut) if options.same_scale else _reach(found.net, found)
    if measured is not None:
        end = max(end, _reach(measured.observed, found))
        others.insert(0, (_occlusion_label(measured), measured.observed))
    outlined = found.strongest(options.most) if _outlines(found) else []
    shown = _in_total(one, found, outlined)
    axis = current().ax
    if axis is not None and others:
        raise ValueError("plot(..., ax=...): one map is drawn on given axes. Drop beside= and check=.")
    if axis is not None:
        draw_regions(axis, one, found, found.net, end, outlined)
        axis.set_title(f"{shown.start} at the baseline, {shown.end} here", fontsize=points(10))
        return axis.figure  # type: ignore[return-value]
    height, width = _size(one, found)
    count, across = 2 + len(others), 3.1
    told = f"Removed: each {found.kind} set to the baseline, one at a time. Both maps have one scale." if measured else ""
    said = [_sentence(shown, found, outlined), told, describe_conflict(shown), found.note, *one.notes]
    heading, below = headline(one, shown), "\n".join(line for line in said if line)
    room = 1.5 if current().paper else SCALES + 0.2 * bool(measured) + heading_height(across * count, heading, below)
    drawn = figure(across * count, room + (across - 0.1) * min(max(height / width, 0.4), 2), fixed=True)
    axes = drawn.subplots(1, count)
    _picture(axes[0], one)
    draw_regions(axes[1], one, found, found.net, end, outlined)
    axes[1].set_title(f"net by {found.kind}", fontsize=points(10))
    for rank, (place, (title, values)) in enumerate(zip(axes[2:], others, strict=True)):
        checked = measured is not None and rank == 0
        own = end if checked else _reach(values, found)
        draw_regions(place, one, found, values, own, outlined if checked else [])
        place.set_title(title, fontsize=points(10))
    add_heading(drawn, heading, below)
    return drawn


def images(explanation: Explanation, rows: Sequence[int], options: ImageOptions) -> Picture:
    """Several rows side by side: the pictures above, the nets of their regions below."""
    if options.beside is not None or options.check is not None or options.view == "detail" or current().ax is not None:
        raise ValueError('plot([rows], ...): view="detail", beside=, check= and ax= are for one row.')
    cut, kept = _cut(explanation, options), list(rows)[:COLUMNS]
    found = [region_scores(explanation, row, cut) for row in kept]
    ends = [_end(explanation, cut)] * len(kept) if options.same_scale else [_reach(one.net, one) for one in found]
    height, width = _size(explanation[kept[0]], found[0])
    scale = "One scale for all rows." if options.same_scale else "Each row has its own scale."
    notes = dict.fromkeys(line for line in (*(one.note for one in found), *explanation.notes) if line)
    more = f" ({len(rows) - len(kept)} more not shown)" if len(rows) > len(kept) else ""
    title, below, wide = f"Net by {found[0].kind} of {len(kept)} rows{more}", "\n".join([scale, *notes]), 0.3 + 2.1 * len(kept)
    room = 1.6 if current().paper else 0.35 + SCALES + heading_height(wide, title, below)
    drawn = figure(wide, room + 2 * 2.1 * min(max(height / width, 0.4), 2), fixed=True)
    grid = drawn.subplots(2, len(kept), squeeze=False)
    for place, (row, own, end) in enumerate(zip(kept, found, ends, strict=True)):
        one = explanation[row]
        _picture(grid[0][place], one, scale=False)
        called = f"row {row}" if one.row_names is None else shorten(one.row_names[0], 24)
        told = shorten(class_name(one) or one.target_name(), 24)
        grid[0][place].set_title(f"{called}\n{told} {number(one.output.item())}", fontsize=points(9), parse_math=False)
        draw_regions(grid[1][place], one, own, own.net, end, own.strongest(options.most) if _outlines(own) else [])
    add_heading(drawn, title, below)
    return drawn


def _picture(axes: Axes, one: Explanation, scale: bool = True) -> None:
    picture = visible_image(one)
    if picture is None:
        axes.set_visible(False)
    else:
        draw_picture(axes, picture, scale)


def draw_regions(
    axes: Axes, one: Explanation, found: RegionScores, values: np.ndarray, end: float, outlined: Sequence[int]
) -> None:
    """A value of every region on the faded picture, with its scale below and the outlines of some regions."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    height, width = _size(one, found)
    picture = visible_image(one)
    if picture is not None:
        grey = picture if picture.ndim == 2 else picture.mean(-1)
        axes.imshow(PALE + (1 - PALE) * grey, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    spread = found.spread(values)
    share = np.clip(np.abs(spread) / end, 0, 1)[..., None] if end else np.zeros((*spread.shape, 1))
    colour = np.where(spread[..., None] > 0, np.array(rgb(UP)), np.array(rgb(DOWN)))
    box = (-0.5, width - 0.5, height - 0.5, -0.5)
    axes.imshow(np.concatenate([colour, STRONG * share], -1), extent=box, interpolation="nearest")
    _outline(axes, found, outlined, (width / found.index.shape[1], height / found.index.shape[0]))
    axes.set_xlim(box[0], box[1])
    axes.set_ylim(box[2], box[3])
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color("0.8")
    beyond = end < float(np.abs(values).max(initial=0))
    scale = ScalarMappable(Normalize(-end or -1, end or 1), both_signs())
    colour_scale(axes, scale, "both" if beyond else "neither")


def _outline(axes: Axes, found: RegionScores, outlined: Sequence[int], size: tuple[float, float]) -> None:
    """Outlines, black on white, and the rank of each region where there is room."""
    from matplotlib.collections import LineCollection
    from matplotlib.patheffects import withStroke

    def place(x: float, y: float) -> tuple[float, float]:
        return (x + 0.5) * size[0] - 0.5, (y + 0.5) * size[1] - 0.5

    for rank, region in enumerate(outlined, 1):
        lines = [[place(*start), place(*end)] for start, end in found.edges(region)]
        for wide, tint in ((2.6, "white"), (1.2, "black")):
            axes.add_collection(LineCollection(lines, colors=tint, linewidths=points(wide), capstyle="projecting"))
        text = axes.text(*place(*found.middle(region)), str(rank), ha="center", va="center", fontsize=points(9))
        text.set_path_effects([withStroke(linewidth=points(2), foreground="white")])


def _cut(explanation: Explanation, options: ImageOptions) -> Cut:
    """The regions that are asked for; single pixels are cells of a grid as fine as the image."""
    if options.view != "pixels":
        return options.cut
    places = find_places(explanation)
    return options.cut if places is None else Cut(cells=max(places.height, places.width))


def _size(one: Explanation, found: RegionScores) -> tuple[int, int]:
    """Height and width of the picture; of the map where it is not known."""
    picture = visible_image(one)
    height, width = found.index.shape if picture is None else picture.shape[:2]
    return int(height), int(width)


def _outlines(found: RegionScores) -> bool:
    """Regions are large enough to have an outline."""
    return found.kind != "pixel" or max(found.index.shape) <= NUMBERED


def _reach(values: np.ndarray, found: RegionScores) -> float:
    """The end of the scale: the strongest region; of single pixels, of which a few may be far beyond, the usual end."""
    return reach(values) if found.kind == "pixel" else float(np.abs(values).max(initial=0.0))


def _end(explanation: Explanation, cut: Cut) -> float:
    """One end of the scale for all rows."""
    found = (region_scores(explanation, row, cut) for row in range(len(explanation)))
    return max(_reach(one.net, one) for one in found)


def _others(one: Explanation, found: RegionScores, options: ImageOptions) -> list[tuple[str, np.ndarray]]:
    """What stands beside, by the same regions, with its title."""
    if options.beside is None:
        return []
    return [(name_of_other(options.beside), sum_regions(one, options.beside, found))]


def _measure(explanation: Explanation, row: int, cafe: Any, cut: Cut) -> Any:
    """What the model does without each of the regions."""
    return cafe.occlude_regions(explanation, row, cells=cut.cells, regions=cut.regions, superpixels=cut.superpixels)


def _occlusion_label(measured: Any) -> str:
    fit = measured.correlation
    return "output lost if removed" + ("" if fit is None else f"\ncorrelation with the scores {fit:.2f}")


def sum_regions(one: Explanation, beside: Any, found: RegionScores) -> np.ndarray:
    """Other scores of one row by the same regions: (regions,)."""
    scores, places = scores_beside(one, beside), find_places(one)
    assert places is not None
    return np.bincount(found.index.ravel(), places.sum(scores).ravel(), len(found.names))


def _in_total(one: Explanation, found: RegionScores, outlined: Sequence[int]) -> Shown:
    """The strongest regions, all others together and the biases, in digits that add up to the output."""
    sides = (found.positive, found.negative, found.net)
    lines: list[Line] = []
    for rank, i in enumerate(outlined, 1):
        up, down, net = (float(side[i]) for side in sides)
        lines.append(Line(str(rank), "", up, down, net, True))
    parts, places = (one.positive, one.negative, one.combined), find_places(one)
    whole = [one.flat(part)[0].double().sum().item() for part in parts]
    before = [0.0] * 3 if places is None else [places.sum_prefix(one.parts(part)[0]) for part in parts]
    up, down, net = (
        total - apart - sum(float(side[i]) for i in outlined) for total, apart, side in zip(whole, before, sides, strict=True)
    )
    lines.append(Line("others", "", max(up, 0.0), max(down, 0.0), net))
    if places is not None and places.prefix:
        up, down, net = before
        lines.append(Line(f"{places.prefix_name} (not on the map)", "", up, down, net))
    start, end = one.baseline_output.item(), one.output.item()
    return in_digits([*lines, bias_line(one)], start, end, conflict_of=one)


def _sentence(shown: Shown, found: RegionScores, outlined: Sequence[int]) -> str:
    """The sum in words: baseline, the outlined regions by their number, all others, biases, output."""
    count = len(outlined)
    first, (others, *before, bias) = shown.lines[:count], shown.lines[count:]
    rest = len(found.names) - count
    parts = [f"{line.name}: {_add_sign(line.net)}" for line in first]
    told = f"outlined {', '.join(parts)};  " if parts else ""
    kind = f"{found.kind}{'s' * (rest != 1)}"
    words = f"{told}{rest} {'other ' * bool(parts)}{kind} {_add_sign(others.net)}"
    words += "".join(f";  {line.name} {_add_sign(line.net)}" for line in before)
    words += f";  bias {_add_sign(bias.net)}" if bias.exact.net else ""
    return f"baseline output {shown.start};  {words};  output {shown.end}" + (
        f"   (all numbers {shown.times})" if shown.times else ""
    )


def _add_sign(text: str) -> str:
    return text if text.startswith("-") else f"+{text}"
