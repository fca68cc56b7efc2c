"""Names in the room there is: of features, and of what is explained."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from .._core.variant import ALLOWED, Variant
from ..explanation import Explanation


def shorten(name: str, longest: int) -> str:
    """The name on one line, cut in the middle to ``longest`` letters: names that go on alike often differ at the end."""
    name = " ".join(name.split())
    if len(name) <= longest:
        return name
    end = longest // 2
    return f"{name[: longest - 1 - end]}…{name[len(name) - end :]}"


def labels(names: Sequence[str], longest: int) -> list[str]:
    """All names shortened, so that different ones stay different."""
    short = [shorten(name, longest) for name in names]
    for label in {label for label in short if short.count(label) > 1}:
        alike = dict.fromkeys(name for name, own in zip(names, short, strict=True) if own == label)
        if len(alike) > 1:
            first = next(i for i, letters in enumerate(zip_longest(*alike)) if len(set(letters)) > 1)  # where they part
            kept = max(longest // 3, 1)
            found = {name: shorten(f"{name[:kept]}…{name[max(first - 1, kept) :]}", longest) for name in alike}
            for number, name in enumerate(alike, 1):
                own = found[name] if list(found.values()).count(found[name]) == 1 else f"{found[name]} ({number})"
                short = [own if given == name else old for given, old in zip(names, short, strict=True)]
    return short


def class_name(explanation: Explanation) -> str:
    """The name of the explained class of the first row; "" if it has none."""
    index, names = explanation.target[0].tolist(), explanation.class_names
    if names is None or explanation.meta.settings.get("target_layer") is not None or len(index) != 1 or index[0] >= len(names):
        return ""
    return shorten(names[index[0]], 40)


def percent(share: float) -> str:
    """A share for people; never 0% or 100% of what is neither."""
    if 0 < share < 0.001 or 0.999 < share < 1:
        return "below 0.1%" if share < 0.5 else "above 99.9%"
    return f"{share:.0%}" if share in (0, 1) else f"{share:.1%}"


def probability(explanation: Explanation) -> str:
    """The probability of the explained class of the first row, as text; "" where there is none."""
    if explanation.probability is None:
        return ""
    name = class_name(explanation)
    of = f"of {name!r} " if name and explanation.against is not None else ""
    return f"probability {of}{percent(explanation.probability[0].item())}"


def variant_of(explanation: Explanation) -> Variant:
    """The variant, by its options; those that a file does not name are as published."""
    settings = explanation.meta.settings
    return Variant.preset("published").replace(**{name: settings.get(name) for name in ALLOWED})


def with_c(explanation: Explanation) -> str:
    """The constant c and the variant."""
    return f"c = {explanation.meta.c}, variant {variant_of(explanation)}"
