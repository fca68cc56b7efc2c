"""What is finished, and of what: the manifest of a folder of results."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..errors import warn
from ..loading.file_errors import OutputProblem
from ._sink import HIDDEN, Sink, checksum

FORM = 3
READERS = 4  # files that are verified at a time
MEANING = {
    "model": "the model: its weights or its code",
    "versions": "the version of",
    "settings": "the setting",
    "files": "the input",
}
Files = Iterator[tuple[str, int, int]]  # name, bytes, checksum


class Manifest:
    """Lines with checksums: the first says what is done to what, each other one a finished unit."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.head: dict[str, Any] | None = None
        self.units: dict[str, dict[str, Any]] = {}
        self.ends: dict[int, int] = {}  # rows of files that have been read to their end
        self.damaged: list[str] = []  # keys of lines that are half, or have changed
        self.records = sink.records()
        for key, record in self.records.items():
            line = unpacked(record)
            if line is None:
                self.damaged.append(key)
            else:
                self._take(line)
        self.sizes = sink.sizes()

    def drop_damaged_lines(self) -> None:
        """Forget lines that are half, or have changed, so that their units are done again."""
        if self.records and self.head is None and (self.units or any(self._left())):
            raise OutputProblem(
                f"{self.sink.place}: the first line of its manifest is damaged, so that nobody knows what made the parts. "
                "Delete the folder, or give another one."
            )
        if self.damaged:
            self.sink.keep_records({key: line for key, line in self.records.items() if key not in self.damaged})
        if not self.units and not self.ends and not any(self._left()):  # nothing that another beginning could contradict
            self.head = None

    def drop_changed_units(self) -> None:
        """Forget units whose files are not there, or have changed, so that they are done again."""
        problems = dict(self.problems())
        for key in problems:
            del self.units[key]
        changed = [problem for problem in problems.values() if not problem.endswith("missing")]
        if changed:
            more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
            warn(f"{self.sink.place}: {changed[0]}{more}. The rows are scored again.")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Units whose files are not what was written, and why: sizes first, then every byte is read."""
        same_size = []
        for key, unit in self.units.items():
            wrong = [name for name, size, _ in files_of(unit) if self.sizes.get(name) != size]
            if wrong:
                is_there = wrong[0] in self.sizes
                yield key, f"{wrong[0]}: {'its size has changed since it was written' if is_there else 'missing'}"
            else:
                same_size += [(key, *file) for file in files_of(unit)]
        told = set()
        with ThreadPoolExecutor(READERS) as readers:
            for key, problem in readers.map(self._verified, same_size):
                if problem is not None and key not in told:
                    told.add(key)
                    yield key, problem

    def _verified(self, file: tuple[str, str, int, int]) -> tuple[str, str | None]:
        key, name, *known = file
        try:
            same = checksum(self.sink, name) == tuple(known)
        except FileNotFoundError:
            return key, f"{name}: missing"
        except OSError as error:
            return key, f"{name}: it cannot be read ({error.strerror or error})"
        return key, None if same else f"{name}: it has changed since it was written; its checksum is wrong"

    def _take(self, line: dict[str, Any]) -> None:
        if "format" in line:
            if line["format"] != FORM:
                raise OutputProblem(f"{self.sink.place}: it was begun by another version of cafexai. Give another folder.")
            self.head = line
        elif "end" in line:
            self.ends[line["end"]] = line["rows"]
        else:
            self.units[line["unit"]] = line

    def _left(self) -> Iterator[str]:
        """Files of rows; one that was finished just before the end of a run has no line."""
        return (name for name in self.sizes if is_part(name))

    def begin(self, head: dict[str, Any]) -> None:
        """A new manifest, or the one that is there if it is about the same."""
        head = json.loads(json.dumps({"format": FORM, **head}, default=str))
        if self.head is None:
            self.sink.keep_records({})
            self._add("head", head)
        elif changes := list(_changes(self.head, head)):
            raise OutputProblem(
                f"{self.sink.place}: it was begun with something else. Changed: {'; '.join(changes[:6])}"
                f"{f'; and {len(changes) - 6} more' if len(changes) > 6 else ''}. Undo that, or give another folder."
            )

    def add(self, line: Mapping[str, Any]) -> None:
        """One more line, on the disk before this returns."""
        self._add(f"unit-{line['unit']}" if "unit" in line else f"end-{line['end']}", line)

    def _add(self, key: str, line: Mapping[str, Any]) -> None:
        self.sink.add_record(key, packed(line))
        self._take(dict(line))


def packed(line: Mapping[str, Any]) -> bytes:
    """A line of the manifest, which ends in a checksum."""
    text = json.dumps(line)
    return json.dumps({**line, "crc": zlib.crc32(text.encode())}).encode()


def unpacked(record: bytes) -> dict[str, Any] | None:
    """A line of the manifest; None if it is not as it was written."""
    try:
        line = json.loads(record)
    except ValueError:
        return None
    if not isinstance(line, dict):
        return None
    if "format" in line and line["format"] != FORM:  # of a version that had no checksums, or has others
        return line
    line.pop("crc", None)
    return line if packed(line) == record else None


def files_of(unit: Mapping[str, Any]) -> Files:
    """The files of a unit: its part, and the rows of it that were refused."""
    yield unit["part"], unit["size"], unit["checksum"]
    if unit["refused"]:
        yield f"{HIDDEN}/refused/{unit['part']}", unit["refused_size"], unit["refused_checksum"]


def is_part(name: str) -> bool:
    """A file of rows, scored or refused."""
    folder, _, file = name.rpartition("/")
    return folder in ("", f"{HIDDEN}/refused") and file.startswith("part-") and file.endswith(".parquet")


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
