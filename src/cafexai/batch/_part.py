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
from ._partitions import split
from ._sink import REFUSED, Stage, Staged

if TYPE_CHECKING:
    import pyarrow as pa

    from ._scorer import Scored, Scorer


@dataclass(frozen=True)
class Written:
    """A file, as it was written."""

    name: str
    size: int  # bytes
    checksum: int


@dataclass(frozen=True)
class Done:
    """What is known of a unit when it is finished."""

    rows: int
    refused: int
    conflict: float  # sum over the rows
    scoring: float  # seconds
    writing: float
    files: tuple[Written, ...]  # one, or one for each partition; and that of the refused rows


def make_part(scorer: Scorer, table: pa.Table, path: str, start: int, sink: Stage, key: str, check: Callable[[], None]) -> Done:
    """Score a unit, and write it while the next rows are scored; ``check`` is asked before it gets its name."""
    compute = needs("pyarrow.compute", "batch")
    rows = refused = 0
    conflict = scoring = writing = 0.0
    waiting: Future[float] | None = None
    files: tuple[Written, ...] = ()
    with _Part(scorer, sink, key) as part, ThreadPoolExecutor(1) as writer:
        begin = time.perf_counter()
        scored: Scored
        with scorer.cafe.session():
            for scored in scorer.parts(table, path, start):
                scoring += time.perf_counter() - begin
                conflict += compute.sum(scored.scores["conflict"]).as_py() or 0.0
                rows += scored.scores.num_rows
                refused += scored.refused.num_rows
                writing += 0.0 if waiting is None else waiting.result()
                waiting = writer.submit(part.write, scored)
                begin = time.perf_counter()
        writing += 0.0 if waiting is None else waiting.result()
        check()
        begin = time.perf_counter()
        files = part.finish()
        writing += time.perf_counter() - begin
    return Done(rows, refused, conflict, scoring, writing, files)


class _Part:
    """The files of a unit: one for each partition, and one of the refused rows. They are published at the end."""

    def __init__(self, scorer: Scorer, sink: Stage, key: str) -> None:
        self._by, self._sink, self._key, self._compression = scorer.form.partition_by, sink, key, scorer.form.compression
        self._files: dict[str, _File] = {}
        if not self._by:  # a unit without scores has an empty part
            self._file(f"part-{key}.parquet", scorer.types)

    def write(self, scored: Scored) -> float:
        """Some more rows; says how many seconds that took."""
        begin = time.perf_counter()
        for folder, table in split(scored.scores, self._by):
            self._file(f"{folder}part-{self._key}.parquet", table.schema).write(table)
        if scored.refused.num_rows:
            self._file(f"{REFUSED}/part-{self._key}.refused", scored.refused.schema).write(scored.refused)
        return time.perf_counter() - begin

    def finish(self) -> tuple[Written, ...]:
        """Publish all, in an order that is always the same."""
        return tuple(self._files[name].finish() for name in sorted(self._files))

    def _file(self, name: str, types: pa.Schema) -> _File:
        if name not in self._files:
            self._files[name] = _File(self._sink, name, types, self._compression)
        return self._files[name]

    def __enter__(self) -> _Part:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.discard()


class _File:
    """A Parquet file that is visible when it is complete; its pages have checksums, which readers can verify."""

    def __init__(self, sink: Stage, name: str, types: pa.Schema, compression: str) -> None:
        self.name, self.stream = name, _Summed(sink.stage(name))
        arrow, parquet = needs("pyarrow", "batch"), needs("pyarrow.parquet", "batch")
        words = [field.name for field in types if not arrow.types.is_floating(field.type)]
        self.writer = parquet.ParquetWriter(
            self.stream,
            types,
            compression=compression,
            use_dictionary=words or False,
            write_statistics=words or False,
            write_page_checksum=True,
        )

    def write(self, table: pa.Table) -> None:
        """Some more rows."""
        if table.num_rows:
            self.writer.write_table(table)

    def finish(self) -> Written:
        """Publish the file."""
        self.writer.close()
        self.stream.staged.publish()
        return Written(self.name, self.stream.size, self.stream.checksum)

    def discard(self) -> None:
        """Forget what is not published."""
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
