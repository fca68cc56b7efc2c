"""One finished part: there as a whole, under its name, or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._extras import needs

if TYPE_CHECKING:
    import pyarrow as pa

    from ._scorer import Scored, Scorer


SAMPLE, SHORTER = 4096, 0.9  # numbers of a column that are compressed to see whether that is worth it, and when it is


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


def make_part(scorer: Scorer, table: pa.Table, path: str, start: int, folder: Path, name: str) -> Done:
    """Score a unit, and write it while the next rows are scored."""
    compute = needs("pyarrow.compute", "batch")
    hidden = folder / "_cafexai"
    rows = refused = 0
    conflict = scoring = writing = 0.0
    side: list[Any] = []
    waiting: Future[float] | None = None
    with _File(folder / name, hidden, scorer.types) as part, ThreadPoolExecutor(1) as writer:
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
        begin = time.perf_counter()
        if side:
            (hidden / "refused").mkdir(exist_ok=True)
            with _File(hidden / "refused" / name, hidden, side[0].schema) as file:
                for one in side:
                    file.write(one)
        size, checksum = part.finish()
        writing += time.perf_counter() - begin
    return Done(rows, refused, conflict, size, checksum, scoring, writing)


class _File:
    """A Parquet file that is written beside its place and gets its name when it is complete."""

    def __init__(self, place: Path, hidden: Path, types: pa.Schema) -> None:
        self.place = place
        self.beside = hidden / f"{place.name}.{secrets.token_hex(4)}.part"
        self.stream = _Summed(self.beside)
        self.types = types
        self.writer: Any = None

    def write(self, table: pa.Table) -> float:
        """Some more rows; says how many seconds that took."""
        begin = time.perf_counter()
        if table.num_rows:
            self.writer = self.writer or self._opened(table)
            self.writer.write_table(table)
        return time.perf_counter() - begin

    def _opened(self, table: pa.Table) -> Any:
        """A writer of rows like these: scores that do not get shorter are not compressed."""
        arrow, parquet = needs("pyarrow", "batch"), needs("pyarrow.parquet", "batch")
        words = [field.name for field in self.types if not arrow.types.is_floating(field.type)]
        packing: Any = "snappy"
        if not any(arrow.types.is_nested(field.type) for field in self.types):  # whose columns have names of their own in files
            shorter = {name: name in words or _shrinks(arrow, table[name]) for name in self.types.names}
            packing = {name: "snappy" if shrinks else "none" for name, shrinks in shorter.items()}
        return parquet.ParquetWriter(
            self.stream, self.types, compression=packing, use_dictionary=words or False, write_statistics=words or False
        )

    def finish(self) -> tuple[int, int]:
        """The file with its name; its bytes and their checksum."""
        self.writer = self.writer or self._opened(self.types.empty_table())
        self.writer.close()
        self.stream.keep()
        os.replace(self.beside, self.place)
        keep_names(self.place.parent)
        return self.stream.size, self.stream.checksum

    def __enter__(self) -> _File:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None and os.path.exists(self.beside):
            self.finish()
        with contextlib.suppress(Exception):
            self.writer.close()  # if there is one
        self.stream.close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.beside)


def _shrinks(arrow: Any, column: Any) -> bool:
    """Whether the first of its numbers take clearly less room when they are compressed."""
    first = column.slice(0, SAMPLE).combine_chunks().to_numpy(zero_copy_only=False)
    return not len(first) or arrow.compress(arrow.py_buffer(first), "snappy").size < SHORTER * first.nbytes


class _Summed:
    """A file that knows the checksum of what was written to it."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb", buffering=1 << 20)
        self.size = self.checksum = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self.size += len(data)
        self.checksum = zlib.crc32(data, self.checksum)
        return self.file.write(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self.file.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def keep(self) -> None:
        """On the disk, not only on the way to it."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.file.close()


def keep_names(folder: Path) -> None:
    """New names in a folder are on the disk."""
    with contextlib.suppress(OSError):  # where folders cannot be opened
        place = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(place)
        finally:
            os.close(place)


def remove_left_overs(hidden: Path) -> None:
    """Files of work that was ended in the middle."""
    for file in hidden.glob("*.part"):
        file.unlink(missing_ok=True)
