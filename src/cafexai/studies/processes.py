"""Tasks of a study in several processes at the same time."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from .parts import do
from .record import Settings, Study, Workplace


def done(study: Study, settings: Settings, folder: Path, data: str | None, keys: list[str], jobs: int) -> Iterator[str]:
    """Do the tasks with these keys, and say which one is done; a failure or an interruption ends all processes at once."""
    threads = max(1, torch.get_num_threads() // jobs)
    context = multiprocessing.get_context("spawn")  # a fork would copy the locks of torch's threads
    life, held = context.Pipe(
        duplex=False
    )  # only this process holds the other end: it closes when this process ends or says so
    pool = ProcessPoolExecutor(min(jobs, len(keys)), context, _start, (threads, life))
    try:
        futures = {pool.submit(_do, study, settings, folder, data, key): key for key in keys}
        for future in as_completed(futures):
            future.result()
            yield futures[future]
        pool.shutdown()
    except BrokenProcessPool:
        raise ChildProcessError(
            f"study {study.name}: one of {jobs} processes was ended from outside, most often for want of memory. What is done "
            f"is kept in {folder}: start it again to go on, with fewer --jobs if memory is short."
        ) from None
    finally:
        held.close()
        pool.shutdown(cancel_futures=True)


def _start(threads: int, life: Connection) -> None:
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with, args=(life,), daemon=True).start()


def _end_with(life: Connection) -> None:
    """Files are written at once or not at all, so nothing is lost but the task under way."""
    life.poll(None)  # until the other end is closed: nothing is ever sent
    os._exit(1)


def _do(study: Study, settings: Settings, folder: Path, data: str | None, key: str) -> None:
    tasks = study.tasks(settings, Workplace(folder / "models", data, show_progress=False))
    do(folder, next(task for task in tasks if task.key == key))
