"""What can be wrong with a file that a user names."""

from __future__ import annotations

from pathlib import Path

from ..errors import ModelProblem

__all__ = ["DataProblem", "ModelProblem", "OutputProblem", "existing", "in_other_letters", "short"]


class DataProblem(ValueError):
    """The data cannot be used: not there, not readable, not what the model takes."""


class OutputProblem(ValueError):
    """The result cannot be written."""


def existing(path: str | Path, kind: type[ValueError], what: str) -> Path:
    """The path, if there is something that can be read."""
    place = Path(path)
    if not place.exists():
        near = place.parent
        while not near.is_dir():
            near = near.parent
        raise kind(f"{path}: there is no such file ({what}). You are in {Path.cwd()}; in {near} are {_some(near)}.")
    try:
        if place.is_file():
            place.open("rb").close()
        else:
            next(place.iterdir(), None)
    except OSError as error:
        raise kind(f"{path}: it cannot be read ({error.strerror}). Check who may read it.") from error
    return place


def in_other_letters(path: Path, encoding: str | None, error: Exception) -> DataProblem:
    """The text of a file cannot be decoded."""
    return DataProblem(
        f"{path}: it is not written in {encoding or 'UTF-8'} ({short(error, 80)}). Save it as UTF-8, or name its encoding, "
        "such as --encoding cp1252."
    )


def short(error: BaseException, most: int = 300) -> str:
    """An error of another library in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= most else text[: most - 3] + "..."


def _some(folder: Path, most: int = 8) -> str:
    try:
        names = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError:
        return "files that cannot be listed"
    return (", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")) or "no files"
