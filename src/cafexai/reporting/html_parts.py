"""Small drawings inside of pages: bars, maps of images, words."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TypeVar

import numpy as np

from ..explanation import Explanation
from ..plotting.labels import shorten
from ..plotting.palette import DOWN, UP, tint
from ..plotting.pixels import data_uri, visible_image
from ..plotting.regions import overlay, region_scores, region_title
from ..plotting.text_plot import longest, longest_net, words

T = TypeVar("T")
HALF, TALL = 70, 14  # pixels of a bar to one side, and of a line
WORDS, SIDE = 400, 120  # words that are shown; pixels of a map on the page


def cap(items: Sequence[T], most: int, what: str) -> tuple[Sequence[T], str]:
    """The first of them, and "n more" if there are."""
    rest = len(items) - most
    return items[:most], f"{rest} more {what}{'s' * (rest > 1)}" if rest > 0 else ""


def bar(positive: float, negative: float, net: float, end: float) -> str:
    """Both signs around a middle line, the net as a mark; an arrow where a bar is longer than the end of the scale."""

    def pixels(value: float) -> float:
        return HALF * max(-1.0, min(value / end, 1.0)) if end else 0.0

    up, down, at = pixels(positive), pixels(negative), HALF + 8 + pixels(net)
    middle = HALF + 8
    parts = [f'<rect x="{middle - down:.1f}" y="2" width="{down:.1f}" height="10" fill="{DOWN}"/>']
    parts.append(f'<rect x="{middle}" y="2" width="{up:.1f}" height="10" fill="{UP}"/>')
    if positive > end:
        parts.append(f'<path d="M{middle + HALF} 2l7 5l-7 5z" fill="{UP}"/>')
    if negative > end:
        parts.append(f'<path d="M{middle - HALF} 2l-7 5l7 5z" fill="{DOWN}"/>')
    parts.append(f'<path d="M{middle} 0v{TALL}" stroke="currentColor" stroke-width=".7"/>')
    parts.append(f'<path d="M{at:.1f} 3l4 4l-4 4l-4 -4z" fill="currentColor" stroke="#fff" stroke-width="1"/>')
    size = f'width="{2 * middle}" height="{TALL}" viewBox="0 0 {2 * middle} {TALL}"'
    return f'<svg {size} aria-hidden="true" style="vertical-align:middle">{"".join(parts)}</svg>'


def image_strip(explanation: Explanation) -> str:
    """The image, and the net of its regions on it."""
    found = region_scores(explanation)
    shown: dict[str, np.ndarray] = {}
    if (picture := visible_image(explanation)) is not None:
        picture = picture if picture.ndim == 3 else np.repeat(picture[..., None], 3, 2)
        shown["the image"] = np.round(255 * picture.clip(0, 1)).astype(np.uint8)
    shown[region_title(found)] = overlay(explanation, found)
    height, width, _ = next(iter(shown.values())).shape
    size = f"width:{SIDE}px;height:{max(round(SIDE * height / width), 8)}px;image-rendering:pixelated;border:1px solid #ccc"
    figures = (
        '<figure style="display:inline-block;margin:0 8px 8px 0">'
        f'<img alt="{escape(name)}" src="{data_uri(pixels)}" style="{size}">'
        f'<figcaption style="font-size:smaller">{escape(name)}</figcaption></figure>'
        for name, pixels in shown.items()
    )
    return f"<div>{''.join(figures)}</div>"


def word_strip(explanation: Explanation) -> str:
    """Words tinted by their nets, with a bar above for what they pushed up and one below for what they pushed down."""
    read, apart = words(explanation)
    kept, more = cap(read, WORDS, "word")
    end, top = longest(read, apart), longest_net(read, apart)

    def one(text: str, positive: float, negative: float, net: float) -> str:
        up, down = (round(10 * min(score / end, 1.15)) if end else 0 for score in (positive, negative))
        colours = f"background:{tint(net, top, 0.5)};color:#1A1A1A"
        looks = f"display:inline-block;margin:{13 - up}px 3px {13 - down}px 0;padding:0 3px;{colours};"
        looks += f"border-top:{up}px solid {UP};border-bottom:{down}px solid {DOWN}"
        said = f"{positive:.3g} up, {negative:.3g} down"
        return f'<span title="{escape(said)}" style="{looks}">{escape(shorten(text, 40))}</span>'

    text = " ".join(one(word.text, word.positive, word.negative, word.net) for word in kept)
    aside = " ".join(one(word.text, word.positive, word.negative, word.net) for word in apart)
    return (
        f'<div style="max-width:60em">{text} {escape(more)}</div>'
        f'<div style="border-top:1px solid #aaa;max-width:60em;font-style:italic">{aside}</div>'
    )
