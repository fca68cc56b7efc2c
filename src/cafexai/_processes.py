"""Processes of our own that end with the one that started them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection


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
