"""Runs a study into a folder. Every finished task is kept, so that an interrupted study goes on where it stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..._extras import progress
from ..datasets.files import cache
from ..models.checkpoint import Tally
from .on_ray import do_on_ray
from .processes import run_tasks, threads_of
from .record import Report, Settings, Study, Workplace
from .task_results import any_kept, do, read_part, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


ENGINES = ("local", "ray")


def run(
    study: Study,
    preset: str,
    out: str | os.PathLike[str],
    *,
    data: str | None = None,
    models: str | os.PathLike[str] | None = None,
    changes: Settings | None = None,
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    show_progress: bool | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Do what is missing in the folder, then write tables, figures and findings there.

    The folder holds ``config.json``, ``results.json`` (one entry per task), a Markdown and a CSV file per table, PNG and SVG
    files of the figures, ``findings.json``, and ``README.md`` with all of it.

    Args:
        study: The study.
        preset: The name of its settings.
        out: The folder.
        data: The folder of the data sets; None takes ``CAFEXAI_DATA``, or downloads.
        models: The store of trained networks, which all studies share; None takes the folder "models" of the cache
            (``CAFEXAI_CACHE``).
        changes: Settings that replace those of the preset.
        jobs: Processes that work at the same time, each with its share of the threads. A script of yours then calls ``run``
            under ``if __name__ == "__main__":``. Runtimes in the report are measured beside the other processes.
        engine: "local", or "ray": tasks run on a Ray cluster, one processor each.
        address: The address of the cluster; None takes this machine.
        show_progress: Show progress bars. None shows them for long work only.
        say: Gets lines about the progress.

    Returns:
        What the study shows.

    Raises:
        ValueError: There is no such preset or setting, or the folder holds results of other settings.

    Example:
        >>> from cafexai import studies
        >>> report = studies.run(studies.STUDIES["worked-tables"], "toy", "results", jobs=1)
        >>> len(report.tables) > 0
        True
    """
    if engine not in ENGINES:
        raise ValueError(
            f"study {study.name}: engine={engine!r} is not known. Allowed values: {', '.join(map(repr, ENGINES))}."
        )
    if jobs < 1:
        raise ValueError(f"study {study.name}: {jobs} processes cannot do anything; give at least 1.")
    folder = Path(out)
    settings = settings_of(study, preset, changes or {})
    config = {"study": study.name, "preset": preset, "settings": settings}
    place = Workplace(cache() / "models" if models is None else Path(models), data, show_progress)
    tasks = list(study.tasks(settings, place))
    left = [task for task in tasks if read_part(folder, task.key) is None]
    jobs = max(1, min(jobs, len(left)))
    _claim(folder, study, config, jobs)
    say(f"{study.name} ({preset}): {len(tasks)} tasks, {len(tasks) - len(left)} of them done before.")
    tally = Tally()
    if jobs == 1 and engine == "local":
        for task in progress(left, study.name, "task", show_progress):
            tally.add(do(folder, task))
    else:
        keys = [task.key for task in left]
        work = (study, settings, folder, place, keys)
        with contextlib.closing(do_on_ray(*work, address) if engine == "ray" else run_tasks(*work, jobs)) as ends:
            for counted in progress(ends, study.name, "task", show_progress, total=len(keys)):
                tally.add(counted)
    if tally.trained or tally.found:
        say(f"{study.name}: {tally.trained} networks trained, {tally.found} found in {place.models}.")
    results = {task.key: read_part(folder, task.key) for task in tasks}
    report = study.report(settings, results)
    _publish(folder, study, config, results, report)
    return report


def settings_of(study: Study, preset: str, changes: Settings) -> dict[str, Any]:
    """The settings of a preset with some of them replaced."""
    if preset not in study.presets:
        raise ValueError(f"study {study.name}: there is no preset {preset!r}, only {', '.join(study.presets)}.")
    known = study.presets[preset]
    unknown = set(changes) - set(known)
    if unknown:
        raise ValueError(f"study {study.name}: there is no setting {sorted(unknown)[0]!r}, only {', '.join(known)}.")
    settings: dict[str, Any] = json.loads(json.dumps({**known, **changes}))
    return settings


def _claim(folder: Path, study: Study, config: dict[str, Any], jobs: int) -> None:
    """A folder with results belongs to one study with one set of settings."""
    path = folder / "config.json"
    if path.exists() and (any_kept(folder) or (folder / "results.json").exists()):
        before = json.loads(path.read_text())
        same = {key: before.get(key) for key in config} == config
        if not same:
            raise ValueError(
                f"study {study.name}: {folder} holds results of {before.get('study')} with other settings "
                f"({before.get('preset')}). Give another folder, or remove that one."
            )
        return
    versions = {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.machine()}
    write(path, json.dumps({**config, "versions": versions, "jobs": jobs, "threads": threads_of(jobs)}, indent=1))


def _publish(folder: Path, study: Study, config: dict[str, Any], results: dict[str, Any], report: Report) -> None:
    write(folder / "results.json", json.dumps(results, indent=1))
    for table in report.tables:
        write(folder / f"{table.name}.md", table.to_markdown())
        write(folder / f"{table.name}.csv", table.to_csv())
    for name, figure in report.figures.items():
        _save(figure, folder / name)
    write(folder / "findings.json", json.dumps([dataclasses.asdict(finding) for finding in report.findings], indent=1))
    write(folder / "README.md", page(study, config, report))


def _save(figure: Figure, path: Path) -> None:
    """As PNG and SVG, with the same bytes in every run."""
    from matplotlib import rc_context

    figure.savefig(path.with_name(f"{path.name}.png"), dpi=120)
    with rc_context({"svg.hashsalt": path.name}):
        figure.savefig(path.with_name(f"{path.name}.svg"), metadata={"Date": None})


def page(study: Study, config: dict[str, Any], report: Report) -> str:
    """The report as one Markdown page."""
    settings = ", ".join(f"{key} = {value}" for key, value in config["settings"].items())
    smaller = "" if config["preset"] == "full" else " Smaller than the paper's."
    lines = [f"# {study.name}: {study.title}", "", f"Preset `{config['preset']}`.{smaller} Settings: {settings}.", ""]
    lines += ["## Findings", "", *map(str, report.findings), ""] if report.findings else []
    lines += [table.to_markdown() for table in report.tables]
    lines += [f"![{name}]({name}.png)\n" for name in report.figures]
    return "\n".join(lines)
