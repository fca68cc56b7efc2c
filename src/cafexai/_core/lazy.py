"""Attributes that are made when they are first asked for: the one way in which the engine is lazy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class OnDemand:
    """An attribute with a value that is made on first use, then held by the object as any other.

    The function in ``_make_<name>`` of the object makes it, and is let go with all that it holds; else ``make`` does. The first
    must not hold the object: only the garbage collector would free the two.
    """

    def __init__(self, make: Callable[[Any], Any] | None = None) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._key = name, f"_make_{name}"

    def __get__(self, owner: Any, kind: type) -> Any:
        values = owner.__dict__
        if self._key in values:
            value = values[self._key]()
            del values[self._key]
        elif self._make is not None:
            value = self._make(owner)
        else:
            raise AttributeError(self._name)
        values[self._name] = value
        return value
