"""Images as arrays: what was explained, and its scores by place."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._inputs.images import channels_last, is_image
from ..explanation import Explanation
from .palette import rgb

PREFIX = 8  # tokens before those of the patches, at most: class tokens and registers


@dataclass(frozen=True)
class Places:
    """Where the scores of one row lie in an image: those of pixels, of a convolution's places, or of tokens on a patch grid."""

    height: int
    width: int
    last: bool = False  # channels come last
    prefix: int | None = None  # tokens before those of the patches; None: rows are no tokens

    def sum(self, scores: Tensor) -> np.ndarray:
        """Scores of one row, (1, ...), summed over channels or the width of a token: (height, width)."""
        values = scores[0].double().cpu()
        if self.prefix is not None:
            return values.sum(-1)[self.prefix :].reshape(self.height, self.width).numpy()
        return values.sum(-1 if self.last else 0).numpy()

    def sum_prefix(self, scores: Tensor) -> float:
        """The sum of the scores of one row that have no place in the image: those of class tokens and registers."""
        return float(scores[0, : self.prefix or 0].double().sum())

    @property
    def prefix_name(self) -> str:
        """What has no place in the image; "" if all has one."""
        if not self.prefix:
            return ""
        return "class token" if self.prefix == 1 else f"{self.prefix} tokens before the patches"


def find_places(explanation: Explanation) -> Places | None:
    """Where the scores of each row lie in an image; None if the rows are no images."""
    parts = explanation.parts(explanation.positive)
    if len(parts) != 1 or explanation.grouped or explanation.features.tokens is not None:
        return None
    shape = parts[0].shape[1:]
    if explanation.meta.settings.get("layer") is None:
        return _of_channels(shape, channels_last(shape)) if explanation.kind == "image" else None
    size = _input_size(explanation)
    if len(shape) == 3:
        return _of_channels(shape, size is not None and _alike(shape[:2], size) and not _alike(shape[1:], size))
    return _of_tokens(shape[0], size) if len(shape) == 2 and size is not None else None


def _alike(one: Sequence[int], other: Sequence[int]) -> bool:
    """Two sizes have the same shape."""
    return one[0] * other[1] == one[1] * other[0]


def _of_channels(shape: Sequence[int], last: bool) -> Places:
    height, width = shape[:2] if last else shape[1:]
    return Places(height, width, last)


def _of_tokens(tokens: int, size: tuple[int, int]) -> Places | None:
    """Tokens as patches of an image of this size, row by row, with as few as possible before them."""
    for prefix in range(min(PREFIX, tokens - 1) + 1):
        height = math.isqrt((tokens - prefix) * size[0] // size[1])
        width, rest = divmod(tokens - prefix, height) if height else (0, 1)
        if not rest and height * size[1] == width * size[0]:
            return Places(height, width, prefix=prefix)
    return None


def _input_size(explanation: Explanation) -> tuple[int, int] | None:
    """Height and width of the images that were explained at a layer; None if they were none, or are not known."""
    image = input_image(explanation)
    if image is None:
        return None
    first = 1 if channels_last(image.shape[1:]) else 2
    return image.size(first), image.size(first + 1)


def input_image(explanation: Explanation) -> Tensor | None:
    """The explained images, (rows, ...), also of an explanation of a layer; None if they are not known."""
    if explanation.meta.settings.get("layer") is None:
        return explanation.parts(explanation.shown)[0]
    given: tuple[Tensor, ...] = () if explanation.job is None else explanation.job.given.tensors
    return given[0] if len(given) == 1 and given[0].ndim == 4 and is_image(given[0].shape[1:]) else None


def maps(explanation: Explanation) -> dict[str, np.ndarray]:
    """Positive, negative, net and conflict of every place; the conflict is what cancelled there, the smaller of both."""
    places = find_places(explanation)
    assert places is not None
    parts = (explanation.positive, explanation.negative, explanation.combined)
    up, down, net = (places.sum(explanation.parts(part)[0]) for part in parts)
    return {"positive": up, "negative": down, "net": net, "conflict": np.minimum(up, down)}


def visible_image(explanation: Explanation) -> np.ndarray | None:
    """The image as it looks: (height, width) or (height, width, 3), from 0 to 1; None if it is not known."""
    values = input_image(explanation)
    if values is None:
        return None
    picture = values[0].double() if channels_last(values.shape[1:]) else values[0].double().permute(1, 2, 0)
    picture = picture[..., :3] if picture.shape[-1] >= 3 else picture.mean(-1)
    low, high = picture.min(), picture.max()
    if low < 0 or (high > 1 and (high > 255 or picture.ndim == 2)):  # standardised, or any other range
        picture = (picture - low) / (high - low).clamp_min(torch.finfo(picture.dtype).tiny)
    elif high > 1:
        picture = picture / 255
    return picture.cpu().numpy()


def reach(values: np.ndarray) -> float:
    """The end of the scale: the largest value, unless a few pixels are far beyond all others."""
    sizes = np.abs(values)
    most, usual = float(sizes.max(initial=0.0)), float(np.quantile(sizes, 0.995)) if sizes.size else 0.0
    return usual if 0 < 3 * usual < most else most


def colour_values(values: np.ndarray, end: float, up: str, down: str) -> np.ndarray:
    """Numbers as colours, (height, width, 3) bytes: white for 0, ``up`` for ``end``, ``down`` for -end."""
    share = np.clip(np.abs(values) / end, 0, 1)[..., None] if end else np.zeros((*values.shape, 1))
    colour = np.where(values[..., None] > 0, np.array(rgb(up)), np.array(rgb(down)))
    return np.round(255 * (1 + share * (colour - 1))).astype(np.uint8)


def data_uri(pixels: Any) -> str:
    """An RGB image, (height, width, 3) bytes, as a PNG inside of a page."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + pixels[y].tobytes() for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in parts)
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()
