"""``cafexai explain`` and ``cafexai report``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from . import options
from . import output as files
from .errors import UseProblem
from .request import USUAL, Work, schema_text
from .status import Status

ENDINGS = (".txt", ".csv", ".parquet", ".json", ".html", ".safetensors")
Out = Annotated[
    Path | None,
    typer.Option(help="File for the scores of all rows, by its ending: .txt, .csv, .parquet, .json, .html, .safetensors."),
]
TEXTS = (".txt", ".html")  # which tell hidden conflicts
REASONS = (".txt", ".csv", ".parquet")
Reasons = Annotated[
    int | None, typer.Option(min=1, help="Instead of all scores, this many reasons for each row, one sentence each.")
]
Direction = Annotated[str, typer.Option(help="Reasons that lowered the score, down, or raised it, up.")]
Hidden = Annotated[
    bool, typer.Option("--hidden", help="Look for hidden conflicts, too; how many evaluations that takes is said before.")
]
Report = Annotated[Path, typer.Option(help="Where the report is written, as .html.")]


@options.expand
def explain(
    source: options.Source,
    *,
    out: Out = None,
    json: options.Json = False,
    rows: options.Rows = None,
    baseline: options.Baseline = USUAL,
    asked: options.Asked,
    how: options.How,
    reasons: Reasons = None,
    direction: Direction = "down",
    hidden: Hidden = False,
    show_schema: options.ShowSchema = False,
) -> None:
    """What pushed predictions up, what down, what cancelled.

    Without --out the first rows are shown as tables that add up; --out writes all of them.
    """
    if show_schema:
        typer.echo(schema_text(source))
        return
    from ..reporting.reasons import MOVED

    if direction not in MOVED:
        raise UseProblem(f"--direction {direction}: unknown. Allowed values: {', '.join(MOVED)}.")
    if hidden and (reasons is not None or json or (out is not None and out.suffix.lower() not in TEXTS)):
        raise UseProblem(
            f"--hidden: hidden conflicts are told in sentences, on the terminal or with --out {' or '.join(TEXTS)}."
        )
    files.check_out(out, ENDINGS if reasons is None else REASONS)
    with Status().running() as status:
        work = Work(source, status, rows, baseline)
        result = work.explain(how, asked)
        if reasons is not None:
            wanted = files.reasons(result, work.data, reasons, direction)
        elif out is not None:
            status.doing(f"writing {out}")
            _write(out, result, work, _hidden(result, work, hidden))
        else:
            told = _hidden(result, work, hidden and not json, files.SHOWN)
    if reasons is not None:
        _tell_reasons(out, json, wanted, work)
    elif json:
        typer.echo(files.as_json(_as_json(result, work)))
    elif out is None:
        typer.echo(_first_rows(result, work, told))
    else:
        typer.echo(_wrote(out, work))


@options.expand
def report(
    source: options.Source,
    *,
    out: Report = Path("report.html"),
    rows: options.Rows = None,
    baseline: options.Baseline = USUAL,
    asked: options.Asked,
    how: options.How,
    hidden: Hidden = False,
) -> None:
    """A page for readers without Python.

    One HTML file without network: an overview, every row with a table that adds up, conflicts in plain sentences.
    """
    files.check_out(out, (".html", ".htm"))
    with Status().running() as status:
        work = Work(source, status, rows, baseline)
        result = work.explain(how, asked)
        status.doing(f"writing {out}")
        _write(out, result, work, _hidden(result, work, hidden))
    typer.echo(_wrote(out, work))


def _tell_reasons(out: Path | None, json: bool, frame: Any, work: Work) -> None:
    """Reasons on the terminal, as JSON, or in a file."""
    if out is None:
        typer.echo(files.as_json(frame.to_dict("records")) if json else files.reason_lines(frame, len(work.data)))
        return
    if out.suffix.lower() == ".txt":
        files.write_text(out, files.reason_lines(frame) + "\n")
    else:
        files.write_frame(out, frame)
    typer.echo(_wrote(out, work))


def _hidden(result: Any, work: Work, wanted: bool, most: int | None = None) -> Any:
    """Hidden conflicts of the first rows, or all; their price is told before."""
    return work.hidden(result if most is None else result[:most]) if wanted else None


def _write(out: Path, result: Any, work: Work, hidden: Any = None) -> None:
    ending = out.suffix.lower()
    if ending in (".csv", ".parquet"):
        files.write_frame(out, files.to_frame(result, work.data))
    elif ending == ".json":
        files.write_text(out, files.as_json(_as_json(result, work)) + "\n")
    elif ending == ".txt":
        files.write_text(out, files.ledgers(result, work.data, hidden=hidden) + "\n")
    else:
        with files.writing(out):
            if ending == ".safetensors":
                result.save(out)
            else:
                result.report(out, **_about(work), hidden=hidden)


def _about(work: Work) -> dict[str, Any]:
    """What a report says of where it comes from."""
    data, source = work.data, work.source
    chosen = f"{len(data)} of {len(work.all)} rows" if len(data) < len(work.all) else f"all {len(data)} rows"
    names = data.labels or tuple(f"Row {place}" for place in data.places)
    return {
        "title": f"{Path(source.data).name} explained",
        "model": work.model,
        "data": f"{source.data}, {chosen}; compared with the baseline {work.baseline}",
        "row_names": names,
        "command": shlex.join(["cafexai", *sys.argv[1:]]),
    }


def _as_json(result: Any, work: Work) -> dict[str, Any]:
    about = {"model": work.source.model, "data": work.source.data, "baseline": work.baseline}
    return files.to_json(result, work.data, about)


def _wrote(out: Path, work: Work) -> str:
    count = len(work.data)
    return f"{out}: {count} row{'s' * (count != 1)} of {work.source.data} explained."


def _first_rows(result: Any, work: Work, hidden: Any) -> str:
    lines = [files.ledgers(result, work.data, files.SHOWN, hidden)]
    more = len(work.data) - files.SHOWN
    if more > 0:
        lines += ["", f"{more} more row{'s' * (more != 1)}: --rows chooses others, --out scores.csv writes all."]
    return "\n".join(lines)
