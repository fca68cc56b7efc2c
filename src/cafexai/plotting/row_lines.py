"""What one row is made of: its features, the strongest first, and the biases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from .._inputs.table_values import is_date_column
from ..explanation import Explanation
from ..explanation.features import which_are_codes


class Line(NamedTuple):
    """What one feature, or several together, did to the output."""

    name: str
    value: str  # "" if there is none to show
    positive: float
    negative: float
    net: float
    single: bool = False  # one feature, not a sum of several
    refined: float | None = None  # the net score as evaluations of the model correct it
    baseline: str = ""  # what the value is compared with; "" if that is not known
    same: bool = False  # as in the baseline, so that there can be no score


ORDERS = ("net", "influence")  # by |net|, or by positive + negative
Order = str | Sequence[int]  # one of these, or the places of the features


def strongest_first(order: Order, up: Tensor, down: Tensor, net: Tensor) -> list[int]:
    """The places of features, the strongest first: by |net| (equal ones by influence), by influence alone, or as given."""
    if not isinstance(order, str):
        return list(order)
    if order not in ORDERS:
        raise ValueError(f"order={order!r}: unknown. Allowed values: {', '.join(map(repr, ORDERS))}.")
    places = (up + down).argsort(descending=True, stable=True)
    if order == "net":
        places = places[net.abs()[places].argsort(descending=True, stable=True)]
    found: list[int] = places.tolist()
    return found


def feature_lines(explanation: Explanation, most: int, order: Order = "net", fold: bool = True) -> list[Line]:
    """The features of one row, strongest first; all beyond ``most`` summed into one line, those at the baseline in another.

    Without ``fold``, features at the baseline stand among the others.
    """
    if len(explanation) != 1:
        raise ValueError(f"This shows one row and the explanation has {len(explanation)}. Choose one: explanation[i].")
    if most < 1:
        raise ValueError(f"most={most}: give the number of features to show, at least 1.")
    parts = (explanation.positive, explanation.negative, explanation.combined)
    positive, negative, net = (explanation.flat(part)[0].double().cpu() for part in parts)
    refined = None if explanation.refinement is None else explanation.flat(explanation.refined)[0].double().cpu()
    names, values, starts = explanation.names(), explanation.values(), baseline_texts(explanation)
    same = set(features_at_baseline(explanation))
    ordered = [i for i in strongest_first(order, positive, negative, net) if names[i]]  # "": nothing there
    places = [i for i in ordered if i not in same] if fold else ordered

    def line(i: int) -> Line:
        value, start = "" if values is None else _format_value(values[i]), "" if starts is None else starts[i]
        better = None if refined is None else refined[i].item()
        scores = positive[i].item(), negative[i].item(), net[i].item()
        return Line(names[i], value, *scores, True, better, start, i in same)

    lines = [line(i) for i in places[:most]]
    rest = places[most:]
    if len(rest):
        label = f"{len(rest)} other{'s' * (len(rest) > 1)}"
        up, down, left = (part[rest].sum().item() for part in (positive, negative, net))
        lines.append(Line(label, "", up, down, left, refined=None if refined is None else refined[rest].sum().item()))
    if fold and len(same) == 1:
        lines.append(line(*same))
    elif fold and same:
        lines.append(
            Line(f"{len(same)} as in the baseline", "", 0.0, 0.0, 0.0, refined=None if refined is None else 0.0, same=True)
        )
    return lines


def features_at_baseline(explanation: Explanation) -> list[int]:
    """The places of the features of one row that are as in the baseline and therefore have no score."""
    same = explanation.at_baseline
    if same is None:
        return []
    scores = explanation.flat(explanation.positive)[0] + explanation.flat(explanation.negative)[0]
    names = explanation.names()
    return [i for i in (same[0] & (scores == 0)).nonzero()[:, 0].tolist() if names[i]]


def value_texts(explanation: Explanation) -> list[str] | None:
    """The values of the features of one row, as text; None where they have none."""
    values = explanation.values()
    return None if values is None else [_format_value(value) for value in values]


def baseline_texts(explanation: Explanation) -> list[str] | None:
    """What the features of one row are compared with, as text; of several baselines mean, median or what most often occurs."""
    found = explanation.baseline_values()
    if found is None:
        return None
    texts = [_format_value(one) for one in found]
    if explanation.meta.settings.get("baselines", 1) == 1:
        return texts
    same = explanation.at_baseline
    fixed = [False] * len(texts) if same is None else same[0].tolist()
    codes = which_are_codes(explanation)
    words = [summary_word(explanation, name, code) for name, code in zip(explanation.names(), codes, strict=True)]
    told = zip(words, texts, fixed, strict=True)
    return [text if own or not text or (word == "mean" and text == "missing") else f"{word} {text}" for word, text, own in told]


def summary_word(explanation: Explanation, name: str, code: bool = False) -> str:
    """What one value stands for of several baselines."""
    words = explanation.features.categories.get(name)
    if words is None:
        return "most often" if code else "mean"
    return "median" if is_date_column(words) else "most often"


def baseline_lines(explanation: Explanation, most: int = 12) -> list[str]:
    """A remark on the features of one row that are as in the baseline: no score does not mean that they play no role."""
    places = features_at_baseline(explanation)
    if not places:
        return []
    names, values = explanation.names(), explanation.values()
    shown = places[:most]
    told = [names[i] if values is None or values[i] == "" else f"{names[i]} = {_format_value(values[i])}" for i in shown]
    more = f" and {len(places) - most} more" if len(places) > most else ""
    return [f"as in the baseline, so no score: {', '.join(told)}{more}; another baseline shows their effect"]


def bias_line(explanation: Explanation) -> Line:
    """What the constants of the model did."""
    return Line("bias", "", explanation.bias_positive.item(), explanation.bias_negative.item(), explanation.bias.item())


def sum_line(explanation: Explanation, name: str) -> Line:
    """All features of one row together."""
    up, down, net = (
        explanation.flat(p).double().sum().item() for p in (explanation.positive, explanation.negative, explanation.combined)
    )
    return Line(name, "", up, down, net)


def number(value: float) -> str:
    """Four significant digits, with an exponent only for very large and very small numbers."""
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"


def _format_value(value: str | float | None) -> str:
    """A value as it is shown: a number in four digits, a category, or that it is missing."""
    return value if isinstance(value, str) else "missing" if value is None else number(value)


def align_numbers(values: Sequence[float], digits: int = 4, sign: str = "-") -> list[str]:
    """Numbers with equally many decimals, ``digits`` significant ones for the largest; sign="+" shows both signs."""
    largest = max(map(abs, values))
    if largest and not 1e-4 <= largest < 1e7:
        return [f"{value:{sign}.{digits - 1}e}" for value in values]
    decimals = max(digits - 1 - math.floor(math.log10(largest)), 0) if largest else digits - 1
    return [f"{round(value, decimals) + 0.0:{sign}.{decimals}f}" for value in values]  # + 0.0: never "-0.00"
