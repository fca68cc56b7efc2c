"""Several processes of one server: one that dies is started again, unless none of them gets as far as to answer."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from .._processes import hold_hangups

AGAIN = 1.0  # seconds until a process that has died is started again
TRIES = 5  # times in a row that a process may end before it answers
logger = logging.getLogger("cafexai.serve")


class Workers:
    """Processes that are kept alive until a signal ends them.

    Args:
        count: How many.
        make: Makes the process of a place; it is started here.
        folder: Where each process says that it answers, by ``say_ready``.
        leave: Called when a signal has told the processes to end.
    """

    def __init__(self, count: int, make: Callable[[int], Any], folder: str, leave: Callable[[], object] = bool) -> None:
        self._make, self._folder, self._leave = make, folder, leave
        self._signals: list[int] = []
        self._heard, self._hear = socket.socketpair()  # wakes the loop
        self._due: dict[int, float] = {}  # place -> when a process that has died is started again
        self._failed = 0  # processes in a row that ended before they answered
        for one in (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])):
            signal.signal(one, self._listen)
        self._processes = [self._start(place) for place in range(count)]

    def run(self) -> None:
        """Until they were told to end, and have.

        Raises:
            ChildProcessError: ``TRIES`` of them in a row ended before they answered.
        """
        ending = False
        while not ending or self._alive():
            if self._heard in wait([self._heard, *(process.sentinel for process in self._alive())], 0.1 if self._due else 1.0):
                self._heard.recv(64)
            while self._signals:
                sig = self._signals.pop(0)
                ending = ending or sig in (signal.SIGTERM, signal.SIGINT)
                self._send(sig)
            if ending:
                self._leave()
            else:
                self._replace()

    def _listen(self, sig: int, _: Any) -> None:
        self._signals.append(sig)
        with contextlib.suppress(OSError):
            self._hear.send(b"x")

    def _start(self, place: int) -> Any:
        _mark(self._folder, place).unlink(missing_ok=True)
        process = self._make(place)
        with hold_hangups():
            process.start()
        return process

    def _alive(self) -> list[Any]:
        return [process for process in self._processes if process.is_alive()]

    def _send(self, sig: int) -> None:
        for process in self._alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, sig)

    def _replace(self) -> None:
        """Start those again that have died a while ago."""
        for place, process in enumerate(self._processes):
            if process.is_alive():
                continue
            if place not in self._due:
                self._failed = 0 if _mark(self._folder, place).exists() else self._failed + 1
                if self._failed >= TRIES:
                    self._give_up(process.exitcode)
                logger.error("process %s has ended with code %s; it is started again", process.pid, process.exitcode)
                self._due[place] = time.monotonic() + AGAIN
            elif time.monotonic() >= self._due[place]:
                del self._due[place]
                self._processes[place] = self._start(place)

    def _give_up(self, code: int) -> None:
        self._send(signal.SIGTERM)
        for process in self._processes:
            process.join()
        raise ChildProcessError(
            f"{TRIES} processes in a row ended before they answered, the last with code {code}; it says why above. "
            "With --workers 1 there is one process, whose error is told."
        )


def say_ready(folder: str, place: int) -> None:
    """This process answers."""
    _mark(folder, place).touch()


def _mark(folder: str, place: int) -> Path:
    return Path(folder) / f"{place}.ready"
