"""Figures of the studies: made without pyplot, so that none of them changes the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._extras import needs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Told apart with any colour vision.
COLOURS = {"deeplift_rescale": "#999999", "cafe c=0": "#56B4E9", "cafe c=0.5": "#0072B2", "cafe c=1": "#D55E00"}


def figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches."""
    made: Figure = needs("matplotlib.figure", "plot").Figure(figsize=(width, height), layout="constrained")
    return made


def heatmap(axes: Any, values: Any, reach: float) -> Any:
    """Numbers as colours from -reach (red) over 0 (white) to reach (blue)."""
    return axes.imshow(values, cmap="RdBu", vmin=-reach, vmax=reach, aspect="auto", interpolation="nearest")


def bare(axes: Any) -> None:
    """No ticks, no frame."""
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)
