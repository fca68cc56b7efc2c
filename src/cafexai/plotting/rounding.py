"""One explanation in the digits that a reader sees: what is shown adds up, to the last of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..explanation import Explanation
from .conflict_words import ShownConflict, show_conflict
from .row_lines import Line, Order, bias_line, feature_lines


@dataclass(frozen=True)
class ShownLine:
    """A feature, several together or the biases: all numbers as text, positive - negative = net.

    Only where influences are over a billion times the last digit of the nets do they have an exponent of their own.
    """

    name: str
    value: str  # "" if there is none to show
    positive: str
    negative: str
    net: str
    refined: str  # "" if the scores were not refined
    exact: Line  # as it is, for lengths of bars

    @property
    def baseline(self) -> str:
        """What the value is compared with; "" if that is not known."""
        return self.exact.baseline


@dataclass(frozen=True)
class Shown:
    """start + the nets of all lines = end, in the digits shown; ``times`` stands beside numbers too large or small for them."""

    start: str
    lines: tuple[ShownLine, ...]  # features, strongest first, "n others", the biases last
    end: str
    up: str  # what all lines but the last, the biases, pushed up and down: sums of the digits shown
    down: str
    times: str = ""  # such as "x 1e+12": what all numbers are to be multiplied by
    between: ShownConflict | None = None  # the conflict, in the same digits


def round_explanation(
    explanation: Explanation, most: int = 12, digits: int = 4, order: Order = "net", fold: bool = True
) -> Shown:
    """The explanation of one row, with ``digits`` significant digits for the largest net score, start or end."""
    lines = [*feature_lines(explanation, most, order, fold), bias_line(explanation)]
    start, end = explanation.baseline_output.item(), explanation.output.item()
    return in_digits(lines, start, end, digits, explanation.refinement is not None, explanation)


def in_digits(
    lines: Sequence[Line],
    start: float,
    end: float,
    digits: int = 4,
    corrected: bool = False,
    conflict_of: Explanation | None = None,
) -> Shown:
    """Any lines that lead from start to end, in digits that add up; ``corrected`` if they have refined scores.

    ``conflict_of`` is the explanation of the row whose conflict is shown in the same digits.
    """
    largest = max(map(abs, (start, end, *(line.net for line in lines))))
    largest = largest or max((max(line.positive, line.negative) for line in lines), default=0.0)
    power = _power(largest)
    decimals = max(digits - 1 - math.floor(math.log10(largest / 10.0**power)), 0) if largest else digits - 1
    unit = 10.0 ** (power - decimals)

    def text(steps: int) -> str:
        return f"{steps / 10**decimals:.{decimals}f}" if abs(steps) < 1e9 else f"{steps / 10**decimals:.{digits - 1}e}"

    last = round(end / unit)
    first, *nets = in_steps([start / unit, *(line.net / unit for line in lines)], last)
    refined: list[int] | None = None
    if corrected:
        better = [line.net if line.refined is None else line.refined for line in lines]
        refined = in_steps([one / unit for one in better], last - first)
    rows, signs = [], [_signs(line, net, unit) for line, net in zip(lines, nets, strict=True)]
    for place, (line, net, (up, down)) in enumerate(zip(lines, nets, signs, strict=True)):
        own = "" if refined is None else text(refined[place])
        rows.append(ShownLine(line.name, line.value, text(up), text(down), text(net), own, line))
    times = f"x 1e{power:+03d}" if power else ""
    ups, downs = (sum(one[side] for one in signs[:-1]) for side in (0, 1))
    between = None
    if conflict_of is not None:
        settings = conflict_of.meta.settings
        typical, among = bool(settings.get("typical")), str(settings.get("ranked_among", "background rows"))
        between = show_conflict(conflict_of.between(), unit, text, (first, last), typical, among)
    return Shown(text(first), tuple(rows), text(last), text(ups), text(downs), times, between)


def round_like(row: Shown, amount: float) -> str:
    """A number that stands beside a row, in its digits."""
    decimals = len(row.end.partition(".")[2]) if "e" not in row.end else 3
    return f"{amount / float(row.times.removeprefix('x ') or 1):.{decimals}f}"


def in_steps(values: Sequence[float], total: int) -> list[int]:
    """Whole numbers that add up to ``total``, each the one below or above its value: the nearest, as far as the sum allows.

    So nothing changes its sign, and 0 stays 0. What no choice of neighbours can reach is put on the largest.
    """
    below = [math.floor(value) for value in values]
    missing = total - sum(below)
    order = sorted(range(len(values)), key=lambda i: values[i] - below[i], reverse=True)
    up = [i for i in order if values[i] != below[i]][: max(missing, 0)]
    steps = [one + (i in up) for i, one in enumerate(below)]
    steps[max(range(len(values)), key=lambda i: abs(values[i]))] += total - sum(steps)
    return steps


def _power(largest: float) -> int:
    """The power of ten that is shown once for all numbers; 0 where they can be read as they are."""
    return 0 if not largest or 1e-4 <= largest < 1e7 else math.floor(math.log10(largest))


def _signs(line: Line, net: int, unit: float) -> tuple[int, int]:
    """Positive and negative in steps, with exactly this net; a score that is 0 is shown as 0."""
    if line.negative == 0 and net >= 0:
        return net, 0
    if line.positive == 0 and net <= 0:
        return 0, -net
    up = max(round(line.positive / unit), net, 0)
    return up, up - net
