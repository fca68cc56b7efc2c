"""Packages of the optional extras, imported where they are used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")
Watcher = Callable[[str, int, int | None], None]  # what is done, how many of it, of how many
_WATCHER: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watch_loops(watcher: Watcher) -> Iterator[None]:
    """Loops that would show a bar by themselves tell the watcher instead how far they are."""
    before = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(before)


def needs(package: str, extra: str) -> Any:
    """A package of an optional extra."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"This needs {package.split('.')[0]}: pip install 'cafexai[{extra}]'.") from error


def progress(
    items: Iterable[T], what: str, unit: str, show: bool | None = None, *, total: int | None = None, start: int = 0
) -> Iterable[T]:
    """The items, with a bar if asked for; None shows one on a terminal where there is more than one item.

    ``total`` says how many there are where they cannot be counted before, ``start`` how many of them were done earlier.
    """
    count = len(items) if total is None and isinstance(items, Sized) else total
    if show is False or (show is None and count == 1):
        return items
    watcher = _WATCHER.get()
    if show is None and watcher is not None:
        return _tell(items, watcher, what, count, start)
    try:
        tqdm = needs("tqdm.auto", "progress").tqdm
    except ModuleNotFoundError:
        if show:
            raise
        return items
    bar: Iterable[T] = tqdm(items, desc=what, unit=unit, total=count, initial=start, disable=False if show else None)
    return bar


def _tell(items: Iterable[T], watcher: Watcher, what: str, total: int | None, start: int) -> Iterator[T]:
    for done, item in enumerate(items, start):
        watcher(what, done, total)
        yield item
