"""One explanation as a table of text that adds up from the baseline to the output."""

from __future__ import annotations

import math

from ..explanation import Explanation
from .shown import shown


def ledger(explanation: Explanation, most: int = 12) -> str:
    """The explanation of one row for a terminal: the column "net" adds up from the baseline output to the output."""
    row = shown(explanation, most)
    table: list[tuple[str, ...]] = [("", "value", "positive", "negative", "net", "refined")]
    refined = explanation.correction is not None
    table.append(("baseline output", "", "", "", row.start, row.start if refined else ""))
    for line in row.lines:
        table.append((shortened(line.name, 40), line.value, line.positive, line.negative, line.net, line.refined))
    table.append(("output", "", "", "", row.end, row.end if refined else ""))
    body = _columns(table)
    body.insert(-1, "-" * len(body[0]))
    return "\n".join(
        [
            f"What moved {target_name(explanation)} (c = {explanation.settings.get('c')})",
            *([f"all numbers {row.times}"] if row.times else []),
            *body,
            f"conflict (cancelled between features): {explanation.conflict.item():.4g}",
            *pair_lines(explanation),
            *refined_lines(explanation),
            f"completeness error: {explanation.completeness_error.item():.1e}",
            *frozen_lines(explanation),
            *explanation.notes,
        ]
    )


def pair_lines(explanation: Explanation, most: int = 3) -> list[str]:
    """Which features cancelled which, where that is known."""
    pairs = [] if explanation.conflict_pairs is None else explanation.pairs(most=most)
    return [f"  {shortened(up, 40)} up, {shortened(down, 40)} down: {amount:.4g}" for up, down, amount in pairs]


def refined_lines(explanation: Explanation) -> list[str]:
    """How well the scores predict what perturbations do, where that was tried."""
    if explanation.combined_error is None or explanation.refined_error is None:
        return []
    before, after = explanation.combined_error.item(), explanation.refined_error.item()
    return [f"at perturbed rows, net misses the change of the output by {before:.4g}, refined by {after:.4g}"]


def frozen_lines(explanation: Explanation) -> list[str]:
    """What the model does that the scores of this row do not say."""
    lines = []
    for name, amount in explanation.cut.items():
        if (does := amount.item()) != 0:
            what = "how much it does was not tried" if math.isnan(does) else f"against its baseline it does {does:+.4g}"
            lines.append(f"{shortened(name, 40)}: influence that the model cuts off is not in its score; {what}")
    if explanation.model_at_baseline is not None:
        itself, start = explanation.model_at_baseline.item(), explanation.baseline_output.item()
        if abs(itself - start) > 1e-3 * max(abs(itself), abs(start)):
            lines.append(f"model(baseline) itself is {itself:.4g}: {itself - start:+.4g} comes from what is frozen at this row")
    return lines


def target_name(explanation: Explanation) -> str:
    """The explained number, and where it is seen from: "output 1", "unit (0, 3) of layer 'head' seen at layer 'conv'"."""
    index = explanation.target[0].tolist()
    layer, seen_at = explanation.settings.get("target_layer"), explanation.settings.get("layer")
    words = ["output" if layer is None else "unit"]
    if index:
        words.append(str(index[0] if len(index) == 1 else tuple(index)))
    words += [f"of layer {layer!r}"] * (layer is not None) + [f"seen at layer {seen_at!r}"] * (seen_at is not None)
    return " ".join(words)


def shortened(name: str, longest: int) -> str:
    """The name, cut to ``longest`` letters."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


def _columns(table: list[tuple[str, ...]]) -> list[str]:
    """The first column to the left, numbers to the right; a column with nothing in it is left out."""
    kept = [column for column in zip(*table, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in kept]
    lines = []
    for row in zip(*kept, strict=True):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells))
    return lines
