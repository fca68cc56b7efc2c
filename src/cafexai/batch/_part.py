"""One finished part: there as a whole, under its name, or not at all."""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._extras import needs
from ._sink import HIDDEN, Sink, Staged

if TYPE_CHECKING:
    import pyarrow as pa

    from ._scorer import Scored, Scorer


@dataclass(frozen=True)
class Done:
    """What is known of a unit when it is finished."""

    rows: int
    refused: int
    conflict: float  # sum over the rows
    size: int  # bytes of the part
    checksum: int  # of the part
    scoring: float  # seconds
    writing: float
    refused_size: int = 0  # of the file of refused rows, if there are any
    refused_checksum: int = 0


def make_part(scorer: Scorer, table: pa.Table, path: str, start: int, sink: Sink, name: str, check: Callable[[], None]) -> Done:
    """Score a unit, and write it while the next rows are scored; ``check`` is asked before it gets its name."""
    compute = needs("pyarrow.compute", "batch")
    rows = refused = 0
    beside = (0, 0)
    conflict = scoring = writing = 0.0
    side: list[Any] = []
    waiting: Future[float] | None = None
    with _File(sink, name, scorer.types) as part, ThreadPoolExecutor(1) as writer:
        begin = time.perf_counter()
        scored: Scored
        for scored in scorer.parts(table, path, start):
            scoring += time.perf_counter() - begin
            conflict += compute.sum(scored.scores["conflict"]).as_py() or 0.0
            rows += scored.scores.num_rows
            refused += scored.refused.num_rows
            side += [scored.refused] * bool(scored.refused.num_rows)
            writing += 0.0 if waiting is None else waiting.result()
            waiting = writer.submit(part.write, scored.scores)
            begin = time.perf_counter()
        writing += 0.0 if waiting is None else waiting.result()
        check()
        begin = time.perf_counter()
        if side:
            with _File(sink, f"{HIDDEN}/refused/{name}", side[0].schema) as file:
                for one in side:
                    file.write(one)
                beside = file.finish()
        size, checksum = part.finish()
        writing += time.perf_counter() - begin
    return Done(rows, refused, conflict, size, checksum, scoring, writing, *beside)


class _File:
    """A Parquet file that is visible when it is complete; its pages have checksums, which readers can verify."""

    def __init__(self, sink: Sink, name: str, types: pa.Schema) -> None:
        self.stream = _Summed(sink.stage(name))
        arrow, parquet = needs("pyarrow", "batch"), needs("pyarrow.parquet", "batch")
        words = [field.name for field in types if not arrow.types.is_floating(field.type)]
        self.writer = parquet.ParquetWriter(
            self.stream,
            types,
            compression="snappy",
            use_dictionary=words or False,
            write_statistics=words or False,
            write_page_checksum=True,
        )

    def write(self, table: pa.Table) -> float:
        """Some more rows; says how many seconds that took."""
        begin = time.perf_counter()
        if table.num_rows:
            self.writer.write_table(table)
        return time.perf_counter() - begin

    def finish(self) -> tuple[int, int]:
        """Publish the file; its bytes and their checksum."""
        self.writer.close()
        self.stream.staged.publish()
        return self.stream.size, self.stream.checksum

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):
            self.writer.close()
        self.stream.staged.discard()


class _Summed:
    """A file that knows the checksum of what was written to it."""

    closed = False

    def __init__(self, staged: Staged) -> None:
        self.staged = staged
        self.size = self.checksum = 0

    def write(self, data: Any) -> int:
        self.staged.write(data)
        self.size += len(data)
        self.checksum = zlib.crc32(data, self.checksum)
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Nothing is asked for before the end."""

    def close(self) -> None:
        """The staged file is closed when it is published or discarded."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False
