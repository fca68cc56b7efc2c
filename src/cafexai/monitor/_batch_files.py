"""The output of ``batch`` as frames, with the rows that it refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._extras import needs
from ..batch._sink import side_of
from ..loading.file_errors import DataProblem, short


def read_parts(folder: str | os.PathLike[str]) -> Iterator[Any]:
    """A frame for each file of a folder of ``batch``; rows that were refused come last and have no scores.

    Raises:
        DataProblem: There are no Parquet files, or they cannot be read.
    """
    place = Path(folder).absolute()
    parts = sorted(place.rglob("*.parquet"))
    if not parts:
        raise DataProblem(f"{folder}: there is no Parquet file in this folder.")
    refused = sorted(Path(side_of(place.as_posix())).glob("refused/*.refused"))
    for path in (*parts, *refused):
        yield _read(path, partitioning=None)


def read_all(folder: str | os.PathLike[str]) -> Any:
    """All of these frames as one; folders such as ``day=3`` are columns."""
    place = Path(folder).absolute()
    refused = sorted(Path(side_of(place.as_posix())).glob("refused/*.refused"))
    frames = [_read(place), *(_read(path, partitioning=None) for path in refused)]
    return needs("pandas", "batch").concat(frames, ignore_index=True) if refused else frames[0]


def _read(path: Path, **options: Any) -> Any:
    try:
        return needs("pandas", "batch").read_parquet(path, engine="pyarrow", **options)
    except (OSError, ValueError) as error:
        raise DataProblem(f"{path}: it cannot be read ({short(error)}).") from error
