"""What all pictures share: the figure itself, axes without clutter, titles."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._extras import needs
from .looks import PAGE, current, figure_size, points
from .palette import both_signs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .picture import Picture


def figure(width: float, height: float, fixed: bool = False) -> Picture:
    """An empty figure of this size in inches, for letters of 10 points; ``fixed`` keeps its shape; needs matplotlib."""
    needs("matplotlib.figure", "plot")
    from .picture import Picture

    return Picture(figsize=figure_size(width, height, fixed), layout="constrained")


def bare(axes: Axes) -> None:
    """No ticks, no frame."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def light(axes: Axes, along: Any = "x") -> None:
    """A light grid along one direction, behind the data; no box."""
    axes.grid(axis=along, color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if along == "x":
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)


def rows_down(axes: Axes, labels: Sequence[str], size: float = 10) -> None:
    """One line per label, the first on top; a "$" in a label is a "$"."""
    axes.set_yticks(range(len(labels)), labels, parse_math=False, fontsize=points(size))
    axes.set_ylim(len(labels) - 0.4, -0.6)


def heatmap(axes: Axes, values: Any, reach: float) -> Any:
    """Numbers as colours from -reach (down) over 0 (white) to reach (up)."""
    return axes.imshow(values, cmap=both_signs(), vmin=-reach, vmax=reach, aspect="auto", interpolation="nearest")


def cell_text(axes: Axes, x: int, y: int, text: str, dark: bool) -> None:
    """A number in a cell of a heatmap, readable on its colour."""
    axes.text(x, y, text, ha="center", va="center", fontsize=points(8), color="white" if dark else "black", parse_math=False)


def add_heading(drawn: Picture, title: str, below: str = "", handles: Sequence[Any] = (), columns: int = 3) -> None:
    """A title as large as there is room for, and below the picture a legend with what the reader must know.

    A paper has its caption: there the title is small, and what stands below is left out.
    """
    room, paper = 72 * 0.97 * drawn.get_figwidth(), current().paper
    title, size = _fit_title(title, room, points(10 if paper else 13), 0.7 if paper else 0.6)
    drawn.suptitle(title, fontsize=size, fontweight="bold", parse_math=False)
    below = "" if paper else below
    if below or handles:
        columns = 1 if paper and drawn.get_figwidth() < PAGE else columns
        place: dict[str, Any] = {"loc": "outside lower center", "ncols": min(max(len(handles), 1), columns)}
        text = _wrap(below, room, points(9))
        legend = drawn.legend(
            handles=handles, title=text, title_fontsize=points(9), fontsize=points(10), frameon=False, **place
        )
        legend.get_title().set_parse_math(False)
        legend.set_alignment("center")


def heading_height(width: float, title: str, below: str) -> float:
    """Inches that ``add_heading`` needs above and below a figure of this width, for letters of 10 points."""
    room = 72 * 0.97 * width
    title, size = _fit_title(title, room, 13, 0.6)
    lines = len(_wrap(below, room, 9).split("\n")) if below else 0
    return (1.25 * size * len(title.split("\n")) + 1.2 * 9 * lines) / 72


def _fit_title(title: str, room: float, size: float, least: float) -> tuple[str, float]:
    """The lines of a title and their size: smaller letters, down to a share of the size, then more lines."""
    wide = max(text_width(line, size, "bold") for line in title.split("\n"))
    size *= max(least, min(1.0, room / wide)) if wide else 1  # widths of letters are rounded, hence the 1 %
    return _wrap(title, 1.01 * room, size, "bold"), size


def text_width(text: str, size: float, weight: str = "normal") -> float:
    """In points, without drawing it."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return float(text_to_path.get_text_width_height_descent(text, FontProperties(size=size, weight=weight), False)[0])


def _wrap(text: str, room: float, size: float, weight: str = "normal") -> str:
    """Lines of letters of this size that are not wider than this many points."""
    lines = []
    for line in text.split("\n"):
        wide = text_width(line, size, weight)
        if wide <= room:
            lines.append(line)
            continue
        lines += textwrap.wrap(line, max(int(len(line) * room / wide), 20))
    return "\n".join(lines)
