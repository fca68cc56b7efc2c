"""The report: one HTML file that explains predictions to readers who never saw the code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .._files import replace_file
from ..explanation import Explanation, Explanations
from .page import ReportOptions, report_page

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["ReportOptions", "report_page", "write_report"]


def write_report(
    explanation: Explanation | Explanations, path: str | os.PathLike[str], **options: Unpack[ReportOptions]
) -> Path:
    """Write the report. The same arguments give the same file.

    Args:
        explanation: One explanation, or several.
        path: The file; its name ends in .html.
        **options: ``title`` of the page; ``model``, the model itself, of which layers, parameters and a fingerprint are
            shown, or words about it; ``data``, words about the data; ``most``, how many features each row shows (12, fewer
            above 250 rows), the others summed; ``order``, features by the size of their net score, "net", or by positive +
            negative, "influence"; ``checks``, row -> what ``cafe.check_by_changing(e, row)`` gave, told below the table;
            ``hidden``, the explainer, or what ``cafe.hidden_conflicts(e)`` gave: hidden conflicts below each table;
            ``row_names``, one for each row; ``command``, the command line that makes the report again.

    Returns:
        The path.

    Raises:
        ValueError: The name does not end in .html, or the file cannot be written.
    """
    name = os.fspath(path)
    call = f"report({name!r})"
    if not name.lower().endswith((".html", ".htm")):
        raise ValueError(f"{call}: it writes a web page; let the name end in .html.")
    text = report_page(explanation, **options)
    replace_file(name, call, lambda part: Path(part).write_bytes(text.encode()))
    return Path(name)
