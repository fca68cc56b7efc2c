"""Tasks of a study in several processes at the same time."""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from ..._processes import deaf_children, end_with
from ..models.checkpoint import Tally
from .record import Settings, Study, Workplace
from .task_results import do

Ends = Generator[Tally, None, None]


def threads_of(jobs: int) -> int:
    """The threads of one of so many processes."""
    return max(1, torch.get_num_threads() // jobs)


def run_tasks(study: Study, settings: Settings, folder: Path, place: Workplace, keys: list[str], jobs: int) -> Ends:
    """Do the tasks with these keys; count the trainings of each. A failure or an interruption ends all processes at once."""
    context = multiprocessing.get_context("spawn")  # a fork would copy the locks of torch's threads
    life, held = context.Pipe(duplex=False)  # held by this process alone: it closes when this process ends or says so
    pool = ProcessPoolExecutor(jobs, context, _start, (threads_of(jobs), life))
    try:
        with deaf_children():
            futures = {pool.submit(do_task, study, settings, folder, place, key) for key in keys}
        for future in as_completed(futures):
            yield future.result()
        pool.shutdown()
    except BrokenProcessPool as problem:
        said = f" It said: {problem.__cause__}" if problem.__cause__ else ""
        raise ChildProcessError(
            f"study {study.name}: one of {jobs} processes has ended without a result, most often for want of memory.{said} "
            f"What is done is kept in {folder}: start it again to go on, with fewer jobs if memory is short. A script of yours "
            'must be a file and start a study under if __name__ == "__main__":, else its processes cannot begin.'
        ) from None
    finally:
        held.close()
        pool.shutdown(cancel_futures=True)


def _start(threads: int, life: Connection) -> None:
    torch.set_num_threads(threads)
    end_with(life)


def do_task(study: Study, settings: Settings, folder: Path, place: Workplace, key: str) -> Tally:
    """Do the task with this key without a progress bar of its own."""
    tasks = study.tasks(settings, dataclasses.replace(place, show_progress=False))
    return do(folder, next(task for task in tasks if task.key == key))
