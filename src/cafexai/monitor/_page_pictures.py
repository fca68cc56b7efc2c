"""Drawings of the page of a monitor: histograms of columns that moved, and windows over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import ceil, log2

from ..reporting.escape import Html, join_parts, tag
from ._verdict import Histogram, Verdict

WIDE, TALL = 240, 90  # of a histogram
TITLES = {"input": "value", "positive": "pushes up", "negative": "pushes down", "output": "output of the model"}
LONG, HIGH = 720, 170  # of the timeline, at most
BESIDE = 64  # pixels of a window, if there are few
REACH = 4.0  # doublings of the limit that the timeline shows


def draw_panels(histograms: Sequence[Histogram]) -> Html:
    """Small multiples, one line of panels for each feature."""
    parts = []
    for feature, group in groupby(histograms, key=lambda one: one.feature):
        panels = [_panel(one) for one in group]
        parts += [tag("h4", feature or "output"), tag("div", *panels, kind="panels")]
    return join_parts(parts)


def _panel(one: Histogram) -> Html:
    name = TITLES[one.kind]
    top = max(*one.before, *one.now, 1e-9)
    step = WIDE / len(one.before)

    def height(share: float) -> float:
        return TALL * (1 - share / top)

    def outline(shares: Sequence[float]) -> str:
        points = [f"{place * step:.1f} {height(share):.1f}H{(place + 1) * step:.1f}" for place, share in enumerate(shares)]
        return "L".join(points)

    area = tag("path", d=f"M0 {TALL}L{outline(one.before)}V{TALL}Z", kind="before")
    line = tag("path", d=f"M{outline(one.now)}", kind=f"now {one.kind}")
    axis = tag("path", d=f"M0 {TALL}H{WIDE}", kind="axis")
    said = f"{one.feature or 'model'}, {name}: reference and window"
    box = f"0 -4 {WIDE} {TALL + 22}"
    picture = tag("svg", area, line, axis, *_ticks(one, step), viewbox=box, role="img", label=said)
    return tag("figure", picture, tag("figcaption", name))


def _ticks(one: Histogram, step: float) -> list[Html]:
    """The ends of the scale, and the names of bars as far as there is room."""
    found = []
    bars = len(one.before) - len(one.labels)
    if one.edges:
        found.append(tag("text", f"{one.edges[0]:.3g}", x=0, y=TALL + 14))
        found.append(tag("text", f"{one.edges[-1]:.3g}", x=f"{bars * step:.1f}", y=TALL + 14, text_anchor="end"))
    room = max(1, int(step / 6)) if not one.edges else 9
    for place, label in enumerate(one.labels):
        text = label if len(label) <= room else label[: max(room - 1, 1)] + "\u2026"
        if room > 2 or one.edges:
            anchor = "end" if one.edges else "middle"
            at = bars * step - 4 if one.edges else (bars + place + 0.5) * step  # beside the bar, not in it
            found.append(tag("text", text, x=f"{at:.1f}", y=TALL + 14 if not one.edges else 8 + 12 * place, text_anchor=anchor))
    if room <= 2 and not one.edges:
        found = [tag("text", one.labels[0], x=0, y=TALL + 14)]
        found.append(tag("text", one.labels[-1], x=WIDE, y=TALL + 14, text_anchor="end"))
    return found


def draw_timeline(verdicts: Mapping[str, Verdict]) -> Html:
    """A bar for each window: its largest statistic as a multiple of the limit; the dashed line is the limit."""
    long = min(LONG, 60 + BESIDE * len(verdicts))
    step = (long - 60) / len(verdicts)
    base, limit = HIGH - 30, HIGH - 30 - (HIGH - 40) / (REACH + 1)
    parts = []
    for place, (name, one) in enumerate(verdicts.items()):
        ratio = max(value / bound for value, bound in one.statistics.values())
        if one.kind != "none":
            ratio = max(ratio, 1.0)
        tall = (HIGH - 40) * (ratio if ratio <= 1 else min(1 + log2(ratio), REACH + 1)) / (REACH + 1)
        at = 60 + place * step
        box = tag("title", f"{name}: {one.severity}, {ratio:.1f} times the limit")
        wide = max(step - min(4.0, step / 4), 0.5)
        parts.append(tag("rect", box, x=f"{at:.1f}", y=f"{base - tall:.1f}", width=f"{wide:.1f}", height=f"{tall:.1f}",
                         kind=f"bar-{one.severity}"))  # fmt: skip
    shown = max(1, ceil(72 / step))  # as many names as there is room for
    for place, name in enumerate(verdicts):
        if place % shown == 0:
            parts.append(tag("text", name[:12], x=f"{60 + place * step:.1f}", y=HIGH - 14))
    parts.append(tag("path", d=f"M60 {limit:.1f}H{long}", kind="limit"))
    parts.append(tag("text", "limit", x=52, y=f"{limit + 4:.1f}", text_anchor="end"))
    parts.append(tag("text", f"{2**REACH:.0f} times", x=52, y=14, text_anchor="end"))
    said = "Largest statistic of each window as a multiple of its limit; see the table below"
    return tag("svg", *parts, viewbox=f"0 0 {long} {HIGH}", width=long, height=HIGH, role="img", label=said)
