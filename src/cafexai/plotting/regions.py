"""Scores of an image by region: the cells of a grid, superpixels, or the regions of a mask."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from .._inputs.images import CELLS, grid_cells
from ..explanation import Explanation
from .palette import DOWN, UP, rgb
from .pixels import find_places, maps, visible_image

PALE, STRONG = 0.55, 0.85  # the darkest grey of a picture below a map; how opaque the strongest colour is
SLIC, SUPERPIXELS, COMPACT = "slic", 64, 10.0  # the only kind; how many are asked for; how much closeness counts
ALL = 0.95  # share of the scores that makes a map of the rest say nothing
NO_SCIKIT = "superpixels: scikit-image is not installed, so these are cells of a grid"


@dataclass(frozen=True)
class Cut:
    """How an image is cut into regions; at most one of these, else a grid of 8 x 8 cells.

    Args:
        cells: Cells of a grid in each direction.
        regions: The region of each pixel: integers, (height, width), or (rows, height, width) for a mask per row.
        superpixels: "slic", or how many of them.
    """

    cells: int | None = None
    regions: Any = None
    superpixels: str | int | None = None

    def __post_init__(self) -> None:
        if len(given := self.given) > 1:
            raise ValueError(f"plot(..., {given[0]}=..., {given[1]}=...): give one of cells, regions and superpixels.")
        for name in ("cells", "superpixels"):
            value = getattr(self, name)
            if isinstance(value, bool) or (isinstance(value, int) and value < 1):
                raise ValueError(f"plot(..., {name}={value}): give how many, at least 1.")
        if isinstance(self.superpixels, str) and self.superpixels != SLIC:
            raise ValueError(f"plot(..., superpixels={self.superpixels!r}): allowed values: {SLIC!r}, or how many.")

    @property
    def given(self) -> list[str]:
        """Which of them is given."""
        return [name for name in ("cells", "regions", "superpixels") if getattr(self, name) is not None]


@dataclass(frozen=True)
class RegionScores:
    """The scores of one image, summed by region.

    Args:
        index: (height, width): the region of every pixel, of every place of a layer, from 0 on.
        names: How people know the regions.
        positive: (regions,)
        negative: (regions,)
        net: (regions,)
        kind: "cell", "superpixel", "region" or "place".
        note: What a reader must know of the regions.
    """

    index: np.ndarray
    names: tuple[str, ...]
    positive: np.ndarray
    negative: np.ndarray
    net: np.ndarray
    kind: str
    note: str = ""

    def spread(self, values: np.ndarray) -> np.ndarray:
        """A value per region at each of its pixels, (height, width)."""
        found: np.ndarray = np.asarray(values)[self.index]
        return found

    def strongest(self, most: int) -> list[int]:
        """The regions with the largest |net|, without those of net 0."""
        order = np.argsort(-np.abs(self.net), kind="stable")[:most].tolist()
        return [region for region in order if self.net[region] != 0]

    def edges(self, region: int) -> list[tuple[tuple[float, float], tuple[float, float]]]:
        """The outline of a region: lines between (x, y), in pixels, where pixel (i, j) is centred at x = j, y = i."""
        inside = np.pad(self.index == region, 1)
        lines: list[tuple[tuple[float, float], tuple[float, float]]] = []
        for y, x in np.argwhere(inside[1:] != inside[:-1]).tolist():  # between a pixel and the one below it
            lines.append(((x - 1.5, y - 0.5), (x - 0.5, y - 0.5)))
        for y, x in np.argwhere(inside[:, 1:] != inside[:, :-1]).tolist():
            lines.append(((x - 0.5, y - 1.5), (x - 0.5, y - 0.5)))
        return lines

    def middle(self, region: int) -> tuple[float, float]:
        """The pixel of a region that is nearest to its centre, as (x, y)."""
        places = np.argwhere(self.index == region)
        y, x = places[((places - places.mean(0)) ** 2).sum(1).argmin()].tolist()
        return float(x), float(y)


def region_scores(explanation: Explanation, row: int = 0, cut: Cut | None = None) -> RegionScores:
    """The scores of one row of images by region.

    Args:
        explanation: Of images, or of a layer that has places in the image.
        row: Which row, by position.
        cut: The regions. None: a grid of 8 x 8 cells, or each place of a layer.

    Returns:
        Positive, negative and net score of every region.

    Raises:
        ValueError: The rows are no images, or the mask does not fit them.
    """
    cut, one = cut or Cut(), explanation[row]
    places = find_places(one)
    if places is None:
        raise ValueError("plot(..., cells=..., regions=..., superpixels=...): these are for images, and the rows are none.")
    index, names, kind, note = _cut(one, row, len(explanation), cut, (places.height, places.width))
    found, count = maps(one), len(names)
    up, down, net = (np.bincount(index.ravel(), found[side].ravel(), count) for side in ("positive", "negative", "net"))
    apart = places.sum_prefix(one.parts(one.combined)[0])
    if abs(apart) > ALL * (abs(apart) + np.abs(net).sum()):
        told = f"Almost all of the net is at the {places.prefix_name}, outside of the image. Explain an earlier layer."
        note = "; ".join(filter(None, (note, told)))
    return RegionScores(index, names, up, down, net, kind, note)


def region_title(found: RegionScores) -> str:
    """What a map of their nets is called where it has no scale beside it."""
    return f"net by {found.kind}, up to {np.abs(found.net).max(initial=0.0):.3g}"


def overlay(one: Explanation, found: RegionScores) -> np.ndarray:
    """The nets of the regions on the faded picture, (height, width, 3) bytes; the scale ends at the strongest region."""
    picture, end = visible_image(one), float(np.abs(found.net).max(initial=0.0))
    height, width = found.index.shape if picture is None else picture.shape[:2]
    down, right = (np.arange(size) * own // size for size, own in zip((height, width), found.index.shape, strict=True))
    nets = found.spread(found.net)[down[:, None], right][..., None]
    grey = np.ones((height, width)) if picture is None else picture if picture.ndim == 2 else picture.mean(-1)
    share = STRONG * np.abs(nets) / end if end else np.zeros_like(nets)
    colour = np.where(nets > 0, np.array(rgb(UP)), np.array(rgb(DOWN)))
    mixed = share * colour + (1 - share) * (PALE + (1 - PALE) * grey[..., None])
    return np.round(255 * mixed).astype(np.uint8)


def _cut(
    one: Explanation, row: int, rows: int, cut: Cut, size: tuple[int, int]
) -> tuple[np.ndarray, tuple[str, ...], str, str]:
    """The region of every place, names of the regions, their kind, and a remark."""
    layer = one.meta.settings.get("layer") is not None
    if layer and (cut.regions is not None or cut.superpixels is not None):
        raise ValueError(
            f"plot(..., regions=..., superpixels=...): a layer has {size[0]} x {size[1]} places, not pixels. Use cells=..., "
            "or explain the output from the inputs."
        )
    if cut.regions is not None:
        return (*_of_mask(cut.regions, row, rows, size), "region", "")
    if cut.superpixels is not None and find_spec("skimage") is not None:
        return (*_superpixels(one, SUPERPIXELS if cut.superpixels == SLIC else int(cut.superpixels)), "superpixel", "")
    note = NO_SCIKIT if cut.superpixels is not None else ""
    cells = cut.cells or (max(size) if layer else CELLS)
    index = grid_cells(*size, cells).numpy()
    across = min(cells, size[1])
    names = tuple(f"{divmod(cell, across)}" for cell in range(int(index.max()) + 1))
    return index, names, "cell" if max(size) > cells else "place" if layer else "pixel", note


def _of_mask(mask: Any, row: int, rows: int, size: tuple[int, int]) -> tuple[np.ndarray, tuple[str, ...]]:
    values = np.asarray(mask.cpu() if isinstance(mask, torch.Tensor) else mask)
    if values.dtype.kind not in "biu":
        raise ValueError(f"plot(..., regions=mask): a mask holds integers, not {values.dtype}.")
    values = values[0] if values.ndim == 4 and len(values) == 1 else values
    own = values[row] if values.shape == (rows, *size) else values[0] if values.shape == (1, *size) else values
    if own.shape != size:
        raise ValueError(
            f"plot(..., regions=mask): a mask of shape {values.shape} does not fit; images have shape {size}, and there "
            f"{'is' if rows == 1 else 'are'} {rows} row{'s' * (rows != 1)}. Give {size}, or {(rows, *size)} for a mask per row."
        )
    found, index = np.unique(own, return_inverse=True)
    return index.reshape(size), tuple(f"region {label}" for label in found.astype(int).tolist())


def _superpixels(one: Explanation, count: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """Regions of alike pixels (SLIC: k-means over colour and place)."""
    from skimage.segmentation import slic

    picture = visible_image(one)
    assert picture is not None
    colours = picture if picture.ndim == 3 else np.repeat(picture[..., None], 3, 2)
    found = slic(colours, n_segments=count, compactness=COMPACT, start_label=0, channel_axis=-1)
    _, index = np.unique(found, return_inverse=True)
    index = index.reshape(found.shape)
    return index, tuple(f"superpixel {number}" for number in range(int(index.max()) + 1))
