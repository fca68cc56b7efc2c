"""Whether finished results are what was written: ``cafexai batch --verify OUTPUT``."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..loading.file_errors import DataProblem
from ._manifest import Manifest, files_of
from ._sink import SUMMARY, sink_at


@dataclass(frozen=True)
class Verified:
    """The result of a verification.

    Args:
        parts: Files of results.
        rows: Rows in them.
        size: Bytes that were read.
        finished: The run has come to its end.
        problems: A line for each file that is missing, has changed or is unknown; empty if nothing is wrong.
    """

    parts: int
    rows: int
    size: int
    finished: bool
    problems: tuple[str, ...]

    def __str__(self) -> str:
        state = "" if self.finished else "; the run is not finished"
        what = f"{self.parts:,} parts, {self.rows:,} rows, {self.size:,} bytes{state}"
        if not self.problems:
            return f"{what}: all as they were written."
        more = f"\n  and {len(self.problems) - 20} more" if len(self.problems) > 20 else ""
        return f"{what}: {len(self.problems)} problem(s).\n  " + "\n  ".join(self.problems[:20]) + more


def verify(sink: str | os.PathLike[str]) -> Verified:
    """Read all results of ``score`` and compare them with the checksums in the manifest.

    Args:
        sink: The folder, or address, that the results were written to.

    Returns:
        The number of parts, rows and bytes, and a line for each file that is missing, has changed or is unknown.

    Raises:
        DataProblem: There are no results of ``score``.

    Example:
        >>> from cafexai.batch import verify
        >>> verify("scores").problems  # doctest: +SKIP
        ()
    """
    place = sink_at(sink)
    manifest = Manifest(place)
    if not manifest.records:
        raise DataProblem(f"{place.place}: there is no manifest of cafexai batch. Give the folder that it has written.")
    problems = [f"{place.side}/manifest: line {key} is damaged" for key in manifest.damaged]
    if manifest.head is None:
        problems.append(f"{place.side}/manifest: the first line is missing")
    problems += [problem for _, problem in manifest.problems()]
    known = {name: size for unit in manifest.units.values() for name, size, _ in files_of(unit)}
    problems += [f"{name}: no line of the manifest knows it" for name in manifest.unknown_files(manifest.sizes)]
    rows = sum(unit["rows"] for unit in manifest.units.values())
    finished = SUMMARY in manifest.sizes
    return Verified(len(manifest.units), rows, sum(known.values()), finished, tuple(problems))
