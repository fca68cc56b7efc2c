"""Where results go: a folder of files that are there as a whole or not at all, on this machine or in an object store.

Names are relative to that folder, with slashes. It holds Parquet files only, so that every reader can read it. Names that begin
with ``_cafexai/`` are bookkeeping: for results in ``lake/scores`` they are in the folder ``lake/_scores.cafexai`` beside it.
``Local`` has the manifest as one file of lines; an object store cannot append, so ``Remote`` (``_remote.py``) has one small
object for each line.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .._files import replace_file
from ..loading.file_errors import OutputProblem, short

HIDDEN = "_cafexai"  # names of bookkeeping begin with it
REFUSED = f"{HIDDEN}/refused"  # rows without scores
MANIFEST = f"{HIDDEN}/manifest.jsonl"
SUMMARY = f"{HIDDEN}/summary.json"  # there is none before a run is finished
BLOCK = 1 << 22  # bytes that are read at a time
ANOTHER = "Give another folder."
EARLIER = f"it was begun by another version of cafexai. {ANOTHER}"
UNKNOWN = f"there are Parquet files that no run of cafexai has written. {ANOTHER}"
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")  # a single letter is a drive


class Staged(Protocol):
    """A file that is being written; it is not visible before it is published."""

    def write(self, data: Any) -> object: ...

    def publish(self) -> None: ...

    def discard(self) -> None: ...


class Stage(Protocol):
    """Where new files can be written."""

    def stage(self, name: str) -> Staged:
        """A new file."""


class Sink(Stage, Protocol):
    """A folder of results."""

    @property
    def place(self) -> str:
        """As users know it."""

    @property
    def side(self) -> str:
        """The folder of the bookkeeping, as users know it."""

    @property
    def shared(self) -> bool:
        """Whether other processes see it."""

    def sizes(self) -> dict[str, int]:
        """All files with their bytes."""

    def blocks(self, name: str) -> Iterator[bytes]:
        """What is in a file; FileNotFoundError if there is none."""

    def records(self, about_files: bool = False) -> dict[str, bytes]:
        """The lines of the manifest by their keys; the last may be half. ``about_files``: only those of the input suffice."""

    def add_record(self, key: str, line: bytes) -> None:
        """One more line, durable before this returns."""

    def keep_records(self, lines: Mapping[str, bytes]) -> None:
        """These lines and no others."""

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """The folder, made if it is missing, for one run at a time."""

    def holds(self, path: str) -> bool:
        """Whether a file, as the source names it, is inside."""

    def is_inside(self, folder: str) -> str | None:
        """A name of ours as a source that reads all of ``folder`` would meet it; None if it would not."""


def sink_at(address: str | os.PathLike[str]) -> Sink:
    """The folder of results at a path or an address; an address that cannot be written safely is refused."""
    text = os.fspath(address)
    scheme = SCHEME.match(text)
    if scheme is None and "::" not in text:
        return Local(Path(os.path.abspath(text)))
    if scheme is not None and scheme[1].lower() == "file" and "::" not in text:
        return Local(Path("/" + text[scheme.end() :]).absolute())
    from ._remote import SCHEMES, Remote

    allowed = ", ".join(f"{name}://" for name in SCHEMES)
    if scheme is None or "::" in text or scheme[1].lower() not in SCHEMES:
        raise OutputProblem(
            f"{text}: results cannot be written to this kind of address. Allowed: a folder of this machine, {allowed}. Write "
            "to a folder, and copy it when the run is finished."
        )
    if not text[len(scheme[1]) :].startswith("://"):
        raise OutputProblem(f"{text}: a path object loses a slash of an address. Give it as a string: '{scheme[1]}://...'.")
    if not text[len(scheme[1]) + 1 :].strip("/"):
        raise OutputProblem(f"{text}: it names no folder. Give one: {scheme[1]}://bucket/folder.")
    return Remote(text.rstrip("/"))


def side_of(path: str) -> str:
    """The folder of the bookkeeping of results in ``path``: beside it, with a name that readers of the parent skip."""
    parent, slash, name = path.rpartition("/")
    return f"{parent}{slash}_{name}.cafexai"


def checksum(sink: Sink, name: str) -> tuple[int, int]:
    """Bytes and checksum of a file as it is now."""
    size = total = 0
    for block in sink.blocks(name):
        size, total = size + len(block), zlib.crc32(block, total)
    return size, total


def write(sink: Sink, name: str, data: bytes) -> None:
    """A small file."""
    staged = sink.stage(name)
    try:
        staged.write(data)
        staged.publish()
    finally:
        staged.discard()


@contextlib.contextmanager
def writing(sink: Sink) -> Iterator[None]:
    """What the disk or the store refuses, as an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise OutputProblem(
            f"{sink.place}: the result cannot be written ({error.strerror or short(error)}). What is finished stays; make "
            "room, or let this user write there, and start again to go on."
        ) from error


@dataclass(frozen=True)
class Local:
    """A folder of this machine."""

    folder: Path
    shared = True

    @property
    def place(self) -> str:
        return str(self.folder)

    @property
    def side(self) -> str:
        return str(self._hidden)

    @property
    def _hidden(self) -> Path:
        return Path(side_of(self.folder.as_posix()))

    def _at(self, name: str) -> Path:
        return self._hidden / name.removeprefix(f"{HIDDEN}/") if name.startswith(f"{HIDDEN}/") else self.folder / name

    def sizes(self) -> dict[str, int]:
        found = {}
        for start, folder in (("", self.folder), (f"{HIDDEN}/", self._hidden)):
            for path in folder.rglob("*"):
                if path.is_file():
                    found[f"{start}{path.relative_to(folder).as_posix()}"] = path.stat().st_size
        return found

    def blocks(self, name: str) -> Iterator[bytes]:
        with self._at(name).open("rb") as file:
            while block := file.read(BLOCK):
                yield block

    def stage(self, name: str) -> Staged:
        self._at(name).parent.mkdir(parents=True, exist_ok=True)
        return _Beside(self._at(name), self._hidden / f"{Path(name).name}.{secrets.token_hex(4)}.part")

    def records(self, about_files: bool = False) -> dict[str, bytes]:
        path = self._at(MANIFEST)
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        return {str(place): line for place, line in enumerate(lines) if line or place < len(lines) - 1}

    def add_record(self, key: str, line: bytes) -> None:
        path = self._at(MANIFEST)
        if not path.exists():
            self.keep_records({key: line})
            return
        with path.open("ab") as file:
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def keep_records(self, lines: Mapping[str, bytes]) -> None:
        path = self._at(MANIFEST)
        if not lines:
            path.unlink(missing_ok=True)
            return
        text = b"".join(line + b"\n" for line in lines.values())
        replace_file(path, "score", lambda part: Path(part).write_bytes(text))

    def remove(self, name: str) -> None:
        self._at(name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """The lock ends with the process, however that ends."""
        folder, hidden = self.folder, self._hidden
        with writing(self):
            if folder.exists() and not folder.is_dir():
                raise OutputProblem(f"{folder}: it is a file. Give a folder for the results.")
            if (folder / HIDDEN).exists():
                raise OutputProblem(f"{folder}: {EARLIER}")
            if others := next((one for one in folder.parents if Path(side_of(one.as_posix())).is_dir()), None):
                raise OutputProblem(
                    f"{folder}: it is inside of other results, {others}, whose readers would read it. {ANOTHER}"
                )
            if folder.is_dir() and not hidden.is_dir() and any(folder.rglob("*.parquet")):
                raise OutputProblem(f"{folder}: {UNKNOWN}")
            folder.mkdir(parents=True, exist_ok=True)
        try:
            hidden.mkdir(exist_ok=True)
            lock = (hidden / "lock").open("a+", encoding="utf-8")
        except OSError as error:
            raise OutputProblem(
                f"{hidden}: the bookkeeping is kept beside the results, and cannot be written there "
                f"({error.strerror or short(error)}). Give a folder inside of one that you may write to: {folder}/scores."
            ) from error
        if folder.stat().st_dev != hidden.stat().st_dev:
            lock.close()
            raise OutputProblem(
                f"{folder}: it is a disk of its own, and a part cannot be renamed from {hidden} to there. Give a folder inside "
                f"of it: {folder}/scores."
            )
        with lock:
            if not _held(lock):
                lock.seek(0)
                raise OutputProblem(f"{folder}: another run is writing here ({lock.read().strip()}). Wait for it, or end it.")
            lock.truncate(0)
            lock.write(f"process {os.getpid()}")
            lock.flush()
            try:
                _remove_left_overs(hidden)
                yield
            finally:
                _remove_left_overs(hidden)
                lock.truncate(0)

    def holds(self, path: str) -> bool:
        return not {self.folder, self._hidden}.isdisjoint(Path(path).parents)

    def is_inside(self, folder: str) -> str | None:
        return str(self.folder / "part.parquet") if Path(folder) in self.folder.parents else None


class _Beside:
    """A file that is written beside its place and gets its name when it is complete."""

    def __init__(self, place: Path, beside: Path) -> None:
        self.place, self.beside = place, beside
        self.file = beside.open("wb", buffering=1 << 20)

    def write(self, data: Any) -> object:
        return self.file.write(data)

    def publish(self) -> None:
        """On the disk, not only on the way to it, then visible."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        os.replace(self.beside, self.place)
        with contextlib.suppress(OSError):  # where folders cannot be opened
            folder = os.open(self.place.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self.file.close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.beside)


def _held(lock: Any) -> bool:
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows
        import msvcrt

        take: Any = msvcrt
        try:
            take.locking(lock.fileno(), take.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_left_overs(hidden: Path) -> None:
    """Files of work that was ended in the middle."""
    for file in hidden.glob("*.part"):
        file.unlink(missing_ok=True)
