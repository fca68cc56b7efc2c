"""An audit as a picture and as a page of a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..plotting.figures import add_heading, figure, light, rows_down
from ..plotting.labels import labels
from ..plotting.palette import AUDIT
from ..reporting.html_parts import cap
from ..reporting.notebook import ROWS, table
from .audit import Audit

if TYPE_CHECKING:
    from ..plotting.picture import Picture


def page(audit: Audit) -> str:
    """The counts by layer, and the verdict above them."""
    kept, more = cap(list(audit.by_layer.items()), ROWS, "layer")
    lines = []
    for name, (conflicts, under, hidden, undecided) in kept:
        share = f"{under / max(conflicts, 1):.1%}"
        lines.append([escape(name or "the model"), *map(str, (conflicts, under, hidden, undecided)), share])
    skipped = [f"not audited: {name}, {reason}" for name, reason in audit.skipped.items()]
    head = ["layer", "conflicts", "underreported", "hidden", "undecided", "share underreported"]
    return table(head, lines, f"Audit: {audit}", skipped, more)


def picture(audit: Audit) -> Picture:
    """Of all conflicts of a layer, in per cent: hidden, otherwise underreported, undecided, reported."""
    names = list(audit.by_layer)
    drawn = figure(9, 1.9 + 0.36 * max(len(names), 2))
    axes = drawn.subplots()
    left = [0.0] * len(names)
    for kind, colour in AUDIT.items():
        widths = []
        for conflicts, under, hidden, undecided in audit.by_layer.values():
            counts = {"hidden": hidden, "underreported only": under - hidden, "undecided": undecided}
            counts["reported"] = conflicts - under - undecided
            widths.append(100 * counts[kind] / max(conflicts, 1))
        axes.barh(range(len(names)), widths, 0.62, left=left, color=colour, label=kind)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    short = labels([f"layer {name}" if name else "the model" for name in names], 34)
    rows_down(axes, [f"{name}: {audit.by_layer[own][0]} conflicts" for name, own in zip(short, names, strict=True)])
    light(axes)
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of the conflicts of the layer")
    add_heading(drawn, f"{str(audit)[0].upper()}{str(audit)[1:]}", "", axes.containers, columns=4)
    return drawn
