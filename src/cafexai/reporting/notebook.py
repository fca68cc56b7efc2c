"""Explanations in a notebook: static tables with small drawings inside, no script, everything escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from ..explanation import Explanation
from ..plotting.comparison_plots import columns
from ..plotting.conflict_words import SHARE
from ..plotting.dispatch import view
from ..plotting.labels import class_name, labels, percent, probability, shorten, with_c
from ..plotting.rounding import Shown, round_explanation
from ..plotting.row_lines import feature_lines, number
from ..plotting.totals import in_total
from .html_parts import bar, cap, image_strip, word_strip
from .text_ledger import remarks

ROWS, KEYS = 10, 20  # of long tables


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str = "",
    below: Sequence[str] = (),
    more: str = "",
    texts: Sequence[int] = (0,),
) -> str:
    """A table of cells that are HTML already, columns of ``texts`` to the left, numbers to the right; all else is escaped."""

    def line(kind: str, cells: Sequence[str]) -> str:
        looks = ["left;white-space:normal" if x in texts else "right;white-space:nowrap" for x in range(len(cells))]
        look = "padding:2px 8px;border:none;text-align:"
        return (
            "<tr>" + "".join(f'<{kind} style="{look}{own}">{c}</{kind}>' for own, c in zip(looks, cells, strict=True)) + "</tr>"
        )

    body = (
        f"<thead>{line('th', [escape(name) for name in head])}</thead><tbody>{''.join(line('td', row) for row in rows)}</tbody>"
    )
    parts = [f"<div><strong>{escape(title)}</strong></div>"] if title else []
    parts.append(f'<table style="border-collapse:collapse;font-variant-numeric:tabular-nums">{body}</table>')
    parts += [f"<div>{escape(more)}</div>"] if more else []
    parts += [f'<div style="font-size:smaller">{escape(said)}</div>' for said in below]
    return f"<div>{''.join(parts)}</div>"


def ledger_page(
    explanation: Explanation, most: int = 12, row: Shown | None = None, order: str = "net", more: Sequence[str] = ()
) -> str:
    """The table of one row, with a bar for each line; the column "net" adds up. ``row``: other lines than those of features."""
    row = row or round_explanation(explanation, most, order=order)
    refined = any(line.refined for line in row.lines)
    reach = max((max(line.exact.positive, line.exact.negative) for line in row.lines if line.exact.single), default=0.0)
    reach = reach or max(max(line.exact.positive, line.exact.negative) for line in row.lines)
    values, starts = (any(texts) for texts in zip(*((line.value, line.baseline) for line in row.lines), strict=True))

    def cells(name: str, value: str, start: str, up: str, down: str, net: str, better: str, drawn: str) -> list[str]:
        texts = [
            name,
            *([value] if values else []),
            *([start] if starts else []),
            up,
            down,
            net,
            *([better] if refined else []),
        ]
        return [*(escape(one) for one in texts), drawn]

    head = [
        "",
        *(["value"] if values else []),
        *(["baseline"] if starts else []),
        "positive",
        "negative",
        "net",
        *(["refined"] if refined else []),
        "",
    ]
    lines = [cells("baseline output", "", "", "", "", row.start, row.start, "")]
    for name, line in zip(labels([line.name for line in row.lines], 40), row.lines, strict=True):
        drawn = bar(line.exact.positive, line.exact.negative, line.exact.net, reach)
        lines.append(cells(name, line.value, line.baseline, line.positive, line.negative, line.net, line.refined, drawn))
    lines.append([f"<strong>{cell}</strong>" if cell else "" for cell in cells("output", "", "", "", "", row.end, row.end, "")])
    chance = f", {probability(explanation)}" if explanation.probability is not None else ""
    times = f"; all numbers {row.times}" if row.times else ""
    called = "" if explanation.row_names is None else f"{explanation.row_names[0]}: "
    title = f"{called}What moved {explanation.target_name()}{chance} ({with_c(explanation)}){times}"
    return table(head, lines, title, [*remarks(explanation), *more])


def explanation_page(explanation: Explanation) -> str:
    """One row as it is; of several rows, a line for each."""
    if len(explanation) != 1:
        return _rows(explanation)
    kind = view(explanation)
    if kind == "image":  # single pixels say little
        pixels = len(explanation.names())
        return image_strip(explanation) + ledger_page(explanation, row=in_total(explanation, f"{pixels} values of pixels"))
    return (word_strip(explanation) if kind == "text" else "") + ledger_page(explanation)


def _rows(explanation: Explanation) -> str:
    kept, more = cap(range(len(explanation)), ROWS, "row")
    share = explanation.conflict_share
    lines = []
    for row in kept:
        one = explanation[row]
        strongest = [
            f"{shorten(line.name, 24)} {_format_signed(line.net)}"
            for line in feature_lines(one, 3)
            if line.single and not line.same
        ]
        cells = [
            str(row) if one.row_names is None else one.row_names[0],
            class_name(one) or one.target_name(),
            number(one.output.item()),
        ]
        cells += [] if one.probability is None else [percent(one.probability.item())]
        cells += [number(one.conflict.item()), percent(share[row].item()), ", ".join(strongest)]
        lines.append([escape(cell) for cell in cells])
    chance = [] if explanation.probability is None else ["probability"]
    head = ["row", "explained", "output", *chance, "cancelled between features", SHARE, "strongest features (net)"]
    rows = f"{len(explanation)} row" + "s" * (len(explanation) != 1)
    features = explanation.flat(explanation.positive).shape[1]
    title = f"Explanation of {rows}, {features} features ({with_c(explanation)})"
    return table(head, lines, title, explanation.notes, more, (0, 1, len(head) - 1))


def _format_signed(value: float) -> str:
    return f"{value:+.3g}"


def explanations_page(by: tuple[str, ...], entries: Mapping[Any, Explanation]) -> str:
    """One line per class or c; of a single row, its nets in columns that add up."""
    kept, more = cap(list(entries.items()), KEYS, "explanation")
    names = {key: str(key) if len(by) == 1 else ", ".join(map(str, key)) for key, _ in kept}
    first = kept[0][1] if kept else None
    title = f"{len(entries)} explanations by {' and '.join(by)}"
    if first is not None and len(first) == 1:
        found = columns(dict(kept), 8)
        lines = next(iter(found.values())).lines
        rows = [["baseline output", *(row.start for row in found.values())]]
        rows += [
            [name, *(row.lines[i].net for row in found.values())] for i, name in enumerate(labels([n.name for n in lines], 40))
        ]
        rows.append(["output", *(row.end for row in found.values())])
        heads = [f"{', '.join(by)} {names[key]} {row.times}".strip() for key, row in found.items()]
        return table(["net", *heads], [[escape(cell) for cell in row] for row in rows], title, (), more)
    rows = []
    for key, one in kept:
        means = [one.output.mean().item(), one.conflict.mean().item()] if len(one) else []
        share = [percent(one.conflict_share.mean().item())] if len(one) else []
        rows.append(
            [
                escape(cell)
                for cell in (names[key], class_name(one) if len(one) else "", str(len(one)), *map(number, means), *share)
            ]
        )
    head = [", ".join(by), "", "rows", "mean output", "mean conflict", f"mean of {SHARE}"]
    return table(head, rows, title, (), more, (0, 1))
