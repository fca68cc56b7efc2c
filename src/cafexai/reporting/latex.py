"""Tables for papers: ``tabular`` with the rules of the package booktabs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..plotting.labels import labels

if TYPE_CHECKING:
    from ..plotting.rounding import Shown

SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {one: f"\\{one}" for one in "&%$#_{}"} | {"<": "$<$", ">": "$>$", "|": "$|$", "\u2212": "$-$", "\u00b1": r"$\pm$"}


def escape(text: str) -> str:
    """Text in which LaTeX sees no commands."""
    return "".join(SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def tabular(head: Sequence[str], lines: Sequence[Sequence[str]], said: Sequence[str] = (), texts: int = 1) -> str:
    """A table of cells that are LaTeX already; the first ``texts`` columns to the left, ``said`` as comments above."""
    body = [f"{' & '.join(row)} \\\\" for row in (head, *lines)]
    comments = [f"% {' '.join(one.split())}" for one in said]
    kinds = "l" * texts + "r" * (len(head) - texts)
    parts = [f"\\begin{{tabular}}{{{kinds}}}", r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*comments, *parts]) + "\n"


def ledger_table(row: Shown, said: Sequence[str]) -> str:
    """One row that adds up from the baseline output to the output."""
    names = labels([line.name for line in row.lines], 40)
    cells = [
        [name, line.value, line.baseline, line.positive, line.negative, line.net, line.refined]
        for name, line in zip(names, row.lines, strict=True)
    ]
    head = ["feature", "value", "baseline", "positive", "negative", "net", "refined"]
    kept = [i for i in range(len(head)) if i in (0, 3, 4, 5) or any(line[i] for line in cells)]
    refined = 6 in kept

    def end(name: str, number: str) -> list[str]:
        return [name, "", "", "", "", number, number if refined else ""]

    lines = [end("baseline output", row.start), *cells, end("output", row.end)]
    texts = sum(i < 3 for i in kept)
    written = [[_cell(line[i], i >= 3) for i in kept] for line in lines]
    return tabular([head[i] for i in kept], written, [*said, *([f"all numbers {row.times}"] if row.times else [])], texts)


def _cell(text: str, number: bool) -> str:
    return f"$-${escape(text[1:])}" if number and text.startswith("-") else escape(text)
