"""What the user hands in, checked and brought into one form before anything runs."""

from __future__ import annotations

from typing import Any


def renamed(call: str, given: dict[str, Any], **pairs: Any) -> list[Any]:
    """The values of arguments, ``new_word=(value, default, old word)``; ``given`` holds what came by other words.

    An argument that is given by both words, or by one that nobody knows, is an error.
    """
    values = []
    for new, (value, default, old) in pairs.items():
        if old in given:
            if value is not default:
                raise ValueError(f"{call}(..., {new}=..., {old}=...): the two are one argument; {old} is the old word for it.")
            value = given.pop(old)
        values.append(value)
    if given:
        raise TypeError(f"{call}() got an unexpected keyword argument {next(iter(given))!r}")
    return values
