"""Attributes that are made when they are first asked for: the one way in which the engine is lazy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class OnDemand:
    """An attribute with a value that is made on first use, by what ``defer`` was given, or else by ``make``.

    The value takes the place of this descriptor in the object, and what it was made of is let go.
    """

    def __init__(self, make: Callable[[Any], Any] | None = None) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, kind: type) -> Any:
        values, key = vars(owner), _key(self._name)
        if key in values:
            value = values[key]()
            del values[key]
        elif self._make is not None:
            value = self._make(owner)
        else:
            raise AttributeError(self._name)
        values[self._name] = value
        return value


def defer(owner: Any, name: str, make: Callable[[], Any]) -> None:
    """Have an ``OnDemand`` attribute made by this function, which must not hold its owner: nobody would free the two."""
    vars(owner)[_key(name)] = make


def _key(name: str) -> str:
    return f"make {name}"
