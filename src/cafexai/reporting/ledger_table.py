"""One row as a table with bars: from the baseline to the output, in digits that add up."""

from __future__ import annotations

from collections.abc import Sequence

from ..plotting.rounding import Shown, ShownLine
from .escape import Html, html, tag

STEPS = 100  # of a bar, from the middle to its end
_KINDS = {"baseline": "v", "down | up": "b"}  # classes of columns
STEP = 0.47  # per cent of the width: a little room is left on both sides


SIZE = "mean |net|"


def ledger(
    row: Shown,
    first: str = "baseline output",
    last: str = "output",
    feature: str = "feature",
    sizes: Sequence[str] | None = None,
) -> Html:
    """The table: what it starts from, every line with both signs and the net, what it ends with.

    ``sizes`` are mean |net| of the lines, where the row is an average of rows.
    """
    refined, starts = any(line.refined for line in row.lines), any(line.baseline for line in row.lines)
    several = sizes is not None
    head = [feature, *["baseline"] * starts, "down | up", "up", "down", "net", *["refined"] * refined, *[SIZE] * several]
    reach = _reach(row)
    body = [
        _end(first, row.start, refined, starts, several=several),
        *(_line(line, reach, starts, None if sizes is None else sizes[place]) for place, line in enumerate(row.lines)),
        _end(last, row.end, refined, starts, "z", several),
    ]
    return tag(
        "table",
        tag("caption", f"all numbers {row.times}") if row.times else "",
        tag("thead", tag("tr", *(tag("th", word, kind=_KINDS.get(word)) for word in head))),
        tag("tbody", *body),
    )


def bar(element: str, up: float, down: float, net: float, reach: float, kind: str = "") -> Html:
    """An element with a bar to each side from its middle, and a mark at the net.

    Lengths are classes, because the page allows no style attributes; the bars are boxes, because gradients print slowly.
    """
    words = [kind] * bool(kind)
    words += [f"{side}{steps}" for side, value in (("u", up), ("d", down)) if (steps := _steps(value, reach))]
    both = up > 0 and down > 0 and len(words) > bool(kind)  # else the net is the end of the bar
    if both:
        words.append(f"{'n' if net >= 0 else 'm'}{_steps(abs(net), reach)}")
    words += [word for word, value in (("x", up), ("y", down)) if value > 1.005 * reach]  # it goes on beyond the picture
    return tag(element, tag("i") if both else "", kind=" ".join(words) or None)


def bar_styles() -> str:
    """What these classes mean: ends of the bar, and the place of the mark."""
    half = range(STEPS + 1)
    ends = [f".u{i}{{--u:{STEP * i:g}%}}.d{i}{{--d:{STEP * i:g}%}}" for i in half if i]
    return "".join([*ends, *(f".n{i}{{--n:{50 + STEP * i:g}%}}.m{i}{{--n:{50 - STEP * i:g}%}}" for i in half)])


def _line(line: ShownLine, reach: float, starts: bool, size: str | None) -> Html:
    exact = line.exact
    name = tag("th", line.name, *([" ", tag("span", line.value)] if line.value else []))
    numbers = [line.positive, line.negative, line.net, *([line.refined] if line.refined else [])]
    picture = bar("td", exact.positive, exact.negative, exact.net, reach, "b")
    start = [tag("td", line.baseline, kind="v")] * starts
    last = [] if size is None else [tag("td", tag("b", size))]
    cells = (tag("td", format_signed(one)) for one in numbers)
    return tag("tr", name, *start, picture, *cells, *last, kind=None if exact.single else "s")


def _end(name: str, number: str, refined: bool, starts: bool, kind: str = "a", several: bool = False) -> Html:
    return tag(
        "tr",
        tag("th", name),
        *[tag("td", kind="v")] * starts,
        tag("td", kind="b"),
        tag("td"),
        tag("td"),
        *[tag("td", format_signed(number))] * (1 + refined),
        *[tag("td")] * several,
        kind=kind,
    )


def format_signed(number: str) -> Html:
    """A number with the sign that typesetters use for minus."""
    return html(number.replace("-", "\u2212"))


def _reach(row: Shown) -> float:
    """The length of the longest bar: a single feature, unless sums are little longer; others leave the picture."""
    longest = max((max(line.exact.positive, line.exact.negative) for line in row.lines), default=0.0)
    single = max((max(line.exact.positive, line.exact.negative) for line in row.lines if line.exact.single), default=0.0)
    return min(longest, 1.25 * single) or longest


def _steps(value: float, reach: float) -> int:
    return min(round(STEPS * value / reach), STEPS) if reach else 0
