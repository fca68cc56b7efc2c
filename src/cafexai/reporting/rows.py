"""Every explained row: one line that tells the result, and behind it the reasons."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ..explanation import Explanation
from ..plotting.rounding import Shown, round_explanation
from ..plotting.row_lines import baseline_lines, number
from .escape import Html, join_parts, tag
from .ledger_table import bar, format_signed, ledger
from .pictures import image_row, text_row
from .sentences import sentences
from .summed import by_region
from .text_ledger import frozen_lines, refined_lines

MANY = 1000  # rows, above which each is told in fewer words
FEATURE = {"image": "part of the picture", "text": "word"}  # what a line of the table is


def rows(
    explanation: Explanation,
    names: Sequence[str],
    prefix: str,
    label: str,
    most: int,
    order: str = "net",
    told: Mapping[int, Sequence[str]] | None = None,
) -> Iterator[Html]:
    """One element per row; ``prefix`` begins its address in the page, ``label`` says which of several explanations it is of."""
    kind, count = kind_of(explanation), len(explanation)
    shares = explanation.conflict_share.tolist()
    sides = [explanation.flat(part).sum(1) for part in (explanation.positive, explanation.negative)]
    reach = max([side.max().item() for side in sides if count], default=0.0)
    side = 112 if count <= 20 else 64 if count <= 200 else 32
    what = targets(explanation)
    labels = [label] * count if label or len(set(what)) < 2 else what
    parts = by_region(explanation) if kind == "image" else explanation
    for place, (name, share) in enumerate(zip(names, shares, strict=True)):
        one, part = explanation[place], parts[place]
        row = round_explanation(part, most, order=order)
        up, down = (one_side[place].item() for one_side in sides)
        more = [
            *baseline_lines(part),
            *frozen_lines(one),
            *refined_lines(one),
            *((told or {}).get(place, ())),
        ]
        yield tag(
            "details",
            _head(one, row, name, labels[place], bar("span", up, down, up - down, reach, "b")),
            image_row(one, side) if kind == "image" else text_row(one) if kind == "text" else "",
            tag("p", join_parts(sentences(part, row, kind, brief=count > MANY), " ")),
            ledger(row, feature=FEATURE.get(kind, "feature")),
            *([tag("p", join_parts(more, ". "), ".", kind="q")] if more else []),
            id=f"{prefix}{place}",
            data_o=f"{one.output.item():.6g}",
            data_c=f"{share:.4g}",
            data_e=f"{one.completeness_error.abs().item():.2g}",
        )


def _head(one: Explanation, row: Shown, name: str, label: str, bars: Html) -> Html:
    """The line of a row that is always seen."""
    return tag(
        "summary",
        tag("b", name),
        *([tag("span", label, kind="t")] if label else []),
        tag("span", format_signed(f"{row.end} {row.times}".strip()), kind="o"),
        *([tag("span", percent(one.probability.item()), kind="p")] if one.probability is not None else []),
        tag("span", "" if row.between is None else row.between.short, kind="c"),
        bars,
    )


def kind_of(explanation: Explanation) -> str:
    """What is shown of a row; groups of pixels or words are a table."""
    return "table" if explanation.grouped else explanation.kind


def targets(explanation: Explanation) -> list[str]:
    """The name of the explained output of every row."""
    known: dict[tuple[int, ...], str] = {}
    for row, target in enumerate(map(tuple, explanation.target.tolist())):
        if target not in known:
            known[target] = explanation[row].target_name()
    return [known[tuple(target)] for target in explanation.target.tolist()]


def percent(share: float) -> str:
    """A share in per cent; not 0 % or 100 % where it is neither."""
    if not math.isfinite(share):
        return number(share)
    if 0 < share < 0.001 or 0.999 < share < 1:
        return "<\u00a00.1\u00a0%" if share < 0.5 else ">\u00a099.9\u00a0%"
    return f"{100 * share:.1f}\u00a0%" if 0 < share < 0.1 or 0.9 < share < 1 else f"{100 * share:.0f}\u00a0%"
