"""Calls of code that is not ours. Their frames in the traceback of an error tell whose fault it is (``_engine/faults.py``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def call_foreign(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run code of the user: the model, or a function that selects its output."""
    return function(*args, **options)


def pass_on(function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Carry out a call that a mode of torch has seen, for the one who made it."""
    return function(*args, **kwargs)
