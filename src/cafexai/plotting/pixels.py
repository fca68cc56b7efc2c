"""Images as arrays: what was explained, and its scores per pixel."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..explanation import Explanation
from .palette import rgb


def channels_last(shape: tuple[int, ...]) -> bool:
    """Whether (rows, a, b, c) is (rows, height, width, channels): few of them at the end, and not in front."""
    return shape[1] > 4 >= shape[3]


def per_pixel(scores: Tensor) -> np.ndarray:
    """Scores of one image, (1, channels, height, width) or channels last, summed over the channels: (height, width)."""
    return scores[0].double().sum(-1 if channels_last(tuple(scores.shape)) else 0).cpu().numpy()


def maps(explanation: Explanation) -> dict[str, np.ndarray]:
    """Positive, negative, net and conflict of every pixel; the conflict is what cancelled there, the smaller of both."""
    parts = (explanation.positive, explanation.negative, explanation.combined)
    up, down, net = (per_pixel(explanation.parts(part)[0]) for part in parts)
    return {"positive": up, "negative": down, "net": net, "conflict": np.minimum(up, down)}


def seen(explanation: Explanation) -> np.ndarray:
    """The image as it looks: (height, width) or (height, width, 3), from 0 to 1."""
    values = explanation.parts(explanation.shown)[0]
    picture = values[0].double() if channels_last(tuple(values.shape)) else values[0].double().permute(1, 2, 0)
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


def coloured(values: np.ndarray, end: float, up: str, down: str) -> np.ndarray:
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
