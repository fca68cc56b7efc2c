"""Rows from files that need not fit into memory: Parquet, CSV and Arrow, folders and globs of them, here or at an address."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._extras import needs
from ..loading.file_errors import DataProblem, OutputProblem, in_other_letters, short
from ..loading.tables import check_header, choose_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from ._sink import Sink

KINDS = {"parquet": (".parquet", ".pq"), "csv": (".csv", ".tsv", ".csv.gz", ".tsv.gz"), "arrow": (".arrow", ".feather", ".ipc")}
BLOCK = 4 << 20  # bytes of a CSV file at a time


@dataclass(frozen=True)
class File:
    """A file as it was when the work began."""

    path: str
    name: str  # relative to the folder that was given: it stays when the input is moved
    size: int
    time: int  # when it was written, in ns; 0 where that is not known


@dataclass(frozen=True)
class Unit:
    """Consecutive rows of one file: what is scored and written as one part."""

    file: int
    start: int
    rows: int

    @property
    def key(self) -> str:
        """A name that is the same in every run."""
        return f"{self.file:05d}-{self.start:012d}"


Batches = Callable[[], Iterator["pa.RecordBatch"]]
Stretch = tuple[int, int | None, Batches]  # first row, number of rows (None: not known before they are read), and the rows


class Source:
    """Files of one kind, and the names of their columns.

    ``names`` are the columns in the files; folders such as ``day=3`` add ``extra`` ones, which can be kept.
    """

    def __init__(
        self, address: Any, encoding: str | None = None, known: Sequence[str] = (), keep: Collection[str] = ()
    ) -> None:
        """``known``: names of files that come first, in the order of an earlier run; ``keep``: columns of keys."""
        self.arrow, self.dataset = needs("pyarrow", "batch"), needs("pyarrow.dataset", "batch")
        self.address = address
        self.call = f"score(cafe, {address!r}, ...)"
        if encoding is not None and not _is_known(encoding):
            raise ValueError(f"score(..., encoding={encoding!r}): there is no such encoding; utf-8 and cp1252 are some.")
        self.filesystem, paths, self.base, self.root = _find(address)
        order = {name: place for place, name in enumerate(known)}
        paths.sort(key=lambda path: order.get(self._name(path), len(order)))  # files that are not known keep their order
        self.kind = _kind(paths, str(address))
        self.encoding, self.keep = encoding, frozenset(keep)
        self.files = [self._file(path) for path in paths]
        self.known_rows: dict[int, int] = {}  # of CSV files that an earlier run has read to the end
        self.fragments: list[Any] = []
        if self.kind == "csv":
            self.types = self.arrow.schema([(name, self.arrow.string()) for name in self._header(paths[0])])
            self.names: tuple[str, ...] = tuple(self.types.names)
            self.extra: tuple[str, ...] = ()
            return
        with self._reading(paths[0]):
            options: Any = {"partitioning": "hive", "partition_base_dir": self.base} if self.base else {}
            form = self.kind if self.kind == "parquet" else "ipc"
            found = self.dataset.dataset(paths, filesystem=self.filesystem, format=form, **options)
            self.types, self.fragments = found.schema, list(found.get_fragments())
            self.names = tuple(self.fragments[0].physical_schema.names)
        self.extra = tuple(name for name in self.types.names if name not in self.names)
        for place, fragment in enumerate(self.fragments):  # in the order of the files, each whole
            with self._reading(self.files[place].path):
                self.known_rows[place] = fragment.count_rows()

    @property
    def rows(self) -> int | None:
        """Of all files; None where some have not been read to the end yet."""
        return sum(self.known_rows.values()) if len(self.known_rows) == len(self.files) else None

    @property
    def size(self) -> int:
        """Of all files, in bytes."""
        return sum(file.size for file in self.files)

    @property
    def letters(self) -> str | None:
        """The encoding of CSV files, however it is spelled."""
        return codecs.lookup(self.encoding or "utf-8").name if self.kind == "csv" else None

    def guess_rows(self) -> int | None:
        """Rows of CSV files, from the length of the first lines; None where they are compressed."""
        if self.kind != "csv" or any(file.path.lower().endswith(".gz") for file in self.files):
            return None
        with self._reading(self.files[0].path), self.filesystem.open_input_stream(self.files[0].path) as stream:
            start = stream.read(BLOCK)
        lines = start.count(b"\n")
        return lines - 1 if len(start) == self.size else round(self.size / max(len(start) / max(lines, 1), 1))

    def apart_from(self, sink: Sink) -> None:
        """What is written must not be read."""
        met = sink.is_inside(self.base) if self.base else None
        if any(sink.holds(file.path) for file in self.files) or (met is not None and _visible(met, self.base or "")):
            raise OutputProblem(
                f"{sink.place}: it is inside of the input, and would be read as rows. Give a folder outside of it."
            )

    def units(self, columns: Sequence[str], rows: int, done: Collection[str]) -> Iterator[tuple[Unit, pa.Table]]:
        """The columns of all units that are not done yet."""
        for place, file in enumerate(self.files):
            choose_columns((*self._names(place), *self.extra), columns, file.path, "column")
            for first, count, batches in self._stretches(place, columns, rows):
                if count is not None and all(Unit(place, at, 0).key in done for at in range(first, first + count, rows)):
                    continue
                start = first
                self._unchanged(file)
                with self._reading(file.path):
                    for table in cut(self.arrow, batches(), rows):
                        unit = Unit(place, start, table.num_rows)
                        start += table.num_rows
                        if unit.key not in done:
                            self._unchanged(file)
                            yield unit, table
                if count is None:
                    self.known_rows[place] = start

    def _stretches(self, place: int, columns: Sequence[str], rows: int) -> Iterator[Stretch]:
        """Parts of a file that are read on their own: row groups, small ones together; a file that has none as a whole."""
        if self.kind == "csv":
            yield 0, self.known_rows.get(place), lambda: self._csv(self.files[place].path, columns)
            return
        fragment = self.fragments[place]
        if self.kind == "arrow":
            yield 0, self.known_rows[place], lambda: self._batches(fragment, columns, rows)
            return
        groups: list[int] = []
        first = count = 0
        for group in fragment.row_groups:
            if groups and count + group.num_rows > rows:
                yield first, count, self._grouped(fragment, tuple(groups), columns, rows)
                groups, first, count = [], first + count, 0
            groups.append(group.id)
            count += group.num_rows
        yield first, count, self._grouped(fragment, tuple(groups), columns, rows)

    def _grouped(self, fragment: Any, groups: tuple[int, ...], columns: Sequence[str], rows: int) -> Batches:
        return lambda: self._batches(fragment.subset(row_group_ids=list(groups)), columns, rows)

    def _batches(self, fragment: Any, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        own = fragment.physical_schema
        fields = [_plain(self.arrow, self.types.field(name) if name in self.extra else own.field(name)) for name in columns]
        options: dict[str, Any] = {}
        if self.kind == "parquet":
            options["fragment_scan_options"] = self.dataset.ParquetFragmentScanOptions(pre_buffer=False)
        yield from fragment.to_batches(
            schema=self.arrow.schema(fields),
            columns=list(columns),
            batch_size=min(rows, 1 << 16),
            batch_readahead=1,
            fragment_readahead=1,
            **options,
        )

    def _csv(self, path: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Every cell as it is written: what is no number is told row by row. NA is missing in features, and text in keys."""
        reader, compute = needs("pyarrow.csv", "batch"), needs("pyarrow.compute", "batch")
        names, missing = self._header(path), self.arrow.array(reader.ConvertOptions().null_values)
        features = [place for place, name in enumerate(columns) if name not in self.keep]
        with self.filesystem.open_input_stream(path) as stream:
            for batch in reader.open_csv(
                stream,
                read_options=reader.ReadOptions(block_size=BLOCK, encoding=self.encoding or "utf8"),
                parse_options=reader.ParseOptions(
                    delimiter=self.separator,
                    newlines_in_values=True,
                    ignore_empty_lines=len(names) > 1,  # of a single column, they are rows
                ),
                convert_options=reader.ConvertOptions(
                    column_types=dict.fromkeys(names, self.arrow.string()),
                    include_columns=list(columns),
                    strings_can_be_null=True,
                    null_values=[""],
                ),
            ):
                cells = batch.columns
                for place in features:
                    word = compute.is_in(cells[place], missing)
                    if word.true_count:
                        cells[place] = compute.if_else(word, None, cells[place])
                yield self.arrow.RecordBatch.from_arrays(cells, schema=batch.schema)

    def _header(self, path: str) -> list[str]:
        with self._reading(path), self.filesystem.open_input_stream(path) as stream:
            top = io.StringIO(stream.read(BLOCK).decode(self.encoding or "utf-8-sig", errors="replace"), newline="")
            count = top.readline().count
            self.separator = "\t" if ".tsv" in os.path.basename(path) else max(",;\t", key=count)
            top.seek(0)
            names = next(csv.reader(top, delimiter=self.separator), [])
        check_header(path, names)
        return names

    def _names(self, place: int) -> Sequence[str]:
        with self._reading(self.files[place].path):
            return self._header(self.files[place].path) if self.kind == "csv" else self.fragments[place].physical_schema.names

    def _file(self, path: str) -> File:
        (info,) = self.filesystem.get_file_info([path])
        if not info.is_file:
            raise DataProblem(f"{self.call}: {path} is not there any more.")
        return File(path, self._name(path), info.size or 0, info.mtime_ns or 0)

    def _name(self, path: str) -> str:
        return path.removeprefix(self.root).lstrip("/")

    def _unchanged(self, file: File) -> None:
        if self._file(file.path) != file:
            raise DataProblem(f"{file.path}: it was changed while its rows were scored. Start again when it is complete.")

    @contextlib.contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except DataProblem:
            raise
        except (self.arrow.ArrowException, OSError, ValueError, LookupError, csv.Error) as error:
            if "duplicate field names" in str(error):
                raise DataProblem(f"{path}: more than one column has the same name. Give each a name of its own.") from error
            if "invalid UTF8" in str(error):
                raise in_other_letters(Path(path), self.encoding, error) from error
            raise DataProblem(
                f"{path}: it cannot be read ({short(error, 200)}). Is it complete? Put a whole file there and start again."
            ) from error


def _plain(arrow: Any, field: pa.Field) -> pa.Field:
    """Texts and bytes as all functions of Arrow take them."""
    if arrow.types.is_string_view(field.type):
        return field.with_type(arrow.string())
    return field.with_type(arrow.binary()) if arrow.types.is_binary_view(field.type) else field


def cut(arrow: Any, batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of so many."""
    waiting: list[Any] = []
    count = 0
    for batch in batches:
        while count + batch.num_rows >= rows:
            take = rows - count
            yield arrow.Table.from_batches([*waiting, batch.slice(0, take)]).combine_chunks()
            batch, waiting, count = batch.slice(take), [], 0
        if batch.num_rows:
            waiting.append(batch)
            count += batch.num_rows
    if waiting:
        yield arrow.Table.from_batches(waiting).combine_chunks()


def _find(address: Any) -> tuple[Any, list[str], str | None, str]:
    """Where files are, which, the folder that they are in if that is what was given, and what their names are relative to."""
    fs, core = needs("pyarrow.fs", "batch"), needs("fsspec.core", "batch")
    try:
        several = [os.fspath(one) for one in (address if isinstance(address, (list, tuple)) else [address])]
    except TypeError as error:
        raise TypeError(f"score(cafe, {type(address).__name__}): give a file, a folder, a glob, or a list of these.") from error
    if not several:
        raise DataProblem("score(cafe, []): there are no files.")
    paths: list[str] = []
    base: str | None = None
    where: Any = None
    roots: list[str] = []
    for one in several:
        try:
            found, place = core.url_to_fs(one)
            if any(letter in one for letter in "*?[") and not found.exists(place):
                listed = sorted(path for path in found.glob(place) if not os.path.basename(path).startswith((".", "_")))
                roots.append(re.split(r"[*?[]", place)[0].rpartition("/")[0])
            elif found.isdir(place):
                base = place if len(several) == 1 else None
                listed = sorted(path for path in found.find(place) if _visible(path, place))
                roots.append(place.rstrip("/"))
            else:
                listed = [place] if found.exists(place) else []
                roots.append(place.rpartition("/")[0])
        except Exception as error:  # each store has its own
            raise DataProblem(f"{one}: it cannot be looked at ({short(error)}).") from error
        if not listed:
            raise DataProblem(f"{one}: there is no such file, or no file of rows in it. You are in {os.getcwd()}.")
        if where is not None and found != where:
            raise DataProblem(f"{one}: files of one run are in one place; {several[0]} is elsewhere.")
        where = found
        paths += listed
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise DataProblem(f"{twice}: it is named twice, and its rows would be scored twice. Name it once.")
    local = "file" in (where.protocol if isinstance(where.protocol, tuple) else (where.protocol,))
    return fs.LocalFileSystem() if local else fs.PyFileSystem(fs.FSSpecHandler(where)), paths, base, posixpath.commonpath(roots)


def _is_known(encoding: str) -> bool:
    try:
        codecs.lookup(encoding)
    except LookupError:
        return False
    return True


def _visible(path: str, folder: str) -> bool:
    """A file of rows; what begins with a dot or an underscore is none."""
    inside = os.path.relpath(path, folder).replace(os.sep, "/").split("/")
    return not any(part.startswith((".", "_")) for part in inside) and _kind_of(path) is not None


def _kind_of(path: str) -> str | None:
    return next((kind for kind, endings in KINDS.items() if path.lower().endswith(endings)), None)


def _kind(paths: Sequence[str], address: str) -> str:
    kinds = {_kind_of(path) for path in paths}
    if kinds <= set(KINDS) and len(kinds) == 1:
        return str(kinds.pop())
    odd = next((path for path in paths if _kind_of(path) is None), None)
    what = f"{odd} is of no known kind" if odd else f"there are files of {' and '.join(sorted(map(str, kinds)))}"
    endings = ", ".join(ending for some in KINDS.values() for ending in some)
    raise DataProblem(f"{address}: {what}. Give files of one kind ({endings}), a folder, or a glob such as 'rows/*.csv'.")
