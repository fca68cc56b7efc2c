"""How large figures and their letters are: as matplotlib is set, as the caller says, or as a paper needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._extras import needs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER = "paper"
COLUMN, PAGE = 3.3, 7.0  # inches: a column of a paper, and both with what is between them
THIN = {
    **{
        f"{axis}tick.{part}": size
        for axis in "xy"
        for part, size in (("major.size", 2), ("major.width", 0.5), ("major.pad", 2))
    },
    "font.size": 7,
    "axes.linewidth": 0.5,
    "axes.labelpad": 2,
    "axes.titlepad": 3,
    "lines.linewidth": 0.9,
    "lines.markersize": 3,
    "grid.linewidth": 0.4,
    "patch.linewidth": 0.5,
    "figure.constrained_layout.w_pad": 0.02,
    "figure.constrained_layout.h_pad": 0.02,
    "figure.constrained_layout.wspace": 0.01,
    **{f"{part}.labelsize": "medium" for part in ("xtick", "ytick", "axes")},
}


@dataclass(frozen=True)
class Look:
    """What the caller of a plot asks for."""

    figsize: tuple[float, float] | None = None
    paper: bool = False
    ax: Axes | None = None


_LOOK: ContextVar[Look | None] = ContextVar("look", default=None)


@contextmanager
def look(figsize: Any = None, style: str | None = None, ax: Axes | None = None) -> Iterator[None]:
    """Figures made inside have this size and style; ``ax`` is what the main part is drawn on."""
    mpl = needs("matplotlib", "plot")
    if style not in (None, PAPER):
        raise ValueError(f"plot(..., style={style!r}): unknown. Allowed values: {PAPER!r}.")
    if figsize is not None and (len(figsize) != 2 or min(figsize) <= 0):
        raise ValueError(f"plot(..., figsize={figsize!r}): give width and height in inches.")
    if ax is not None and figsize is not None:
        raise ValueError("plot(..., ax=..., figsize=...): the figure of these axes has its size. Give one of both.")
    size = None if figsize is None else (float(figsize[0]), float(figsize[1]))
    before = _LOOK.set(Look(size, style == PAPER, ax))
    try:
        with mpl.rc_context(THIN if style == PAPER else {}):
            yield
    finally:
        _LOOK.reset(before)


def current() -> Look:
    """What the caller of the plot asked for."""
    return _LOOK.get() or Look()


def points(size: float = 10) -> float:
    """Letters of this size where matplotlib's font.size is 10; larger or smaller with it."""
    import matplotlib as mpl

    return size * float(mpl.rcParams["font.size"]) / 10


def figure_size(width: float, height: float, fixed: bool = False) -> tuple[float, float]:
    """In inches, for letters of 10 points: grows with font.size; a column or a page of a paper is as wide as it is.

    ``fixed`` keeps the shape of the figure, as images need it.
    """
    asked, share = current(), points(1)
    if asked.figsize is not None:
        return asked.figsize
    if asked.paper:
        wide = COLUMN if width * share <= 1.5 * COLUMN else PAGE
        return wide, min(height * share, height * wide / width) if fixed else height * share
    return width * share, height * share
