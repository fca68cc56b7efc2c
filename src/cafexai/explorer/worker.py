"""One thread for the model: the newest request of each kind first, background work when no request waits.

A step of background work that explains rows against many baselines takes long if the model is slow: requests are answered at
its pauses, between two baselines.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from .._engine.pauses import at_pauses

Task = tuple[Callable[[], Any], "Future[Any]"]
WAITING = 64  # kinds of requests at a time


class Superseded(Exception):
    """A newer request of the same kind came before this one was begun."""


class Busy(Exception):
    """Too many requests wait already."""


class Worker:
    """Requests stand in slots: a new one takes the place of the one that waits there. Jobs are taken step by step."""

    def __init__(self, name: str) -> None:
        self._change = threading.Condition()
        self._waiting: dict[str, Task] = {}
        self._jobs: dict[str, Iterator[None]] = {}
        self._ended = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def ask(self, slot: str, call: Callable[[], Any]) -> Future[Any]:
        """What the call returns, once it is its turn; ``Superseded`` if another call takes the slot before."""
        future: Future[Any] = Future()
        with self._change:
            if slot in self._waiting:
                self._waiting[slot][1].set_exception(Superseded())
            elif len(self._waiting) >= WAITING:
                raise Busy
            self._waiting[slot] = (call, future)  # an old slot keeps its turn
            self._change.notify()
        return future

    def background(self, key: str, job: Iterator[None]) -> None:
        """Take steps of a job while no request waits; an older job of this key is cancelled."""
        with self._change:
            self._jobs[key] = job
            self._change.notify()

    def end(self) -> None:
        """No further work; what is being done is finished."""
        with self._change:
            self._ended = True
            self._jobs.clear()
            self._change.notify()

    def _work(self) -> None:
        while True:
            with self._change:
                while not (self._waiting or self._jobs or self._ended):
                    self._change.wait()
                if self._ended:
                    return
                task = self._take()
                key = next(iter(self._jobs), None)
                job = None if key is None else self._jobs[key]
                if task is None and key is not None and job is not None:
                    del self._jobs[key]
                    self._jobs[key] = job  # jobs take turns
            if task is not None:
                _answer(*task)
            elif key is not None and job is not None and not self._step(job):
                with self._change:
                    if self._jobs.get(key) is job:
                        del self._jobs[key]

    def _take(self) -> Task | None:
        """The request whose turn it is; called with the lock."""
        slot = next(iter(self._waiting), None)
        return None if slot is None else self._waiting.pop(slot)

    def _step(self, job: Iterator[None]) -> bool:
        """Whether there is more to do; a job says itself what went wrong."""
        try:
            with at_pauses(self._answer_waiting):
                next(job)
        except StopIteration:
            return False
        return True

    def _answer_waiting(self) -> None:
        """Answer all requests that came since the last pause; their own explanations have no pauses."""
        while True:
            with self._change:
                task = None if self._ended else self._take()
            if task is None:
                return
            with at_pauses(None):
                _answer(*task)


def _answer(call: Callable[[], Any], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:  # the caller gets it
        future.set_exception(error)
