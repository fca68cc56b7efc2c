"""Who fights whom in one row: conflicts of pairs of features as a heatmap and as a network.

The exact map comes from evaluations of the model; the engine's view is what pairs cancelled at its units.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..explanation import Explanation, HiddenConflicts
from .conflict_words import evaluation_sentence
from .figures import add_heading, bare, cell_text, figure
from .labels import labels, shorten
from .looks import points
from .palette import CONFLICT, QUIET, fading
from .row_lines import align_numbers, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .picture import Picture

EDGES = 15  # of the network


def exact_pairs(found: HiddenConflicts, row: int = 0, most: int = 8) -> Picture:
    """The exact map of one row: what every two features cancel of each other, and what of it single removals do not show."""
    _check(most)
    names, amounts = found.names[row], found.conflict[row].double().cpu().numpy()
    hidden = found.hidden[row].double().cpu().numpy()
    fights = found.fights(row, len(names) ** 2)
    least = fights[-1].conflict if fights else np.inf
    kept = [i for i in np.argsort(-amounts.max(1), kind="stable").tolist() if amounts[i].max() >= least][:most]
    said = f"{number(fights[0].conflict)} between the strongest pair" if fights else "no two features cancel each other"
    drawn = _picture(amounts[np.ix_(kept, kept)], [names[i] for i in kept], hidden[np.ix_(kept, kept)])
    below = evaluation_sentence(found.evaluations, len(names), found.features, found.against)
    marked = " A frame marks pairs that removing either feature alone does not show." if found.top(row, 1) else ""
    called = "" if found.row_names is None else f"{shorten(found.row_names[row], 40)}: "
    add_heading(drawn, f"{called}Who fights whom: {said}", f"{below}{marked}")
    return drawn


def pairs(explanation: Explanation, most: int = 8) -> Picture:
    """The engine's view: the features of one row that cancel most inside the model, and what each pair cancelled."""
    if explanation.conflict_pairs is None:
        raise ValueError(
            "plot.pairs(): give exact=cafe.hidden_conflicts(e), the exact map. For what pairs cancelled inside the model call "
            'CAFE(model, variant="feature").explain(x, pairs=True).'
        )
    _check(most)
    amounts = explanation.conflict_pairs[0].double().cpu().numpy()
    names = [*explanation.names(), "(bias)"]
    order = np.argsort(-(amounts.sum(0) + amounts.sum(1)), kind="stable")
    kept = [int(i) for i in order if names[i] and amounts[i].sum() + amounts[:, i].sum() > 0][:most]
    everything = float(amounts.sum())
    amounts = amounts[np.ix_(kept, kept)]
    drawn = _picture(amounts, [names[i] for i in kept])
    rest = everything - float(amounts.sum())
    said = f"{number(everything)} cancelled between pairs" + (
        f", {number(rest)} of it not shown" if rest > 1e-3 * everything else ""
    )
    add_heading(drawn, f"Inside the model, in {explanation.target_name()}: {said}")
    return drawn


def _check(most: int) -> None:
    if most < 2:
        raise ValueError(f"plot.pairs(most={most}): give the number of features to show, at least 2.")


def _picture(amounts: np.ndarray, names: list[str], hidden: np.ndarray | None = None) -> Picture:
    """The map on the left, the strongest pairs on the right. With ``hidden`` the map is symmetric."""
    short = labels(names, 20)
    drawn = figure(12.5, max(5.2, 2.2 + 0.42 * len(short)))
    left, right = drawn.subplots(1, 2, width_ratios=(1.15, 1))
    if not short:
        left.text(0.5, 0.5, "nothing cancelled", ha="center")
        bare(left)
    else:
        _cells(left, amounts, short)
        if hidden is None:
            left.set_ylabel("pushed up")
            left.set_xlabel("pushed down")
        else:
            _frames(left, amounts, hidden)
    _network(right, amounts, short, directed=hidden is None)
    return drawn


def _frames(axes: Axes, amounts: np.ndarray, hidden: np.ndarray) -> None:
    """Mark pairs whose conflict is mostly hidden."""
    from matplotlib.patches import Rectangle

    for y, x in np.argwhere((hidden > 0.5 * amounts) & (amounts > 1e-3 * amounts.max())).tolist():
        axes.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor="black", linewidth=1.6))


def _cells(axes: Axes, amounts: np.ndarray, short: list[str]) -> None:
    end = float(amounts.max()) or 1.0
    axes.imshow(amounts, cmap=fading("#FFFFFF", CONFLICT), vmin=0, vmax=end, aspect="auto", interpolation="nearest")
    numbers = align_numbers(amounts.flatten().tolist(), 3)
    for place, text in enumerate(numbers):
        y, x = divmod(place, len(short))
        if float(text):
            cell_text(axes, x, y, text, amounts[y, x] > 0.55 * end)
    axes.set_xticks(
        range(len(short)), short, rotation=35, ha="right", rotation_mode="anchor", parse_math=False, fontsize=points(9)
    )
    axes.set_yticks(range(len(short)), short, parse_math=False, fontsize=points(9))
    axes.set_title("What each pair cancelled", fontsize=points(11))
    axes.spines[:].set_color("0.8")
    axes.tick_params(length=0)


def _network(axes: Axes, amounts: np.ndarray, short: list[str], directed: bool = True) -> None:
    """Features on a circle; an arrow from who pushed up to who pushed down, or a line, as wide as what they cancelled."""
    bare(axes)
    title = "Arrows from who pushed up to who pushed down" if directed else "The strongest pairs"
    axes.set_title(title, fontsize=points(11))
    amounts = amounts if directed else np.triu(amounts)
    if not short:
        return
    turns = [math.pi / 2 - 2 * math.pi * i / len(short) for i in range(len(short))]
    places = [(math.cos(turn), math.sin(turn)) for turn in turns]
    sizes = amounts.sum(0) + amounts.sum(1)
    end = float(amounts.max()) or 1.0
    for place in np.argsort(amounts, axis=None, kind="stable")[-EDGES:]:
        up, down = divmod(int(place), len(short))
        share = amounts[up, down] / end
        if share > 0 and up != down:
            looks = {
                "arrowstyle": "-|>" if directed else "-",
                "color": CONFLICT,
                "alpha": 0.25 + 0.75 * share,
                "lw": 0.6 + 5 * share,
                "mutation_scale": 9 + 9 * share,
            }
            looks |= {"connectionstyle": "arc3,rad=0.13", "shrinkA": 8, "shrinkB": 11}
            axes.annotate("", places[down], places[up], arrowprops=looks)
    across, up_and_down = zip(*places, strict=True)
    axes.scatter(across, up_and_down, s=60 + 240 * sizes / (sizes.max() or 1), color=QUIET, zorder=3)
    for (x, y), name in zip(places, short, strict=True):
        side = "center" if abs(x) < 0.2 else "left" if x > 0 else "right"
        looks = {"ha": side, "va": "center" if abs(y) < 0.8 else "bottom" if y > 0 else "top", "fontsize": points(9)}
        axes.text(1.14 * x, 1.14 * y, name, parse_math=False, zorder=4, **looks)
    axes.set_xlim(-1.8, 1.8)
    axes.set_ylim(-1.35, 1.35)
    axes.set_aspect("equal")
