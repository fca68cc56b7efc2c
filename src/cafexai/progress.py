"""Progress bars on long work, where tqdm is installed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def progress(items: Sequence[T], what: str, unit: str, show: bool | None = None) -> Iterable[T]:
    """The items, with a bar if asked for; None shows one on a terminal where there is more than one item."""
    if show is False or (show is None and len(items) == 1):
        return items
    try:
        from tqdm.auto import tqdm
    except ModuleNotFoundError:
        if show:
            raise ModuleNotFoundError("This needs tqdm: pip install 'cafexai[progress]'.") from None
        return items
    bar: Iterable[T] = tqdm(items, desc=what, unit=unit, disable=False if show else None)
    return bar
