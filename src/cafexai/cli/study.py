"""``cafexai study NAME``: the paper's experiments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .errors import UseProblem


def study(
    name: Annotated[str, typer.Argument(help='The study, or "list" for all of them.')],
    preset: Annotated[str, typer.Option(help="quick (minutes), full (the paper's sizes) or toy (seconds).")] = "quick",
    out: Annotated[Path | None, typer.Option(help="Folder for the results; studies/NAME-PRESET if not given.")] = None,
    data: Annotated[str | None, typer.Option(help="Folder with the data sets; else CAFEXAI_DATA, else downloads.")] = None,
    models: Annotated[
        Path | None,
        typer.Option(help="Store of trained networks; the folder models of the cache (CAFEXAI_CACHE) if not given."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Processes that do tasks at the same time; runtimes are then those under load.")
    ] = 1,
    engine: Annotated[str, typer.Option(help="local, or ray: tasks on a Ray cluster, one processor each.")] = "local",
    address: Annotated[str | None, typer.Option(help="Address of the Ray cluster; this machine if not given.")] = None,
    change: Annotated[list[str] | None, typer.Option("--set", help="A setting to change, as name=JSON.")] = None,
) -> None:
    """Run one of the paper's experiments.

    Started again, it goes on where it stopped.
    """
    from ..paper.studies import STUDIES, run

    if name == "list":
        typer.echo(_listing())
        return
    if name not in STUDIES:
        raise UseProblem(f"study {name}: unknown study. Allowed values: {', '.join(STUDIES)}.")
    folder = out if out is not None else Path("studies") / f"{name}-{preset}"
    work: dict[str, Any] = {"jobs": jobs, "engine": engine, "address": address, "models": models}
    report = run(STUDIES[name], preset, folder, data=data, changes=_changes(change or []), say=typer.echo, **work)
    for finding in report.findings:
        typer.echo(str(finding))
    typer.echo(f"Tables and figures: {folder}")


def _listing() -> str:
    """All studies with what they need and how long they take."""
    from ..paper.studies import STUDIES

    lines = []
    for entry in STUDIES.values():
        times = ", ".join(f"{preset} {minutes}" for preset, minutes in entry.minutes.items())
        lines += [f"{entry.name}: {entry.title}", f"    needs {entry.needs}", f"    minutes on two cores: {times}"]
    return "\n".join(lines)


def _changes(given: list[str]) -> dict[str, Any]:
    changes = {}
    for entry in given:
        name, _, value = entry.partition("=")
        try:
            changes[name] = json.loads(value)
        except json.JSONDecodeError:
            raise UseProblem(f"--set {entry}: give a setting as name=JSON, such as --set seeds=[42].") from None
    return changes
