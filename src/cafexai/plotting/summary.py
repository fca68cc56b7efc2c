"""Many rows in one picture: what features do on average and in each row, and where they conflict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..explanation import Explanation
from .conflict_words import mean_sentence, whole_percent
from .dispatch import view
from .figures import add_heading, figure, light, rows_down
from .image_details import draw_map
from .labels import labels
from .looks import points
from .palette import CONFLICT, NET, PALE_DOWN, PALE_UP, QUIET, VALUES
from .pixels import find_places, reach
from .row_lines import number, strongest_first

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .picture import Picture

WORST = 8  # rows with most conflict that are named
DOTS = 2000  # rows that the swarm shows
OUTPUTS = 4  # explained outputs that are shown, each on its own


@dataclass(frozen=True)
class Feature:
    """One feature in all rows where it is, or one word."""

    name: str
    positive: float  # means
    negative: float
    size: float  # mean |net|
    nets: np.ndarray
    values: np.ndarray  # ranks from 0 to 1; nan where unknown


def summary(explanation: Explanation, most: int = 12, order: str = "net") -> Picture:
    """All rows: mean scores and a swarm of nets per feature (mean maps for images), conflicts, the rows with most of them."""
    if not len(explanation):
        raise ValueError("summary(): the explanation has no rows.")
    if most < 1:
        raise ValueError(f"summary(most={most}): give the number of features to show, at least 1.")
    groups = explanation.by_output()
    if len(groups) > OUTPUTS:
        explanation.for_output(None, "summary")  # refuses several outputs, and names them
    draw = _maps if view(explanation) == "image" else _bars
    heights, fills = zip(*(draw(own, most, order) for own in groups.values()), strict=True)
    several = len(groups) > 1
    heights = [height + 0.3 * several for height in heights]
    drawn = figure(12.5, 0.8 + sum(heights) + 2.7)
    split: Any = drawn.subfigures(len(groups) + 1, 1, height_ratios=(*heights, 2.7))
    *parts, last = split
    for part, fill, (name, own) in zip(parts, fills, groups.items(), strict=True):
        fill(part)
        if several:
            part.suptitle(
                f"{name}: {len(own)} row{'s' * (len(own) > 1)}", fontsize=points(11), fontweight="bold", parse_math=False
            )
    _conflicts(explanation, *last.subplots(1, 2))
    add_heading(drawn, _title(explanation))
    return drawn


def _bars(explanation: Explanation, most: int, order: str) -> tuple[float, Callable[[Any], None]]:
    """The height of the part of one output, and what draws it: mean scores, and a swarm of nets."""
    found = features(explanation, order)
    shown = found[:most]

    def draw(part: Any) -> None:
        left, right = part.subplots(1, 2, sharey=True)
        _means(left, shown, len(found))
        _swarm(right, shown, bool(explanation.features.categories))

    return 1.1 + 0.36 * len(shown), draw


def _maps(explanation: Explanation, most: int, order: str) -> tuple[float, Callable[[Any], None]]:
    """The same for images: mean maps."""
    sides = ("positive", "negative", "combined")
    places = find_places(explanation)
    assert places is not None
    means = [places.sum(explanation.parts(getattr(explanation, side))[0].double().mean(0, keepdim=True)) for side in sides]
    end = max(reach(means[0]), reach(means[1]))

    def draw(part: Any) -> None:
        for axes, side, values in zip(part.subplots(1, 3), ("positive", "negative", "net"), means, strict=True):
            draw_map(axes, values, side, reach(values) if side == "net" else end)
            axes.set_title(f"mean {side}", fontsize=points(11))

    height, width = means[0].shape
    return 0.75 + 3.65 * min(max(height / width, 0.4), 1), draw


def features(explanation: Explanation, order: str = "net") -> list[Feature]:
    """By mean |net| or by mean influence, largest first; words that occur in several rows are one."""
    parts = (explanation.positive, explanation.negative, explanation.combined)
    up, down, net = (explanation.flat(part).double().cpu().numpy() for part in parts)
    rows = len(explanation)
    if view(explanation) != "text":
        names, places = explanation.names(), np.arange(up.shape[1])
        values = explanation.flat(explanation.shown).double().cpu().numpy()
        if values.shape != up.shape or (
            explanation.grouped and explanation.features.display is None
        ):  # groups have no single value
            values = np.full(up.shape, np.nan)
        known = explanation.features.categories
        own = [
            (name, up[:, i], down[:, i], net[:, i], _ranks(in_order(values[:, i], known.get(name))))
            for i, name in zip(places, names, strict=True)
            if name
        ]
    else:
        cells: dict[str, list[tuple[int, int]]] = {}
        for row in range(rows):
            for place, name in enumerate(explanation.names(row)):
                if name:
                    cells.setdefault(name, []).append((row, place))
        own = []
        for name, where in cells.items():
            index = tuple(np.array(where).T)
            own.append((name, up[index], down[index], net[index], np.full(len(where), np.nan)))
    made = [Feature(name, a.sum() / rows, b.sum() / rows, abs(c).sum() / rows, c, d) for name, a, b, c, d in own]
    columns = (torch.tensor([getattr(one, side) for one in made]) for side in ("positive", "negative", "size"))
    return [made[place] for place in strongest_first(order, *columns)]


def in_order(codes: np.ndarray, words: Sequence[str] | None) -> np.ndarray:
    """Codes of words as places in the order of the alphabet, or of numbers if all words are; numbers as they are."""
    if words is None:
        return codes
    digits = all(word.lstrip("-").replace(".", "", 1).isdigit() for word in words)
    order = sorted(range(len(words)), key=(lambda code: float(words[code])) if digits else words.__getitem__)
    there = np.isfinite(codes) & (codes >= 0)
    ranks = np.empty(len(words))
    ranks[order] = np.arange(len(words))
    return np.where(there, ranks[np.where(there, codes, 0).astype(int)], np.nan)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Where each value stands among all, from 0 to 1; equal ones stand together."""
    known = np.isfinite(values)
    ranks = np.full(len(values), np.nan)
    distinct, place = np.unique(values[known], return_inverse=True)
    if len(distinct) > 1:
        counts = np.bincount(place)
        middle = np.cumsum(counts) - (counts + 1) / 2
        ranks[known] = ((middle - middle[0]) / (middle[-1] - middle[0]))[place]
    return ranks


def _title(explanation: Explanation) -> str:
    conflict, share = explanation.conflict.double().mean().item(), explanation.conflict_share.double().mean().item()
    name = explanation.target_name(0) if len(explanation.by_output()) == 1 else ""  # else the parts have names
    return mean_sentence(len(explanation), number(conflict), share, name)


def _means(axes: Axes, shown: list[Feature], count: int) -> None:
    places = range(len(shown))
    axes.barh(places, [-one.negative for one in shown], 0.62, color=PALE_DOWN, label="mean negative")
    axes.barh(places, [one.positive for one in shown], 0.62, color=PALE_UP, label="mean positive")
    axes.barh(places, [one.size for one in shown], 0.24, color=NET, label="mean |net|")
    for place, one in enumerate(shown):
        axes.annotate(number(one.size), (max(one.size, one.positive), place), (4, 0), textcoords="offset points", va="center",
            fontsize=points(8))  # fmt: skip
    axes.margins(x=0.12)  # room for the numbers
    axes.axvline(0, color="0.4", linewidth=0.8)
    rows_down(axes, labels([one.name for one in shown], 34))
    light(axes)
    more = f" ({count - len(shown)} more features not shown)" if count > len(shown) else ""
    axes.set_title(f"How far each feature moves a row: mean |net|{more}", fontsize=points(11))
    axes.set_xlabel("mean over the rows")
    axes.legend(frameon=False, fontsize=points(8), ncols=3, loc="lower center", bbox_to_anchor=(0.5, -0.02), handlelength=1.2)
    axes.set_ylim(len(shown) + 0.35, -0.6)


def _swarm(axes: Axes, shown: list[Feature], words: bool) -> None:
    """A dot per row, moved aside where many are alike, coloured by the value of the feature."""
    axes.axvline(0, color="0.4", linewidth=0.8)
    drawn = None
    span = np.ptp(np.concatenate([one.nets for one in shown])) or 1.0
    for place, one in enumerate(shown):
        step = max(len(one.nets) // DOTS, 1)
        nets, values = one.nets[::step], one.values[::step]
        size = 9 if len(nets) > 100 else 22
        heights = place + aside(nets / span)
        unknown = np.isnan(values)
        axes.scatter(nets[unknown], heights[unknown], s=size, color=QUIET, linewidths=0)
        drawn = axes.scatter(
            nets[~unknown], heights[~unknown], s=size, c=values[~unknown], cmap=VALUES, vmin=0, vmax=1, linewidths=0
        )
    light(axes)
    axes.set_title("Net score in each row", fontsize=points(11))
    axes.set_xlabel("net influence on the output")
    axes.tick_params(axis="y", labelleft=False)
    if drawn is not None and any(np.isfinite(one.values).any() for one in shown):
        bar = axes.figure.colorbar(drawn, ax=axes, ticks=[0, 1], aspect=30, pad=0.01)
        bar.ax.set_yticklabels(["low", "high"], fontsize=points(8))
        bar.set_label("value, by rank (words: A to Z)" if words else "value, by rank", fontsize=points(8), labelpad=-12)
        bar.outline.set_visible(False)


def aside(places: np.ndarray, bins: int = 90, widest: float = 0.36) -> np.ndarray:
    """How far dots are moved off their line so that those of about the same place stand side by side."""
    offsets = np.zeros(len(places))
    bin_of = np.round(places * bins).astype(int)
    fullest = max(np.unique(bin_of, return_counts=True)[1].max(initial=1), 12)
    for one in np.unique(bin_of):
        here = np.flatnonzero(bin_of == one)
        order = np.arange(len(here))
        offsets[here] = np.where(order % 2, 1, -1) * ((order + 1) // 2) * 2 * widest / fullest
    return offsets


def _conflicts(explanation: Explanation, left: Axes, right: Axes) -> None:
    conflict = explanation.conflict.double().cpu().numpy()
    left.hist(conflict, bins=min(40, max(8, len(conflict) // 10)), color=CONFLICT)
    left.locator_params(axis="y", integer=True)
    left.set_title("How much is cancelled between features", fontsize=points(11))
    left.set_xlabel("conflict: cancelled, in units of the output")
    left.set_ylabel("rows")
    light(left, "y")
    order = np.argsort(-conflict, kind="stable")[:WORST]
    outputs, share = explanation.output.double().cpu().numpy(), explanation.conflict_share.double().cpu().numpy()
    right.barh(range(len(order)), conflict[order], 0.62, color=CONFLICT)
    named, several = [], len(explanation.by_output()) > 1
    for place, row in enumerate(order):
        own = explanation[int(row)]
        called = f"row {row}" if own.row_names is None else own.row_names[0]
        named.append(f"{called}: {own.target_name() if several else 'output'} {number(outputs[row])}")
        looks: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": points(8)}
        right.annotate(whole_percent(share[row]), (conflict[row], place), (4, 0), **looks)
    rows_down(right, labels(named, 40), 9)
    right.set_xlim(0, 1.15 * max(conflict[order].max(initial=0.0), 1e-300))
    light(right)
    right.set_title("Rows with most conflict, and cancelled / (cancelled + left)", fontsize=points(11))
    right.set_xlabel("conflict")
