"""Values of options, as they are typed."""

from __future__ import annotations

import re
from typing import Any

from .errors import UseProblem


def rows(text: str | None, count: int) -> list[int]:
    """``0:100``, ``3,5``, ``-1`` or several of these as the places of rows."""
    if text is None:
        return list(range(count))
    found: list[int] = []
    for part in text.split(","):
        if re.fullmatch(r"\s*-?\d*:-?\d*(:-?\d*)?\s*", part) and not part.strip().endswith(":0"):
            found += range(count)[slice(*(int(one) if one.strip() else None for one in part.split(":")))]
        elif re.fullmatch(r"\s*-?\d+\s*", part):
            place = int(part)
            if not -count <= place < count:
                raise UseProblem(f"--rows {text}: there is no row {place}; the data have {count}, 0 to {count - 1}.")
            found.append(place % count)
        else:
            raise UseProblem(f"--rows {text}: give rows as 0:100, or 3,5, or both.")
    if not found:
        raise UseProblem(f"--rows {text}: that is no row of the {count} there are, 0 to {count - 1}.")
    return found


def output(text: str | None, option: str, classes: tuple[str, ...] | None) -> Any:
    """A target: a number, ``0,3`` for outputs of more dimensions, a class by its name, or ``all``."""
    if text is None or text == {"target": "all", "against": "others"}.get(option) or (classes and text in classes):
        return text
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        known = f"a class ({', '.join(classes[:12])}), or " if classes else ""
        every = ', or "all"' if option == "target" else ', or "others", the mean of all others'
        raise UseProblem(f"--{option} {text}: give {known}the number of the output, counted from 0{every}.") from None
    return numbers if len(numbers) > 1 else numbers[0]


def sensitivity(text: str) -> Any:
    """One number, or several."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise UseProblem(f"--c {text}: give a number from 0 to 1, or several as 0,0.5,1.") from None
    wrong = [number for number in numbers if not 0 <= number <= 1]
    if wrong:
        raise UseProblem(f"--c {text}: {wrong[0]:g} is not between 0 and 1.")
    return numbers if len(numbers) > 1 else numbers[0]


def names(text: str | None) -> list[str] | None:
    """``a,b,c``"""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def part(text: str | None) -> Any:
    """One of several outputs: its place, or its name."""
    return int(text) if text is not None and text.isdecimal() else text
