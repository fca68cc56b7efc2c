"""One explanation as a table of text that adds up from the baseline to the output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from ..explanation import Explanation


class Line(NamedTuple):
    """What one feature, or several together, did to the output."""

    name: str
    value: str  # "" if there is none to show
    positive: float
    negative: float
    net: float
    single: bool = False  # one feature, not a sum of several
    refined: float | None = None  # the net score as evaluations of the model correct it


def ledger(explanation: Explanation, most: int = 12) -> str:
    """The explanation of one row for a terminal: the column "net" adds up from the baseline output to the output."""
    lines = [*feature_lines(explanation, most), bias_line(explanation)]
    start, end = explanation.baseline_output.item(), explanation.output.item()
    *nets, first, last = aligned([*(line.net for line in lines), start, end])
    refined = [""] * (len(lines) + 2)
    if explanation.correction is not None:
        refined = aligned([start, *(line.net if line.refined is None else line.refined for line in lines), end])
    influences = aligned([*(line.positive for line in lines), *(line.negative for line in lines)])
    table: list[tuple[str, ...]] = [("", "value", "positive", "negative", "net", "refined")]
    table.append(("baseline output", "", "", "", first, refined[0]))
    for i, line in enumerate(lines):
        table.append((shortened(line.name, 40), line.value, influences[i], influences[i + len(lines)], nets[i], refined[i + 1]))
    table.append(("output", "", "", "", last, refined[-1]))
    body = _columns(table)
    body.insert(-1, "-" * len(body[0]))
    return "\n".join(
        [
            f"What moved {target_name(explanation)} (c = {explanation.settings.get('c')})",
            *body,
            f"conflict (cancelled between features): {explanation.conflict.item():.4g}",
            *pair_lines(explanation),
            *refined_lines(explanation),
            f"completeness error: {explanation.completeness_error.item():.1e}",
            *frozen_lines(explanation),
            *explanation.notes,
        ]
    )


def feature_lines(explanation: Explanation, most: int) -> list[Line]:
    """The features of one row by positive + negative, largest first; all beyond ``most`` summed into one line."""
    if len(explanation) != 1:
        raise ValueError(f"This shows one row and the explanation has {len(explanation)}. Choose one: explanation[i].")
    if most < 1:
        raise ValueError(f"most={most}: give the number of features to show, at least 1.")
    parts = (explanation.positive, explanation.negative, explanation.combined)
    positive, negative, net = (explanation._flat(part)[0].double().cpu() for part in parts)
    order = (positive + negative).argsort(descending=True, stable=True)
    refined = None if explanation.correction is None else explanation._flat(explanation.refined)[0].double().cpu()
    names, values = explanation.names(), _values(explanation)
    lines = []
    for i in order[:most].tolist():
        value = "" if values is None else number(values[i].item())
        better = None if refined is None else refined[i].item()
        lines.append(Line(names[i], value, positive[i].item(), negative[i].item(), net[i].item(), True, better))
    rest = order[most:]
    if len(rest):
        label = f"{len(rest)} other{'s' * (len(rest) > 1)}"
        up, down, left = (part[rest].sum().item() for part in (positive, negative, net))
        lines.append(Line(label, "", up, down, left, refined=None if refined is None else refined[rest].sum().item()))
    return lines


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


def bias_line(explanation: Explanation) -> Line:
    """What the constants of the model did."""
    return Line("bias", "", explanation.bias_positive.item(), explanation.bias_negative.item(), explanation.bias.item())


def target_name(explanation: Explanation) -> str:
    """The explained number, and where it is seen from: "output 1", "unit (0, 3) of layer 'head' seen at layer 'conv'"."""
    index = explanation.target[0].tolist()
    layer, seen_at = explanation.settings.get("target_layer"), explanation.settings.get("layer")
    words = ["output" if layer is None else "unit"]
    if index:
        words.append(str(index[0] if len(index) == 1 else tuple(index)))
    words += [f"of layer {layer!r}"] * (layer is not None) + [f"seen at layer {seen_at!r}"] * (seen_at is not None)
    return " ".join(words)


def number(value: float) -> str:
    """Four significant digits, with an exponent only for very large and very small numbers."""
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"


def shortened(name: str, longest: int) -> str:
    """The name, cut to ``longest`` letters."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


def _values(explanation: Explanation) -> Tensor | None:
    """The values of the features, in the units of the user if these are known; None for groups of features."""
    return None if explanation.grouped else explanation._flat(explanation.shown)[0]


def aligned(values: Sequence[float], digits: int = 4, sign: str = "-") -> list[str]:
    """Numbers with equally many decimals, ``digits`` significant ones for the largest; sign="+" shows both signs."""
    largest = max(map(abs, values))
    if largest and not 1e-4 <= largest < 1e7:
        return [f"{value:{sign}.{digits - 1}e}" for value in values]
    decimals = max(digits - 1 - math.floor(math.log10(largest)), 0) if largest else digits - 1
    return [f"{round(value, decimals) + 0.0:{sign}.{decimals}f}" for value in values]  # + 0.0: never "-0.00"


def _columns(table: list[tuple[str, ...]]) -> list[str]:
    """The first column to the left, numbers to the right; a column with nothing in it is left out."""
    kept = [column for column in zip(*table, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in kept]
    lines = []
    for row in zip(*kept, strict=True):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells))
    return lines
