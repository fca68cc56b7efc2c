"""The colours of all pictures and pages: told apart with any colour vision."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.colors import LinearSegmentedColormap

UP, DOWN, NET = "#0072B2", "#D55E00", "#1A1A1A"  # what pushed up, what pushed down, what remains of both
CONFLICT = "#7A3E9D"  # what cancelled
PALE_UP, PALE_DOWN = "#80B9D9", "#EAAF80"  # sums of many features, beside single ones
QUIET = "#9AA5AD"  # what stands beside
SERIES = (UP, DOWN, "#009E73", "#7A3E9D", "#E69F00", "#56B4E9", "#4D4D4D", "#CC79A7", "#999999", "#A6761D")  # lines of a chart
METHODS = {"deeplift_rescale": "#999999", "cafe c=0": "#56B4E9", "cafe c=0.5": UP, "cafe c=1": DOWN}  # in the studies
AUDIT = {"hidden": DOWN, "underreported only": "#E69F00", "undecided": "#BBBBBB", "reported": PALE_UP}
VALUES = "cividis"  # matplotlib's map for low to high values of a feature


def rgb(colour: str) -> tuple[float, float, float]:
    """The parts of a colour "#rrggbb", from 0 to 1."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def mix_with_white(colour: str, share: float) -> str:
    """White with this share of the colour."""
    return "#" + "".join(f"{round(255 * (1 + share * (part - 1))):02X}" for part in rgb(colour))


def tint(value: float, reach: float, strongest: float = 1.0) -> str:
    """From -reach (down) over 0 (white) to reach (up); ``strongest`` is the share of the colour at both ends."""
    share = strongest * min(abs(value) / reach, 1.0) if reach else 0.0
    return mix_with_white(UP if value > 0 else DOWN, share)


def fading(*colours: str) -> LinearSegmentedColormap:
    """A map of matplotlib through these colours, the first for the lowest value."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("-".join(colours), colours)


def both_signs() -> LinearSegmentedColormap:
    """Down over white to up."""
    return fading(DOWN, "#FFFFFF", UP)
