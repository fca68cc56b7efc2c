"""What a study is: tasks that can be done one by one and kept, and a report made of their results."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Settings = Mapping[str, Any]  # plain values that JSON can hold
Results = Mapping[str, Any]  # the result of each task by its key, plain values again


@dataclass(frozen=True)
class Workplace:
    """Where a study finds its data and the store of trained networks, which all studies share.

    Args:
        models: The store of trained networks.
        data: The folder of the data sets; None takes ``CAFEXAI_DATA``, or downloads.
        show_progress: Show progress bars. None shows them for long work only.
    """

    models: Path
    data: str | None = None
    show_progress: bool | None = None


@dataclass(frozen=True)
class Task:
    """A piece of work. The same settings give the same result.

    Args:
        key: Its key among the results.
        run: Does the work.
    """

    key: str
    run: Callable[[], Any]


@dataclass(frozen=True)
class Table:
    """Rows of cells under column names; the first column names the row.

    Args:
        name: The name of its files.
        title: The heading.
        columns: Names of the columns.
        rows: The cells.
        note: A remark below the table.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""

    def to_markdown(self) -> str:
        """The table with its title and note."""
        lines = [f"### {self.title}", "", "| " + " | ".join(self.columns) + " |", "|" + " --- |" * len(self.columns)]
        lines += ["| " + " | ".join(_format_cell(cell) for cell in row) + " |" for row in self.rows]
        return "\n".join([*lines, "", *([self.note, ""] if self.note else [])])

    def to_csv(self) -> str:
        """The cells as they are, numbers unrounded."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


def _format_cell(cell: Any) -> str:
    if cell is None:
        return ""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell).replace("|", "/")


def brief(number: float, digits: int, sign: str = "") -> str:
    """A number with so many significant digits, written out: 20, not 2e+01."""
    return f"{float(f'{number:.{digits}g}'):{sign}g}"


def round_numbers(numbers: Any) -> Any:
    """The same nested values with four digits: scores of a row say no more about it than a figure shows."""
    if isinstance(numbers, Mapping):
        return {key: round_numbers(value) for key, value in numbers.items()}
    if isinstance(numbers, list | tuple):
        return [round_numbers(value) for value in numbers]
    return float(f"{numbers:.4g}") if isinstance(numbers, float) else numbers


@dataclass(frozen=True)
class Finding:
    """A claim, and whether it holds in our numbers.

    Args:
        claim: The claim.
        holds: True or False; None if the numbers do not decide it.
        numbers: These numbers.
    """

    claim: str
    holds: bool | None
    numbers: str

    def __str__(self) -> str:
        verdict = {True: "holds", False: "does not hold", None: "undecided"}[self.holds]
        return f"- **{verdict}**: {self.claim}. {self.numbers}"


@dataclass(frozen=True)
class Report:
    """What a study shows.

    Args:
        tables: The tables.
        findings: The findings.
        figures: Figures by the names of their files.
    """

    tables: Sequence[Table]
    findings: Sequence[Finding]
    figures: Mapping[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """One table or figure of the paper, or a family of them.

    Args:
        name: The name on the command line.
        title: The heading.
        needs: The data and extras that it needs.
        presets: Settings by name: "toy" (seconds), "quick" (minutes) and "full" (the paper's sizes).
        minutes: How long each preset takes on two cores.
        tasks: Lists the work for some settings.
        report: Reads the results.
    """

    name: str
    title: str
    needs: str
    presets: Mapping[str, Settings]
    minutes: Mapping[str, str]
    tasks: Callable[[Settings, Workplace], Iterable[Task]]
    report: Callable[[Settings, Results], Report]
