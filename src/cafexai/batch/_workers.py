"""Processes that score and write, with one torch thread each and the weights in memory once."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import torch

from .._core import kernels
from .._extras import needs
from .._processes import deaf_children, end_with
from ..errors import WorkersWarning, warn
from ..loading.file_errors import short
from . import _kernels
from ._part import Done, make_part
from ._scorer import Scorer
from ._sink import Sink

EACH = 1 << 29  # bytes that a process needs besides the model


def suggested(cafe: Any) -> int:
    """One process for each processor that this one may use, if memory is enough."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    model = cafe.model
    weights = sum(one.nbytes for one in (*model.parameters(), *model.buffers())) if hasattr(model, "parameters") else 0
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return processors
    return max(1, min(processors, int(free // (EACH + 3 * weights))))


class Here:
    """The same work in this process, one unit at a time."""

    count = 1

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    def submit(self, payload: bytes, *rest: Any) -> Future[Done]:
        """Done at once."""
        future: Future[Done] = Future()
        try:
            future.set_result(do(self.scorer, payload, *rest))
        except BaseException as error:
            future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        return future

    def can_make_kernels(self) -> bool:
        """Whether a compiler is there and works."""
        return kernels.problem() is None


class Beside:
    """Work in other processes."""

    def __init__(self, pool: ProcessPoolExecutor, count: int) -> None:
        self.pool, self.count = pool, count

    def submit(self, payload: bytes, *rest: Any) -> Future[Done]:
        """Done by and by."""
        with deaf_children():
            return self.pool.submit(_do, payload, *rest)

    def can_make_kernels(self) -> bool:
        """Whether a compiler is there and works, as some of the processes find."""
        with deaf_children():
            tried = [self.pool.submit(kernels.problem) for _ in range(self.count)]
        return all(one.result() is None for one in tried)


@contextlib.contextmanager
def working(scorer: Scorer, workers: int | None) -> Iterator[Here | Beside]:
    """So many processes, or this one alone for 0."""
    count = suggested(scorer.cafe) if workers is None else workers
    with tempfile.TemporaryDirectory(prefix="cafexai-") as folder:
        file = os.path.join(folder, "scorer.pt")
        if count:
            try:
                with _sendable(f"workers={workers}", "or give workers=0"):
                    torch.save(scorer, file)
            except ValueError as error:
                if workers:
                    raise
                warn(f"{error} It is scored in this one alone.", WorkersWarning)
                count = 0
        if not count:
            with one_thread():
                yield Here(scorer)
            return
        context = get_context("spawn")  # a fork would copy the locks of torch's threads
        life, held = context.Pipe(duplex=False)
        pool = ProcessPoolExecutor(count, context, _start, (file, life))
        try:
            yield Beside(pool, count)
        except BrokenProcessPool as error:
            held.close()
            raise ChildProcessError(
                "score(...): a process has ended without a result, most often for want of memory. What is finished stays: "
                "start again to go on, with fewer workers= if memory is short. A script must be a file and call score "
                'under if __name__ == "__main__":, else its processes cannot begin.'
            ) from error
        except BaseException:
            held.close()  # ends them at once
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            held.close()


@dataclass(frozen=True)
class Surroundings:
    """What a process of an engine must know before it can unpack a scorer."""

    kernels: str = field(default_factory=lambda: os.environ.get(_kernels.VARIABLE, "never"))
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))  # where the module of the model may be

    def unpacked(self, packed: Any) -> Scorer:
        """The scorer, in a process that works as all others do."""
        sys.path += [folder for folder in self.path if folder not in sys.path]
        os.environ[_kernels.VARIABLE] = self.kernels
        settle()
        return pickle.loads(packed)


def packed_by(cloudpickle: Any, scorer: Scorer, engine: str) -> bytes:
    """As engines send things: with the code of what no module of the other side holds."""
    with _sendable(f"engine={engine!r}", "or use another engine"):
        return cloudpickle.dumps(scorer)


@contextlib.contextmanager
def _sendable(given: str, else_: str) -> Iterator[None]:
    try:
        yield
    except (pickle.PicklingError, AttributeError, TypeError, NotImplementedError, RuntimeError) as error:
        raise ValueError(
            f"score(..., {given}): the model cannot be sent to other processes ({short(error, 160)}). Define it at the top of "
            f"a module, {else_}."
        ) from error


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """As in a worker: one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


_scorer: Scorer | None = None


def _start(file: str, life: Connection) -> None:
    global _scorer
    end_with(life)
    settle()
    _scorer = torch.load(file, mmap=True, weights_only=False)  # our own file; its weights are in memory once for all


def settle() -> None:
    """A process beside others: one thread."""
    torch.set_num_threads(1)
    arrow = needs("pyarrow", "batch")
    arrow.set_cpu_count(1)
    arrow.set_io_thread_count(1)


def _do(payload: bytes, *rest: Any) -> Done:
    assert _scorer is not None
    return do(_scorer, payload, *rest)


def do(scorer: Scorer, payload: bytes, word: str, path: str, start: int, sink: Sink, key: str) -> Done:
    """One unit: rows as Arrow packs them become a part. ``word``: whether with kernels."""
    table = needs("pyarrow.ipc", "batch").open_stream(payload).read_all()
    with _kernels.for_all(word):
        return make_part(scorer, table, path, start, sink, key, lambda: _kernels.check(word))
