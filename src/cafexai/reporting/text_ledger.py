"""One explanation as a table of text that adds up from the baseline to the output."""

from __future__ import annotations

import math
from typing import Any

from ..explanation import Explanation
from ..plotting.labels import labels, probability, shorten, with_c
from ..plotting.rounding import round_explanation
from ..plotting.row_lines import baseline_lines
from ..plotting.table_plot import describe_conflict


class Ledger(str):
    """The table as text; a notebook shows it as a table."""

    row: Explanation
    most: int
    order: str
    more: tuple[str, ...]  # lines below the table

    def __repr__(self) -> str:
        return str(self)

    def to_latex(self) -> str:
        """The table as ``tabular`` with ``booktabs``; what a caption must say stands above it as comments."""
        from .latex import ledger_table

        said = [f"What moved {self.row.target_name()} ({with_c(self.row)})", *remarks(self.row), *self.more]
        return ledger_table(round_explanation(self.row, self.most, order=self.order), said)

    def _repr_html_(self) -> str:
        from .notebook import ledger_page

        return ledger_page(self.row, self.most, order=self.order, more=self.more)


def ledger(explanation: Explanation, most: int = 12, order: str = "net", check: Any = None) -> Ledger:
    """The explanation of one row for a terminal: the column "net" adds up from the baseline output to the output."""
    more = () if check is None else (_check_sentence(explanation, check),)
    made = Ledger("\n".join([_text(explanation, most, order), *more]))
    made.row, made.most, made.order, made.more = explanation, most, order, more
    return made


def _check_sentence(explanation: Explanation, check: Any) -> str:
    """What changing the row did: of a check that was made, or made now by an explainer."""
    if hasattr(check, "check_by_changing"):
        check = check.check_by_changing(explanation, 0)
    if not hasattr(check, "sentence"):
        raise ValueError(
            f"ledger(..., check=...): a {type(check).__name__} is no check. Give the explainer, or what "
            "cafe.check_by_changing(e, row) gave."
        )
    return str(check.sentence)


def _text(explanation: Explanation, most: int, order: str) -> str:
    row = round_explanation(explanation, most, order=order)
    table: list[tuple[str, ...]] = [("", "value", "baseline", "positive", "negative", "net", "refined")]
    refined = explanation.refinement is not None
    table.append(("baseline output", "", "", "", "", row.start, row.start if refined else ""))
    for name, line in zip(labels([line.name for line in row.lines], 40), row.lines, strict=True):
        table.append((name, line.value, line.baseline, line.positive, line.negative, line.net, line.refined))
    table.append(("output", "", "", "", "", row.end, row.end if refined else ""))
    body = _columns(table)
    body.insert(-1, "-" * len(body[0]))
    called = "" if explanation.row_names is None else f"{explanation.row_names[0]}: "
    chance = f", {probability(explanation)}" if explanation.probability is not None else ""
    return "\n".join(
        [
            f"{called}What moved {explanation.target_name()}{chance} ({with_c(explanation)})",
            *([f"all numbers {row.times}"] if row.times else []),
            *body,
            *remarks(explanation),
        ]
    )


def remarks(explanation: Explanation) -> list[str]:
    """What is said below the table of one row."""
    return [
        f"conflict between features: {describe_conflict(round_explanation(explanation))}",
        *pair_lines(explanation),
        *baseline_lines(explanation),
        *refined_lines(explanation),
        f"completeness error: {explanation.completeness_error.item():.1e}",
        *frozen_lines(explanation),
        *explanation.notes,
    ]


def pair_lines(explanation: Explanation, most: int = 3) -> list[str]:
    """Which features cancelled which, where that is known."""
    pairs = [] if explanation.conflict_pairs is None else explanation.pairs(most=most)
    return [f"  {shorten(up, 40)} up, {shorten(down, 40)} down: {amount:.4g}" for up, down, amount in pairs]


def refined_lines(explanation: Explanation) -> list[str]:
    """How well the scores predict what perturbations do, where that was tried."""
    if (fit := explanation.refinement) is None:
        return []
    before, after = fit.combined_error.item(), fit.refined_error.item()
    return [f"at perturbed rows, net misses the change of the output by {before:.4g}, refined by {after:.4g}"]


def frozen_lines(explanation: Explanation) -> list[str]:
    """What the model does that the scores of this row do not say."""
    lines = []
    for name, amount in explanation.checks.cut.items():
        if (does := amount.item()) != 0:
            what = "how much it does was not tried" if math.isnan(does) else f"against its baseline it does {does:+.4g}"
            lines.append(f"{shorten(name, 40)}: influence that the model cuts off is not in its score; {what}")
    if explanation.checks.model_at_baseline is not None:
        itself, start = explanation.checks.model_at_baseline.item(), explanation.baseline_output.item()
        if abs(itself - start) > 1e-3 * max(abs(itself), abs(start)):
            lines.append(f"model(baseline) itself is {itself:.4g}: {itself - start:+.4g} comes from what is frozen at this row")
    return lines


def _columns(table: list[tuple[str, ...]]) -> list[str]:
    """The first column to the left, numbers to the right; a column with nothing in it is left out."""
    kept = [column for column in zip(*table, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in kept]
    lines = []
    for row in zip(*kept, strict=True):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells))
    return lines
