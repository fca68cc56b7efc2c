"""Pauses of long explanations: between two baselines, a program that waits for something else can do that first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CALL: ContextVar[Callable[[], None] | None] = ContextVar("pause", default=None)  # of this thread


def pause() -> None:
    """Called where no pass of the model is under way: other explanations of the same model may run now."""
    call = _CALL.get()
    if call is not None:
        call()


@contextmanager
def at_pauses(call: Callable[[], None] | None) -> Iterator[None]:
    """Explanations of this thread make this call at each pause; None: they make none."""
    before = _CALL.set(call)
    try:
        yield
    finally:
        _CALL.reset(before)


class Stretches:
    """How long the work between two pauses took, in seconds; what is done at pauses does not count."""

    def __init__(self) -> None:
        self.total = self.longest = 0.0
        self._begin = time.perf_counter()

    def end_one(self) -> None:
        """A pause begins."""
        took = time.perf_counter() - self._begin
        self.total += took
        self.longest = max(self.longest, took)

    def begin_one(self) -> None:
        """A pause is over."""
        self._begin = time.perf_counter()


@contextmanager
def timed_stretches() -> Iterator[Stretches]:
    """Measures the explanations in the block; their pauses are those that they would make without it."""
    outer, found = _CALL.get(), Stretches()

    def call() -> None:
        found.end_one()
        if outer is not None:
            outer()
        found.begin_one()

    try:
        with at_pauses(call):
            yield found
    finally:
        found.end_one()
