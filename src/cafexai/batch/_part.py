"""One finished part: there as a whole, under its name, or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._extras import needs

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


def make_part(
    scorer: Scorer, table: pa.Table, path: str, start: int, folder: Path, name: str, check: Callable[[], None]
) -> Done:
    """Score a unit, and write it while the next rows are scored; ``check`` is asked before it gets its name."""
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
        check()
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
        arrow, parquet = needs("pyarrow", "batch"), needs("pyarrow.parquet", "batch")
        words = [field.name for field in types if not arrow.types.is_floating(field.type)]
        self.writer = parquet.ParquetWriter(
            self.stream, types, compression="snappy", use_dictionary=words or False, write_statistics=words or False
        )

    def write(self, table: pa.Table) -> float:
        """Some more rows; says how many seconds that took."""
        begin = time.perf_counter()
        if table.num_rows:
            self.writer.write_table(table)
        return time.perf_counter() - begin

    def finish(self) -> tuple[int, int]:
        """The file with its name; its bytes and their checksum."""
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
            self.writer.close()
        self.stream.close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.beside)


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
