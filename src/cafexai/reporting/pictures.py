"""Rows that are no table: images with their maps, and texts whose words carry both signs."""

from __future__ import annotations

import base64
import struct
import zlib

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from ..explanation import Explanation
from ..plotting.regions import Cut, overlay, region_scores, region_title
from ..plotting.row_lines import number
from .escape import Html, join_parts, tag
from .summed import channels_first

UP, DOWN, CONFLICT = (0, 114, 178), (213, 94, 0), (122, 62, 157)
LEVELS = 24  # of a colour in a map
GREY, PALETTE, COLOUR = 0, 3, 2  # kinds of PNG files
WORD_STEPS = 10  # thicknesses of the lines over and under words


def image_row(one: Explanation, side: int) -> Html:
    """The picture, the net of its cells on it, and what each pixel pushed up, down and cancelled."""
    return tag("div", *(_figure(address, name) for name, address in image_maps(one, side).items()), kind="maps")


def image_maps(one: Explanation, side: int, *cuts: Cut) -> dict[str, str]:
    """Names and addresses: the picture, the nets of its cells (and of other regions) on it, then single pixels on one scale."""
    parts = (one.positive, one.negative)
    up, down = (_smaller(channels_first(one.parts(part)[0])[0].double().sum(0), side) for part in parts)
    reach = max(up.max().item(), down.max().item())
    found = {"the picture": picture(channels_first(one.parts(one.shown)[0])[0], side)}
    for regions in (region_scores(one, 0, cut) for cut in (Cut(), *cuts)):
        found[region_title(regions)] = png(_fewer(torch.from_numpy(overlay(one, regions)), side), COLOUR)
    found["pushed up"], found["pushed down"] = heat(up, reach, UP), heat(down, reach, DOWN)
    found["cancelled in the pixel"] = heat(torch.minimum(up, down), reach, CONFLICT)
    return found


def picture(image: Tensor, side: int) -> str:
    """An image (channels, height, width) as the address of a PNG, from its darkest to its brightest value."""
    values = torch.stack([_smaller(one, side, mean=True) for one in image.double()])
    low, high = values.min(), values.max()
    pixels = ((values - low) / (high - low if high > low else 1) * 255).round().to(torch.uint8)
    grey = len(pixels) < 3
    return png(pixels[0] if grey else pixels[:3].permute(1, 2, 0), GREY if grey else COLOUR)


def heat(values: Tensor, reach: float, colour: tuple[int, int, int]) -> str:
    """A map (height, width) as the address of a PNG: the more, the less transparent; below 0 in the colour of down."""
    levels = (values / (reach or 1.0) * LEVELS).round().clamp(-LEVELS, LEVELS).long()
    used = torch.arange(LEVELS + 1 if int(levels.min()) >= 0 else 2 * LEVELS + 1)  # 0, the colour, then what is below 0
    colours = torch.tensor([colour if i <= LEVELS else DOWN for i in used.tolist()], dtype=torch.uint8)
    opaque = torch.tensor([255 * (i if i <= LEVELS else i - LEVELS) // LEVELS for i in used.tolist()], dtype=torch.uint8)
    return png(torch.where(levels >= 0, levels, LEVELS - levels).to(torch.uint8), PALETTE, colours, opaque)


def png(pixels: Tensor, kind: int, colours: Tensor | None = None, opaque: Tensor | None = None) -> str:
    """A PNG file of bytes (height, width) or (height, width, 3), as an address that holds it."""
    height, width = pixels.shape[:2]
    lines = torch.cat([pixels.new_zeros(height, 1), pixels.reshape(height, -1)], 1)  # 0: the line is stored as it is
    blocks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))]
    if colours is not None and opaque is not None:
        blocks += [(b"PLTE", colours.numpy().tobytes()), (b"tRNS", opaque.numpy().tobytes())]
    blocks += [(b"IDAT", zlib.compress(lines.cpu().numpy().tobytes(), 9)), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n"
    for name, content in blocks:
        data += struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    return "data:image/png;base64," + base64.b64encode(data).decode()


def text_row(one: Explanation) -> Html:
    """The words in their order: a line over a word is what it pushed up, one under it what it pushed down."""
    up, down = (one.flat(part)[0].tolist() for part in (one.positive, one.negative))
    reach = max(*up, *down) or 1.0
    words = []
    for word, plus, minus in zip(one.names(), up, down, strict=True):
        if word:
            thick = [round(WORD_STEPS * value / reach) for value in (plus, minus)]
            kind = " ".join(f"{side}{steps}" for side, steps in zip("ab", thick, strict=True) if steps)
            words.append(tag("span", word, kind=kind or None, title=f"up {number(plus)}, down {number(minus)}"))
    return tag("p", join_parts(words, " "), kind="words")


def word_styles() -> str:
    """The classes that ``text_row`` uses."""
    steps = [(i, f"{0.7 * i:.1f}px") for i in range(1, WORD_STEPS + 1)]
    return "".join(f".a{i}{{border-top-width:{thick}}}.b{i}{{border-bottom-width:{thick}}}" for i, thick in steps)


def _figure(address: str, name: str) -> Html:
    image = Html(f'<img src="{address}" alt="{name}">')  # an address that png() made, and words of ours with a number
    return tag("figure", image, tag("figcaption", name))


def _fewer(pixels: Tensor, side: int) -> Tensor:
    """At most ``side`` high and wide, (height, width, 3): some of the pixels, as they are."""
    height, width = pixels.shape[:2]
    step = max(1.0, max(height, width) / side)
    down, right = ((torch.arange(max(int(size / step), 1)) * step).long() for size in (height, width))
    return pixels[down][:, right]


def _smaller(values: Tensor, side: int, mean: bool = False) -> Tensor:
    """At most ``side`` high and wide, summed (or averaged) over areas."""
    height, width = values.shape
    longest = max(height, width)
    if longest <= side:
        return values
    size = max(height * side // longest, 1), max(width * side // longest, 1)
    pooled = adaptive_avg_pool2d(values[None], size)[0]
    return pooled if mean else pooled * (values.numel() / pooled.numel())
