"""Results of single tasks on disk: each is written once, all of it or nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..models.checkpoint import Tally, count_trainings
from .record import Task


def keep(folder: Path, key: str, result: Any) -> None:
    """Write the result of a task."""
    write(_path(folder, key), json.dumps(result, indent=1))


def do(folder: Path, task: Task) -> Tally:
    """Do a task and keep its result, unless another process has done it meanwhile; the result counts its trainings."""
    with count_trainings() as tally:
        if read_part(folder, task.key) is None:
            keep(folder, task.key, task.run())
    return tally


def read_part(folder: Path, key: str) -> Any:
    """The result of a task, or None if it was not done."""
    path = _path(folder, key)
    try:
        return json.loads(path.read_text()) if path.exists() else None
    except ValueError as problem:
        raise ValueError(f"study: {path} does not hold a result ({problem}). Remove it, and the task is done again.") from None


def any_kept(folder: Path) -> bool:
    """Whether the result of any task is there."""
    return any((folder / "parts").glob("[!.]*.json"))


def _path(folder: Path, key: str) -> Path:
    return folder / "parts" / f"{key}.json"


def write(path: Path, text: str) -> None:
    """All of a file or nothing of it, also if the process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text if text.endswith("\n") else text + "\n")
    draft.replace(path)
