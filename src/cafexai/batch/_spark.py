"""The same work on the machines of a Spark cluster: a task for each unit, the weights sent once."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from .._extras import needs
from ..loading.file_errors import short
from ._part import Done
from ._scorer import Scorer
from ._workers import Surroundings, do, packed_by

TRIES = 4  # of a task whose process has ended
QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
HERE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@dataclass(frozen=True)
class Sent:
    """A scorer on its way to the processes of Spark, each of which unpacks it once."""

    name: str
    packed: Any  # a broadcast
    around: Surroundings

    @classmethod
    def by(cls, context: Any, scorer: Scorer) -> Sent:
        """A machine gets it once."""
        packed = packed_by(needs("pyspark.cloudpickle", "spark"), scorer, "spark")
        return cls(secrets.token_hex(8), context.broadcast(packed), Surroundings())

    def scorer(self) -> Scorer:
        """In a process of Spark."""
        if self.name not in _unpacked:
            _unpacked.clear()
            _unpacked[self.name] = self.around.unpacked(self.packed.value)
        return _unpacked[self.name]


_unpacked: dict[str, Scorer] = {}


class OnSpark:
    """Work of Spark's tasks, as many at a time as there are threads."""

    def __init__(self, context: Any, sent: Sent, threads: ThreadPoolExecutor, count: int) -> None:
        self._context, self._sent, self._threads, self.count = context, sent, threads, count

    def submit(self, payload: bytes, *rest: Any) -> Future[Done]:
        """Done by and by."""
        return self._threads.submit(self._task, payload, rest)

    def _task(self, payload: bytes, rest: tuple[Any, ...]) -> Done:
        self._context.setJobGroup(self._sent.name, f"cafexai: {rest[-1]}")
        sent, rows = self._sent, self._context.broadcast(payload)  # a task itself may have 128 MB at most
        try:
            (result,) = self._context.parallelize([rest], 1).map(lambda rest: _try(sent, rows, rest)).collect()
        finally:
            rows.destroy()
        if isinstance(result, Exception):
            raise result
        return result


def _try(sent: Sent, rows: Any, rest: tuple[Any, ...]) -> Done | Exception:
    """An error is a result: Spark tries again only where a process has ended."""
    try:
        return do(sent.scorer(), rows.value, *rest)
    except Exception as error:
        known = type(error).__module__.startswith(("builtins", "cafexai"))  # others may not be known where it is told
        return error if known else RuntimeError(f"{type(error).__name__}: {short(error)}")


@contextlib.contextmanager
def on_spark(scorer: Scorer, workers: int | None, address: str | None) -> Iterator[OnSpark]:
    """Tasks of the Spark that runs, or of one of our own at ``address``: on this machine if None."""
    with _context(workers, address) as context:
        count = workers or max(1, context.defaultParallelism)
        sent = Sent.by(context, scorer)
        threads = ThreadPoolExecutor(count)
        try:
            yield OnSpark(context, sent, threads, count)
        finally:
            context.cancelJobGroup(sent.name)
            threads.shutdown(cancel_futures=True)
            sent.packed.destroy()


@contextlib.contextmanager
def _context(workers: int | None, address: str | None) -> Iterator[Any]:
    spark = needs("pyspark", "spark")
    if spark.SparkContext._active_spark_context is not None:
        yield spark.SparkContext.getOrCreate()
        return
    master = address or f"local[{workers or '*'},{TRIES}]"
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise ModuleNotFoundError("engine='spark' needs Java 17 or later: install it, or let JAVA_HOME say where it is.")
    here = master.startswith("local")
    settings = {"spark.master": master, "spark.app.name": "cafexai", **QUIET, **(HERE if here else {})}
    with _own_python() if here else contextlib.nullcontext():
        try:
            context = spark.SparkContext(conf=spark.SparkConf().setAll(list(settings.items())))
        except Exception as error:
            raise ValueError(
                f"score(..., address={master!r}): Spark does not start ({short(error)}). Give the address of its master, such "
                "as spark://host:7077."
            ) from error
        try:
            yield context
        finally:
            context.stop()


@contextlib.contextmanager
def _own_python() -> Iterator[None]:
    """On this machine Spark starts the Python that runs here, with its packages."""
    if "PYSPARK_PYTHON" in os.environ:
        yield
        return
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        yield
    finally:
        del os.environ["PYSPARK_PYTHON"]
