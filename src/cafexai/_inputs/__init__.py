"""What the user hands in, checked and brought into one form before anything runs."""

from __future__ import annotations

import inspect
import numbers
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any


def resolve_old_words(call: str, given: dict[str, Any], **pairs: Any) -> list[Any]:
    """The values of arguments, ``new_word=(value, default, old word)``; ``given`` holds what came by other words."""
    values = []
    for new, (value, default, old) in pairs.items():
        if old in given:
            if value is not default:
                raise ValueError(f"{call}(..., {new}=..., {old}=...): {old} is an earlier name of {new}. Give one of the two.")
            value = given.pop(old)
        values.append(value)
    if given:
        raise TypeError(f"{call}() got an unexpected keyword argument {next(iter(given))!r}")
    return values


def at_least(call: str, least: int, **counts: Any) -> None:
    """Refuse numbers of samples, steps or units that are no such numbers."""
    for word, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, numbers.Integral) or count < least:
            raise ValueError(f"{call}(..., {word}={count!r}): give an integer of at least {least}.")


def groups_by_word(method: Any, groups: Any) -> dict[str, Any]:
    """Groups as a method takes them, if there are any; those of users and of Captum say feature_mask."""
    new = "feature_groups" in inspect.signature(method).parameters
    return {} if groups is None else {"feature_groups" if new else "feature_mask": groups}


def different(names: Iterable[Any], call: str) -> tuple[str, ...]:
    """Names of features; refused if one of them stands for several."""
    words = tuple(map(str, names))
    if len(set(words)) < len(words):
        twice = [word for word, count in Counter(words).items() if count > 1]
        raise ValueError(f"{call}: more than one feature is called {list_names(twice)}. Give every feature a name of its own.")
    return words


def list_names(names: Sequence[str], most: int = 20) -> str:
    """Names in a message; the first of them if there are many."""
    return ", ".join(map(repr, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")
