"""Text that becomes HTML: whatever is not HTML already is escaped, so that nothing from the data can be markup."""

from __future__ import annotations

import html as standard
import re
from collections.abc import Iterable
from typing import Any

# Signs that no page may hold: control characters, halves of surrogate pairs, and marks that turn the direction of text.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_OPEN = frozenset("tr td th thead tbody li dt dd option".split())  # elements that HTML lets end by themselves
_BARE = re.compile(r"[\w.#+-]+", re.ASCII)  # a value of an attribute that needs no quotes


class Html(str):
    """A piece of a page, safe as it is."""

    __slots__ = ()


def html(value: Any) -> Html:
    """The value as text of a page, or of an attribute in double quotes."""
    return value if isinstance(value, Html) else Html(standard.escape(_FORBIDDEN.sub("\ufffd", str(value))))


def join_parts(parts: Iterable[Any], between: str = "") -> Html:
    """All parts, one behind the other."""
    return Html(html(between).join(map(html, parts)))


def tag(element: str, *parts: Any, **attributes: Any) -> Html:
    """An element with its attributes (``kind`` is the class; "_" stands for "-"; None is left out) and what is inside."""
    words = [element]
    for name, value in attributes.items():
        if value is not None:
            text = html(value)
            quote = "" if _BARE.fullmatch(text) else '"'
            words.append(f"{_NAMES.get(name, name.replace('_', '-'))}={quote}{text}{quote}")
    return Html(f"<{' '.join(words)}>{join_parts(parts)}{'' if element in _OPEN else f'</{element}>'}")


_NAMES = {"kind": "class", "label": "aria-label", "viewbox": "viewBox", "label_for": "for"}
