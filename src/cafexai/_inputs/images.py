"""Pictures as people have them: PIL images, or arrays of bytes, through the preprocessing of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def is_picture(value: Any) -> bool:
    """A PIL image, or a list of them."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(map(is_picture, value))
    return type(value).__module__.split(".")[0] == "PIL" and hasattr(value, "getbands")


def preprocess_images(inputs: Any, preprocess: Callable[[Any], Any], call: str) -> tuple[Tensor, Tensor | None]:
    """What the preprocessing makes of each picture, and the pictures in that shape, from 0 to 1, where it keeps their size."""
    items = _items(inputs)
    if not items:
        raise ValueError(f"{call}(..., preprocess=...): there are no pictures.")
    ready = [_tensor(preprocess(item), call) for item in items]
    if len({part.shape for part in ready}) > 1:
        raise ValueError(
            f"{call}(..., preprocess=...): it gives tensors of different shapes, {[tuple(p.shape) for p in ready[:5]]}."
        )
    x = torch.stack(ready)
    seen = [part for part in (_match_shape(item, x.shape[1:]) for item in items) if part is not None]
    return x, torch.stack(seen) if len(seen) == len(items) else None


def _items(inputs: Any) -> list[Any]:
    """One picture after the other: of a list, of a stack of arrays, or a single one."""
    if isinstance(inputs, (list, tuple)):
        return list(inputs)
    if isinstance(inputs, (np.ndarray, Tensor)) and inputs.ndim == 4:
        return list(inputs)
    return [inputs]


def _tensor(value: Any, call: str) -> Tensor:
    value = torch.as_tensor(np.asarray(value)) if isinstance(value, np.ndarray) else value
    if not isinstance(value, Tensor):
        raise ValueError(f"{call}(..., preprocess=...): it gives a {type(value).__name__}; a model takes tensors.")
    return value[0] if value.ndim == 4 and len(value) == 1 else value


def _match_shape(item: Any, shape: torch.Size) -> Tensor | None:
    """The picture in the shape of the rows, channels first or last; None if its size is another."""
    pixels = torch.as_tensor(np.array(item))
    if pixels.dtype is not torch.uint8:
        return None
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    for turned in (pixels, pixels.permute(2, 0, 1)):
        if turned.shape == shape:
            return turned.double() / 255
    return None


CELLS = 8  # an image is cut into a grid of so many cells in each direction


def is_image(shape: Sequence[int]) -> bool:
    """Rows of this shape are (channels, height, width) or (height, width, channels), with at most four channels."""
    return len(shape) == 3 and min(shape[0], shape[2]) <= 4


def channels_last(shape: Sequence[int]) -> bool:
    """Whether a row is (height, width, channels): few of them at the end, and not in front."""
    return shape[0] > 4 >= shape[2]


def grid_cells(height: int, width: int, cells: int = CELLS) -> Tensor:
    """The cell of every pixel of an image, (height, width): a grid of ``cells`` x ``cells``, of single pixels at most."""
    down, right = (torch.arange(size) * min(cells, size) // size for size in (height, width))
    return min(cells, width) * down[:, None] + right


def cell_index(shape: Sequence[int]) -> Tensor:
    """The cell of every element of a row: a grid of 8 x 8 over the image, all channels of a pixel in one cell."""
    last = channels_last(shape)
    channels, height, width = (shape[2], *shape[:2]) if last else shape
    cells = grid_cells(height, width).expand(channels, height, width)
    return (cells.permute(1, 2, 0) if last else cells).flatten()
