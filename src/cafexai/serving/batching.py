"""Rows of different requests explained together: what comes within a few milliseconds is one batch."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .metrics import Counts

WAIT = 0.005  # seconds for which the first row waits for others
MOST = 256  # rows of a batch


class Full(Exception):
    """More rows wait than can be answered soon."""


class Together:
    """A queue of rows and one thread that explains them, batch after batch."""

    def __init__(self, answer: Callable[[Sequence[Any]], list[dict[str, Any]]], counts: Counts, limit: int) -> None:
        self._answer, self._counts, self._limit = answer, counts, limit
        self._queue: asyncio.Queue[tuple[Any, float, asyncio.Future[dict[str, Any]]]] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, "cafexai-explain")
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Rows that are not under way yet."""
        return self._queue.qsize()

    async def explain(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """The results of these rows, in their order."""
        if self._queue.qsize() + len(rows) > self._limit:
            raise Full
        loop, now = asyncio.get_running_loop(), time.monotonic()
        futures: list[asyncio.Future[dict[str, Any]]] = [loop.create_future() for _ in rows]
        for row, future in zip(rows, futures, strict=True):
            self._queue.put_nowait((row, now, future))
        return list(await asyncio.gather(*futures))

    async def start(self) -> None:
        """Begin to work."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End; what was asked before has been answered by then."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = [await self._queue.get()]
            while len(batch) < MOST:
                left = batch[0][1] + WAIT - time.monotonic()
                try:
                    batch.append(self._queue.get_nowait() if left <= 0 else await asyncio.wait_for(self._queue.get(), left))
                except (asyncio.QueueEmpty, asyncio.TimeoutError):
                    break
            await self._answered(loop, batch)

    async def _answered(self, loop: asyncio.AbstractEventLoop, batch: list[Any]) -> None:
        begin = time.monotonic()
        try:
            results = await loop.run_in_executor(self._thread, self._answer, [row for row, *_ in batch])
        except Exception as error:  # not of a row: these are told in its result
            for *_, future in batch:
                if not future.done():
                    future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
            return
        self._counts.batch(len(batch), sum("error" in result for result in results), time.monotonic() - begin)
        for (*_, future), result in zip(batch, results, strict=True):
            if not future.done():  # the client may have disconnected
                future.set_result(result)
