"""What all pictures share: the figure itself, axes without clutter, titles."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._extras import needs
from .palette import both_signs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .picture import Picture


def figure(width: float, height: float) -> Picture:
    """An empty figure of this size in inches; needs matplotlib."""
    needs("matplotlib.figure", "plot")
    from .picture import Picture

    return Picture(figsize=(width, height), layout="constrained")


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
    axes.set_yticks(range(len(labels)), labels, parse_math=False, fontsize=size)
    axes.set_ylim(len(labels) - 0.4, -0.6)


def heatmap(axes: Axes, values: Any, reach: float) -> Any:
    """Numbers as colours from -reach (down) over 0 (white) to reach (up)."""
    return axes.imshow(values, cmap=both_signs(), vmin=-reach, vmax=reach, aspect="auto", interpolation="nearest")


def cell_text(axes: Axes, x: int, y: int, text: str, dark: bool) -> None:
    """A number in a cell of a heatmap, readable on its colour."""
    axes.text(x, y, text, ha="center", va="center", fontsize=8, color="white" if dark else "black", parse_math=False)


def headed(drawn: Picture, title: str, below: str = "", handles: Sequence[Any] = (), columns: int = 3) -> None:
    """A title as large as there is room for, and below the picture a legend with what the reader must know."""
    room = 72 * 0.97 * drawn.get_figwidth()
    wide = max(text_width(line, 13, "bold") for line in title.split("\n"))
    drawn.suptitle(title, fontsize=13 * min(1.0, room / wide) if wide else 13, fontweight="bold", parse_math=False)
    if below or handles:
        place: dict[str, Any] = {"loc": "outside lower center", "ncols": min(max(len(handles), 1), columns)}
        legend = drawn.legend(handles=handles, title=_wrapped(below, room), title_fontsize=9, frameon=False, **place)
        legend.get_title().set_parse_math(False)
        legend.set_alignment("center")


def text_width(text: str, size: float, weight: str = "normal") -> float:
    """In points, without drawing it."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return float(text_to_path.get_text_width_height_descent(text, FontProperties(size=size, weight=weight), False)[0])


def _wrapped(text: str, room: float) -> str:
    """Lines that are not wider than this many points."""
    lines = []
    for line in text.split("\n"):
        letters = max(int(len(line) * room / (text_width(line, 9) or 1)), 20)
        lines += textwrap.wrap(line, letters) or [""]
    return "\n".join(lines)
