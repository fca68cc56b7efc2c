"""What is going on, for a person at a terminal who has waited for two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from .._extras import watch_loops

AFTER, EVERY = 2.0, 0.5  # seconds


class Status:
    """One line on a terminal that says what is done; nothing where the stream is no terminal."""

    def __init__(self, stream: TextIO | None = None, after: float = AFTER) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._after = after
        self._begin = time.monotonic()
        self._what = ""
        self._share: tuple[int, int | None] = (0, None)
        self._shown = 0  # letters of the line that is there
        self._end = threading.Event()

    @contextmanager
    def running(self) -> Iterator[Status]:
        """Look every now and then whether there is something to say."""
        if not self._stream.isatty():
            yield self
            return
        thread = threading.Thread(target=self._tick, daemon=True)
        thread.start()
        try:
            with watch_loops(self.at):
                yield self
        finally:
            self._end.set()
            thread.join()
            self._write("")

    def doing(self, what: str) -> None:
        """The next piece of work, which lasts from now on."""
        self._what, self._share, self._begin = what, (0, None), time.monotonic()

    def tell(self, what: str) -> None:
        """Replace the text; the start time stays."""
        self._what = what

    def at(self, what: str, done: int, total: int | None) -> None:
        """How far a loop is."""
        self._share = (done, total)
        self._what = self._what or what

    def line(self) -> str:
        """What is shown now."""
        done, total = self._share
        share = f", {done} of {total} parts" if total else ""
        return f"{self._what}{share}, {time.monotonic() - self._begin:.0f} s"

    def _tick(self) -> None:
        while not self._end.wait(EVERY):
            if self._what and time.monotonic() - self._begin >= self._after:
                self._write(self.line())

    def _write(self, line: str) -> None:
        if line or self._shown:
            self._stream.write("\r" + line.ljust(self._shown) + ("" if line else "\r"))
            self._stream.flush()
            self._shown = len(line)
