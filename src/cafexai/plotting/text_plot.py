"""One explained text: every word with a bar above it for what it pushed up, and one below for what it pushed down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..explanation import Explanation
from .figures import add_heading, bare, figure, text_width
from .labels import shorten
from .palette import DOWN, UP, tint
from .row_lines import align_numbers, number
from .table_plot import headline
from .totals import in_total, sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .picture import Picture

WIDTH, LINE = 10.0, 0.95  # inches
SIZE, GAP, TALL = 11, 0.09, 0.22  # points of letters; inches between words; inches of the longest bar
NUMBERS = 7.5  # points of the numbers below words
APART = "(special"  # begins the name of the tokens that a tokenizer adds, together


@dataclass(frozen=True)
class Word:
    """One word, or what stands apart from the text, with its scores."""

    text: str
    positive: float
    negative: float
    net: float


def words(explanation: Explanation) -> tuple[list[Word], list[Word]]:
    """The words of one row in their order, and what stands apart: special tokens and the biases."""
    parts = (explanation.positive, explanation.negative, explanation.combined)
    scores = zip(*(explanation.flat(part)[0].tolist() for part in parts), strict=True)
    found = [Word(name, *three) for name, three in zip(explanation.names(), scores, strict=True) if name]
    bias = Word("bias", explanation.bias_positive.item(), explanation.bias_negative.item(), explanation.bias.item())
    apart = [word for word in found if word.text.startswith(APART)]
    return [word for word in found if not word.text.startswith(APART)], [*apart, bias]


def longest(read: list[Word], apart: list[Word]) -> float:
    """The score with the longest bar: of a word, or where these have none, of what stands apart."""
    return max((max(word.positive, word.negative) for word in read), default=0.0) or max(
        max(word.positive, word.negative) for word in apart
    )


def longest_net(read: list[Word], apart: list[Word]) -> float:
    """The net with the strongest colour."""
    return max((abs(word.net) for word in read), default=0.0) or max(abs(word.net) for word in apart)


def text(explanation: Explanation) -> Picture:
    """The words of one row, wrapped, tinted by their net score, with their bars."""
    read, apart = words(explanation)
    lines = [*_wrap(read), _wrap(apart)[0]]
    top = 0.25
    drawn = figure(WIDTH + 0.4, LINE * len(lines) + top + 1.25)
    axes = drawn.subplots()
    bare(axes)
    axes.set_xlim(0, WIDTH)
    axes.set_ylim(LINE * len(lines) + top, 0)
    end, reach = longest(read, apart), longest_net(read, apart)
    numbers = iter(align_numbers([word.net for line in lines for *_, word in line], 3))
    for place, line in enumerate(lines):
        base = LINE * (place + 0.5) + (top if place == len(lines) - 1 else 0)
        for left, wide, word in line:
            _draw(axes, word, next(numbers), left, base, wide, end, reach)
    axes.axhline(LINE * (len(lines) - 1) + top / 2, color="0.7", linewidth=0.8)
    row = in_total(explanation, "words")
    meaning = (
        f"Bars: what a word pushed up (above) and down (below); the longest is {number(end)}. Background and number: the net "
        "of both."
    )
    add_heading(drawn, headline(explanation, row), "\n".join([meaning, sentence(row), *explanation.notes]), _legend())
    return drawn


def _legend() -> list[Any]:
    from matplotlib.patches import Patch

    return [Patch(color=UP, label="positive: pushes up"), Patch(color=DOWN, label="negative: pushes down")]


def _draw(axes: Axes, word: Word, told: str, left: float, base: float, wide: float, end: float, reach: float) -> None:
    from matplotlib.patches import Rectangle

    half = 0.13
    axes.add_patch(Rectangle((left, base - half), wide, 2 * half, color=tint(word.net, reach, 0.5), linewidth=0))
    for score, colour, edge, way in ((word.positive, UP, base - half, -1), (word.negative, DOWN, base + half, 1)):
        tall = TALL * min(score / end, 1.15) if end else 0.0
        axes.add_patch(Rectangle((left, edge), wide, way * tall, color=colour, linewidth=0))
    style = "italic" if word.text == "bias" or word.text.startswith(APART) else "normal"
    axes.text(left + wide / 2, base + half + TALL + 0.09, told, ha="center", va="center", fontsize=NUMBERS, color="0.3")
    axes.text(
        left + wide / 2, base, shorten(word.text, 40), ha="center", va="center", fontsize=SIZE, parse_math=False, style=style
    )


def _wrap(read: list[Word]) -> list[list[tuple[float, float, Word]]]:
    """Lines of (left, width, word), in inches."""
    lines: list[list[tuple[float, float, Word]]] = [[]]
    at = 0.0
    for word in read:
        wide = max(text_width(shorten(word.text, 40), SIZE) / 72 + 0.06, 0.38)  # room for a number below
        if at + wide > WIDTH and lines[-1]:
            lines.append([])
            at = 0.0
        lines[-1].append((at, wide, word))
        at += wide + GAP
    return lines
