"""Rows of different requests explained together: what comes within a few milliseconds is one batch."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ..errors import InternalError
from .metrics import Counts
from .rows import Answerer, Asked, Result, Row

WAIT = 0.005  # seconds for which the first row waits for others
MOST = 256  # rows of a batch
logger = logging.getLogger("cafexai.serve")


class Full(Exception):
    """More rows wait than can be answered soon."""


class _Waiting(NamedTuple):
    row: Row
    asked: Asked
    answerer: Answerer
    since: float
    future: asyncio.Future[Result]


class Together:
    """A queue of rows and one thread that explains them, batch after batch."""

    def __init__(self, counts: Counts, limit: int) -> None:
        self._counts, self._limit = counts, limit
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, "cafexai-explain")
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Rows that are not under way yet."""
        return self._queue.qsize()

    async def explain(self, rows: Sequence[Row], asked: Asked, answerer: Answerer) -> list[Result]:
        """The results of these rows, in their order, all of them by this answerer."""
        if self._queue.qsize() + len(rows) > self._limit:
            raise Full
        loop, now = asyncio.get_running_loop(), time.monotonic()
        futures: list[asyncio.Future[Result]] = [loop.create_future() for _ in rows]
        for row, future in zip(rows, futures, strict=True):
            self._queue.put_nowait(_Waiting(row, asked, answerer, now, future))
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
                left = batch[0].since + WAIT - time.monotonic()
                try:
                    batch.append(self._queue.get_nowait() if left <= 0 else await asyncio.wait_for(self._queue.get(), left))
                except (TimeoutError, asyncio.QueueEmpty):
                    break
            for answerer in dict.fromkeys(one.answerer for one in batch):  # two while the model is loaded again
                await self._answer(loop, answerer, [one for one in batch if one.answerer is answerer])

    async def _answer(self, loop: asyncio.AbstractEventLoop, answerer: Answerer, batch: list[_Waiting]) -> None:
        begin = time.monotonic()
        rows, asked = [one.row for one in batch], [one.asked for one in batch]
        try:
            results = await loop.run_in_executor(self._thread, answerer, rows, asked)
            if len(results) != len(batch) or not all(results):
                raise InternalError("a row has no result")
            self._counts.batch(results, time.monotonic() - begin)
        except Exception as error:  # not of a row: these are told in its result
            logger.error("%d rows could not be answered", len(batch), exc_info=error)
            for one in batch:
                if not one.future.done():
                    one.future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
            return
        for one, result in zip(batch, results, strict=True):
            if not one.future.done():  # the client may have disconnected
                one.future.set_result(result)
