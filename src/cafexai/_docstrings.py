"""Docstrings of functions that a decorator gives further parameters: one description for all of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

_SECTION = re.compile(r"^(Args|Returns|Raises|Example):\n((?:(?: .*)?\n)*)", re.MULTILINE)


def join_docstrings(own: Callable[..., Any], shared: str) -> str:
    """The docstring of a function, with the sections of ``shared`` beside its own.

    The shared parameters come first, unless the function describes them itself. ``Returns``, ``Raises`` and ``Example`` are
    those of the function, if it has them.
    """
    text, mine = _split(inspect.getdoc(own) or "")
    _, others = _split(inspect.cleandoc(shared))
    args = {**_entries(others["Args"]), **_entries(mine.get("Args", ""))}
    sections = {**others, **mine, "Args": "".join(args.values())}
    written = [f"{title}:\n{sections[title]}" for title in ("Args", "Returns", "Raises", "Example") if title in sections]
    return "\n".join([f"{text}\n", *written]).rstrip() + "\n"


def _split(docstring: str) -> tuple[str, dict[str, str]]:
    """The text before the first section, and the sections by their titles."""
    docstring = docstring.rstrip() + "\n"
    sections = {match[1]: match[2].rstrip() + "\n" for match in _SECTION.finditer(docstring)}
    return _SECTION.split(docstring)[0].rstrip(), sections


def _entries(args: str) -> dict[str, str]:
    """Parameter -> its lines in a section ``Args``."""
    return {match[1]: match[0] for match in re.finditer(r"^    (\S+):.*\n(?:     .*\n)*", args, re.MULTILINE)}
