"""What a page asks for, checked: the choices of an explanation, and values from a request."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TYPICAL = ("mean", "median", "mode")
BACKGROUND = "background"  # each of some typical rows, over which scores are averaged


class Refused(ValueError):
    """A request that cannot be answered, and the field of the page that it is about."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class Choice:
    """How rows are explained."""

    c: float = 0.5
    variant: str = "default"  # or "published", "feature"; "custom" is what the page was started with
    baseline: str = "zero"  # or "mask", "background", "mean", "median", "mode", "row:N"
    target: int | None = None  # None is the predicted class, or the only output
    against: int | None = None

    @classmethod
    def of(cls, given: Any, rows: int, outputs: int, variants: Sequence[str]) -> Choice:
        """From a request; whatever is missing is as usual."""
        values = dict(mapping(given, "choice"))
        if odd := set(values) - {field.name for field in dataclasses.fields(cls)}:
            raise Refused(f"There is no choice called {sorted(odd)[0]!r}.")
        made = cls(**values)
        number(made.c, "c", 0, 1)
        word(made.variant, variants, "variant")
        if not isinstance(made.baseline, str):
            raise Refused("The baseline is a word.", "baseline")
        if made.baseline.startswith("row:"):
            text = made.baseline.removeprefix("row:")
            if not text.isdecimal() or len(text) > 12 or int(text) >= rows:
                raise Refused(f"Give a row from 0 to {rows - 1}.", "baseline")
        else:
            word(made.baseline, ("zero", "mask", BACKGROUND, *TYPICAL), "baseline")
        for name in ("target", "against"):
            if getattr(made, name) is not None:
                whole(getattr(made, name), name, outputs - 1)
        if made.against is not None and made.against == made.target:
            raise Refused("An output against itself is always 0; choose another.", "against")
        return made


def mapping(value: Any, field: str) -> dict[str, Any]:
    """An object of JSON."""
    if not isinstance(value, dict):
        raise Refused(f"{field} is an object.", field)
    return value


def listing(value: Any, field: str, most: int) -> list[Any]:
    """A list of JSON."""
    if not isinstance(value, list) or len(value) > most:
        raise Refused(f"{field} is a list of at most {most}.", field)
    return value


def number(value: Any, field: str, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number in a range."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Refused("Give a number.", field)
    if not low <= value <= high:
        raise Refused(f"Give a number from {low:g} to {high:g}.", field)
    return float(value)


def whole(value: Any, field: str, last: int) -> int:
    """A whole number from 0 to ``last``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= last:
        raise Refused(f"Give a whole number from 0 to {last}.", field)
    return value


def word(value: Any, words: Sequence[str], field: str) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in words:
        raise Refused(f"Choose one of {', '.join(words)}.", field)
    return value
