"""Progress bars on long work, where tqdm is installed."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import TypeVar

T = TypeVar("T")


def progress(
    items: Iterable[T], what: str, unit: str, show: bool | None = None, *, total: int | None = None, start: int = 0
) -> Iterable[T]:
    """The items, with a bar if asked for; None shows one on a terminal where there is more than one item.

    ``total`` says how many there are where they cannot be counted before, ``start`` how many of them were done earlier.
    """
    count = len(items) if total is None and isinstance(items, Sized) else total
    if show is False or (show is None and count == 1):
        return items
    try:
        from tqdm.auto import tqdm
    except ModuleNotFoundError:
        if show:
            raise ModuleNotFoundError("This needs tqdm: pip install 'cafexai[progress]'.") from None
        return items
    bar: Iterable[T] = tqdm(items, desc=what, unit=unit, total=count, initial=start, disable=False if show else None)
    return bar
