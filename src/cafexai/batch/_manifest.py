"""What is finished, and of what: the manifest of a folder of results, and the lock that keeps two runs apart."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .._files import replace_file
from ..loading.file_errors import OutputProblem
from ._part import remove_left_overs

FORM = 2
MEANING = {
    "model": "the model: its weights or its code",
    "versions": "the version of",
    "settings": "the setting",
    "files": "the input",
}


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """The hidden folder of the results, for one run at a time; the lock ends with the process, however that ends."""
    hidden = folder / "_cafexai"
    with writing(folder):
        if folder.exists() and not folder.is_dir():
            raise OutputProblem(f"{folder}: it is a file. Give a folder for the results.")
        if folder.is_dir() and not hidden.is_dir() and any(folder.glob("*.parquet")):
            raise OutputProblem(f"{folder}: there are Parquet files that no run of cafexai has written. Give another folder.")
        hidden.mkdir(parents=True, exist_ok=True)
        lock = (hidden / "lock").open("a+", encoding="utf-8")
    with lock:
        if not _held(lock):
            lock.seek(0)
            raise OutputProblem(f"{folder}: another run is writing here ({lock.read().strip()}). Wait for it, or end it.")
        lock.truncate(0)
        lock.write(f"process {os.getpid()}")
        lock.flush()
        try:
            remove_left_overs(hidden)
            yield hidden
        finally:
            remove_left_overs(hidden)
            lock.truncate(0)


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


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """What the disk refuses, as an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise OutputProblem(
            f"{folder}: the result cannot be written ({error.strerror or error}). What is finished stays; make room, or "
            "let this user write there, and start again to go on."
        ) from error


class Manifest:
    """A file of lines: the first says what is done to what, each other one a finished unit."""

    def __init__(self, hidden: Path) -> None:
        self.path = hidden / "manifest.jsonl"
        self.folder = hidden.parent
        self.head: dict[str, Any] | None = None
        self.units: dict[str, dict[str, Any]] = {}
        self.ends: dict[int, int] = {}  # rows of files that have been read to their end
        lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        kept = 0
        for line in lines[:-1]:  # what follows the last end of a line was being written
            try:
                found = json.loads(line)
            except ValueError:
                break
            kept += len(line) + 1
            self._take(found)
        if lines and self.head is not None:
            os.truncate(self.path, kept)
        elif lines:
            self.path.unlink()
        if not self.units and not self.ends and not any(self._left()):  # nothing that another beginning could contradict
            self.head = None
        for key in [key for key, unit in self.units.items() if not self._is_there(unit)]:
            del self.units[key]

    def _take(self, line: dict[str, Any]) -> None:
        if "format" in line:
            if line["format"] != FORM:
                raise OutputProblem(f"{self.folder}: it was begun by another version of cafexai. Give another folder.")
            self.head = line
        elif "end" in line:
            self.ends[line["end"]] = line["rows"]
        else:
            self.units[line["unit"]] = line

    def _left(self) -> Iterator[Path]:
        """Files of rows; one that was finished just before the end of a run has no line."""
        yield from self.folder.glob("part-*.parquet")
        yield from self.path.parent.glob("refused/*.parquet")

    def _is_there(self, unit: Mapping[str, Any]) -> bool:
        """Its part has not been taken away."""
        part = self.folder / unit["part"]
        return part.exists() and part.stat().st_size == unit["size"]

    def begin(self, head: dict[str, Any]) -> None:
        """A new manifest, or the one that is there if it is about the same."""
        head = json.loads(json.dumps({"format": FORM, **head}, default=str))
        if self.head is None:
            replace_file(self.path, "score", lambda part: Path(part).write_text(json.dumps(head) + "\n", encoding="utf-8"))
            self.head = head
        elif changes := list(_changes(self.head, head)):
            raise OutputProblem(
                f"{self.folder}: it was begun with something else. Changed: {'; '.join(changes[:6])}"
                f"{f'; and {len(changes) - 6} more' if len(changes) > 6 else ''}. Undo that, or give another folder."
            )

    def add(self, line: Mapping[str, Any]) -> None:
        """One more line, on the disk before this returns."""
        with self.path.open("ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._take(dict(line))


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for section, meaning in MEANING.items():
        before, now = old.get(section), new.get(section)
        if before == now:
            continue
        if not isinstance(before, dict) or not isinstance(now, dict):
            yield meaning
            continue
        for name in sorted({*before, *now}, key=str):
            if before.get(name) != now.get(name):
                told = f"was {_short(before.get(name))} and is {_short(now.get(name))}"
                yield f"{meaning} {name}, which {told}"


def _short(value: Any) -> str:
    text = "not there" if value is None else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
