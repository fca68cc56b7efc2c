"""What is finished, and of what: the manifest of a folder of results."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..errors import ResultsWarning, warn
from ..loading.file_errors import OutputProblem
from ._sink import EARLIER, HIDDEN, REFUSED, SUMMARY, Sink, checksum

FORM = 4
READERS = 4  # files that are verified at a time
MEANING = {
    "model": "the model: its weights or its code",
    "versions": "the version of",
    "settings": "the setting",
    "files": "the input",
}
Files = Iterator[tuple[str, int, int]]  # name, bytes, checksum


class Manifest:
    """Lines with checksums: the first says what is done to what, others which files were added, and each finished unit."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.head: dict[str, Any] | None = None
        self.units: dict[str, dict[str, Any]] = {}
        self.ends: dict[int, int] = {}  # rows of files that have been read to their end
        self.added = 0  # lines of files that were added
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
        if self.head is None and (self.units or any(self._left())):
            raise OutputProblem(
                f"{self.sink.place}: the first line of its manifest is damaged or gone, which says what made its parts. "
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
            warn(f"{self.sink.place}: {changed[0]}{more}. The rows are scored again.", ResultsWarning)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Units whose files are not what was written, and why: sizes first, then every byte is read."""
        same_size = []
        for key, unit in self.units.items():
            wrong = [name for name, size, _ in files_of(unit) if self.sizes.get(name) != size]
            for name in wrong:
                yield key, f"{name}: {'its size has changed since it was written' if name in self.sizes else 'missing'}"
            if not wrong:
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
                raise OutputProblem(f"{self.sink.place}: {EARLIER}")
            self.head = line
        elif "more" in line:
            self.added += 1
            if self.head is not None:
                self.head = _with_files(self.head, line)
        elif "end" in line:
            self.ends[line["end"]] = line["rows"]
        else:
            self.units[line["unit"]] = line

    def _left(self) -> Iterator[str]:
        """Files of rows; one that was finished just before the end of a run has no line."""
        return (name for name in self.sizes if is_part(name))

    def unknown_files(self, names: Iterable[str]) -> list[str]:
        """Files among the results that no line knows; readers would read them."""
        known = {name for unit in self.units.values() for name, _, _ in files_of(unit)}
        return [name for name in names if _is_read(name) and name not in known]

    def begin(self, head: dict[str, Any], append: bool = False) -> None:
        """A new manifest, or the one that is there if it is about the same; with ``append`` about these files and more."""
        head = json.loads(json.dumps({"format": FORM, **head}, default=str))
        if self.head is None:
            self.sink.remove(SUMMARY)
            self.sink.keep_records({})
            self._add("head", head)
            return
        new = [name for name in head["files"] if name not in self.head["files"]]
        if new and append:
            more = {name: {file: head[name][file] for file in new} for name in ("files", "times")}
            merged = _with_files(self.head, more)
        else:
            merged = self.head
        if changes := list(_changes(merged, head)):
            hint = " New files are scored with append=True (--append)." if new and not append else ""
            raise OutputProblem(
                f"{self.sink.place}: it was begun with something else. Changed: {'; '.join(changes[:6])}"
                f"{f'; and {len(changes) - 6} more' if len(changes) > 6 else ''}. Undo that, or give another folder.{hint}"
            )
        if new:
            self.sink.remove(SUMMARY)
            self._add(f"more-{self.added:06d}", {"more": self.added, **more})

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
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict):
        return None
    if "format" in line and line["format"] != FORM:  # of a version that had no checksums, or has others
        return line
    line.pop("crc", None)
    return line if packed(line) == record else None


def files_of(unit: Mapping[str, Any]) -> Files:
    """The files of a unit: its parts, and the rows of it that were refused."""
    for file in unit["files"]:
        yield file["name"], file["size"], file["checksum"]


def is_part(name: str) -> bool:
    """A file of rows, scored or refused."""
    file = name.rpartition("/")[2]
    ending = ".refused" if name.startswith(f"{REFUSED}/") else ".parquet"
    return file.startswith("part-") and file.endswith(ending)


def _is_read(name: str) -> bool:
    """Whether readers take it for rows: they skip names that begin with a dot or an underscore."""
    if name.startswith(f"{HIDDEN}/"):
        return is_part(name)
    return not any(part.startswith((".", "_")) for part in name.split("/")) and not name.endswith("/")


def known_files(sink: Sink) -> list[str]:
    """The files that a run was begun with, in their order; none if there is no run."""
    lines = [line for line in map(unpacked, sink.records(about_files=True).values()) if line is not None]
    return [name for line in lines if line.get("format") == FORM or "more" in line for name in line["files"]]


def _with_files(head: Mapping[str, Any], line: Mapping[str, Any]) -> dict[str, Any]:
    return {**head, **{name: {**head[name], **line[name]} for name in ("files", "times")}}


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
