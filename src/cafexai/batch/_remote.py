"""Results in an object store, through fsspec: an object is published by one request, which succeeds as a whole or fails."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .._extras import needs
from ..loading.file_errors import OutputProblem, short
from ._sink import BLOCK, EARLIER, HIDDEN, UNKNOWN, Staged, side_of, writing

SCHEMES = ("s3", "s3a", "memory")  # tested; an upload becomes visible when it is complete, and a listing shows it at once
LINES = f"{HIDDEN}/manifest/"


@functools.cache
def _open(address: str, process: int) -> tuple[Any, str]:
    core = needs("fsspec.core", "batch")
    try:
        filesystem, root = core.url_to_fs(address, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        raise OutputProblem(f"{address}: results cannot be written there ({short(error)}).") from error
    root = root.rstrip("/")
    if not root.strip("/") or ("/" not in root.strip("/") and not address.lower().startswith("memory:")):
        raise OutputProblem(
            f"{address}: it is a whole bucket, and the bookkeeping is kept beside the results. Give a folder in it."
        )
    return filesystem, root


@contextlib.contextmanager
def _store() -> Iterator[None]:
    """Errors of any store as those of a disk."""
    try:
        yield
    except (OSError, OutputProblem, MemoryError):
        raise
    except Exception as error:  # each store has its own
        raise OSError(f"{type(error).__name__}: {short(error)}") from error


@dataclass(frozen=True)
class Remote:
    """A folder of an object store. Runs of two machines write the same bytes, so a lock is a help and not a condition."""

    address: str

    @property
    def place(self) -> str:
        return self.address

    @property
    def shared(self) -> bool:
        return not self.address.lower().startswith("memory:")

    @property
    def side(self) -> str:
        return side_of(self.address)

    def _at(self, name: str = "") -> tuple[Any, str]:
        filesystem, root = _open(self.address, os.getpid())
        if name.startswith(f"{HIDDEN}/"):
            return filesystem, f"{side_of(root)}/{name.removeprefix(f'{HIDDEN}/')}"
        return filesystem, f"{root}/{name}" if name else root

    def sizes(self) -> dict[str, int]:
        return {**self._sizes(""), **self._sizes(f"{HIDDEN}/")}

    def _sizes(self, start: str) -> dict[str, int]:
        """Of what begins with this."""
        filesystem, root = self._at(start)
        root = root.rstrip("/")
        with _store():
            try:
                found = filesystem.find(root, detail=True)
            except FileNotFoundError:
                return {}
        return {f"{start}{path.removeprefix(root).lstrip('/')}": int(about["size"]) for path, about in found.items()}

    def blocks(self, name: str) -> Iterator[bytes]:
        filesystem, path = self._at(name)
        with _store(), filesystem.open(path, "rb", cache_type="none") as file:
            while block := file.read(BLOCK):
                yield block

    def stage(self, name: str) -> Staged:
        return _Upload(*self._at(name))

    def records(self, about_files: bool = False) -> dict[str, bytes]:
        names = [name for name in self._sizes(LINES) if not about_files or name.startswith((f"{LINES}head", f"{LINES}more"))]
        filesystem, _ = self._at()
        with _store():
            found = filesystem.cat([self._at(name)[1] for name in names]) if names else {}
        return {path.rpartition("/")[2].removesuffix(".json"): found[path] for path in sorted(found)}

    def add_record(self, key: str, line: bytes) -> None:
        filesystem, path = self._at(f"{LINES}{key}.json")
        with _store():
            filesystem.pipe_file(path, line)

    def keep_records(self, lines: Mapping[str, bytes]) -> None:
        for key in [key for key in self.records() if key not in lines]:
            filesystem, path = self._at(f"{LINES}{key}.json")
            with _store():
                filesystem.rm_file(path)

    def remove(self, name: str) -> None:
        filesystem, path = self._at(name)
        with _store(), contextlib.suppress(FileNotFoundError):
            filesystem.rm_file(path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """A note of who writes; that of a process of this machine that has ended does not count."""
        filesystem, path = self._at(f"{HIDDEN}/lock")
        own = {"host": socket.gethostname(), "process": os.getpid()}
        with writing(self), _store():
            names = self.sizes()
            if any(name.startswith(f"{HIDDEN}/") for name in self._sizes("")):
                raise OutputProblem(f"{self.address}: {EARLIER}")
            if any(name.endswith(".parquet") for name in names) and not any(name.startswith(HIDDEN) for name in names):
                raise OutputProblem(f"{self.address}: {UNKNOWN}")
            if f"{HIDDEN}/lock" in names:
                _refuse_running(self.address, filesystem.cat_file(path), own)
            filesystem.pipe_file(path, json.dumps(own).encode())
        try:
            yield
        finally:
            with contextlib.suppress(Exception):  # it may be the store that failed
                filesystem.rm_file(path)

    def holds(self, path: str) -> bool:
        root = self._at()[1]
        return path.startswith((f"{root}/", f"{side_of(root)}/"))

    def is_inside(self, folder: str) -> str | None:
        root = self._at()[1]
        return f"{root}/part.parquet" if root.startswith(f"{folder.rstrip('/')}/") else None


class _Upload:
    """Bytes in memory until they are uploaded in one piece."""

    def __init__(self, filesystem: Any, path: str) -> None:
        self.filesystem, self.path, self.memory = filesystem, path, io.BytesIO()

    def write(self, data: Any) -> object:
        return self.memory.write(data)

    def publish(self) -> None:
        with _store():
            self.filesystem.pipe_file(self.path, self.memory.getvalue())

    def discard(self) -> None:
        self.memory.close()


def _refuse_running(address: str, text: bytes, own: Mapping[str, Any]) -> None:
    try:
        other = json.loads(text)
        alive = other["host"] == own["host"] and _is_alive(int(other["process"]))
    except (ValueError, TypeError, KeyError):
        return
    if alive:
        told = f"process {other['process']}"
        raise OutputProblem(f"{address}: another run is writing here ({told}). Wait for it, or end it.")


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another process has it
        return True
    return True
