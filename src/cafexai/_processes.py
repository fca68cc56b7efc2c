"""Signals, and processes of our own that end with the one that started them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any


class Hangups:
    """A handler that records SIGHUP, which would otherwise end the process, until there is something to load again."""

    def __init__(self) -> None:
        self.met = False

    def __call__(self, *_: Any) -> None:
        """Record one."""
        self.met = True


def record_hangups() -> Hangups:
    """Record SIGHUP from now on; what was recorded before is kept."""
    if not hasattr(signal, "SIGHUP") or threading.current_thread() is not threading.main_thread():
        return Hangups()
    known = signal.getsignal(signal.SIGHUP)
    hangups = known if isinstance(known, Hangups) else Hangups()
    signal.signal(signal.SIGHUP, hangups)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    return hangups


@contextlib.contextmanager
def hold_hangups() -> Iterator[None]:
    """SIGHUP waits meanwhile. Processes started here inherit this: it waits until they call ``record_hangups``."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def deaf_children() -> Iterator[None]:
    """Processes started here do not hear Ctrl-C: this one does, and ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_with(life: Connection) -> None:
    """End this process when the other end of a pipe is closed, or the process that holds it is gone."""
    threading.Thread(target=_wait, args=(life,), daemon=True).start()


def _wait(life: Connection) -> None:
    """Files are written at once or not at all, so nothing is lost but the work under way."""
    with contextlib.suppress(OSError):
        life.poll(None)  # until the other end is closed: nothing is ever sent
    os._exit(1)
