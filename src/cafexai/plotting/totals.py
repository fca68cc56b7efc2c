"""One row in a few numbers that add up: baseline, all features together, biases, output."""

from __future__ import annotations

from ..explanation import Explanation
from .rounding import Shown, in_digits
from .row_lines import bias_line, sum_line


def in_total(explanation: Explanation, name: str) -> Shown:
    """One row in a few numbers that add up: all features together, and the biases."""
    start, end = explanation.baseline_output.item(), explanation.output.item()
    return in_digits([sum_line(explanation, name), bias_line(explanation)], start, end, conflict_of=explanation)


def sentence(row: Shown) -> str:
    """The sum in words: baseline, features, biases, output."""
    parts = [f"baseline output {row.start}"]
    for line in row.lines:
        net = line.net[1:] if line.net.startswith("-") else line.net
        parts.append(
            f"{'-' if line.net.startswith('-') else '+'} {net} from {line.name} ({line.positive} up, {line.negative} down)"
        )
    return f"{'  '.join(parts)}  = output {row.end}" + (f"   (all numbers {row.times})" if row.times else "")
