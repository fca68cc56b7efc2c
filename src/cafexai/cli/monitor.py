"""``cafexai monitor fit`` and ``cafexai monitor check``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..loading import Data, load_model, read_data
from . import options
from . import output as files
from .errors import UseProblem
from .request import USUAL, Work, called, read_schema
from .status import Status

if TYPE_CHECKING:
    from ..monitor import Verdict

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Watch a model in use: what changed in new rows, and does it matter."
)
CHANGED = {"none": 0, "warn": 10, "alert": 11}  # exit codes of check with --fail-on
File = Annotated[Path, typer.Argument(help="The file of the monitor, .safetensors.", metavar="MONITOR")]
Label = Annotated[str | None, typer.Option(help="Column with the true classes; check then compares accuracies.")]
Rate = Annotated[float, typer.Option(help="Share of windows without any change that may raise an alarm.")]
FailOn = Annotated[
    str | None, typer.Option(help="warn or alert: end with exit code 10 (warn) or 11 (alert) from this severity on.")
]


@app.command()
@options.expand
def fit(
    source: options.Source,
    monitor: File,
    *,
    label: Label = None,
    target: options.Target = None,
    baseline: options.Baseline = USUAL,
    false_alarms: Rate = 0.01,
    how: options.How,
) -> None:
    """Learn from DATA, rows of a time when all was well, what is usual.

    The file holds counts, no rows and no model.
    """
    from ..monitor import Monitor

    _check_ending(monitor)
    with Status().running() as status:
        work, labels = _load(source, label, status, baseline)
        status.doing(f"explaining {len(work.data)} rows")
        wanted = {"target": _target(work, target), "baselines": work.baselines, "false_alarms": false_alarms}
        made = work.called(lambda: Monitor.fit(_explainer(work, how), work.inputs, labels, **wanted))
        with files.writing(monitor):
            work.called(lambda: made.save(monitor))
    typer.echo(f"Wrote {monitor}: {made.reference.window.rows} rows, {len(made.reference.features)} features.")
    typer.echo(f"A window needs at least {made.reference.minimum} rows.")


@app.command()
@options.expand
def check(
    source: options.Source,
    monitor: File,
    *,
    label: Label = None,
    json: options.Json = False,
    fail_on: FailOn = None,
    how: options.How,
) -> None:
    """Compare DATA, new rows, with what MONITOR learned. Give the model and options that fit was given."""
    from ..monitor import Monitor

    if fail_on not in (None, "warn", "alert"):
        raise UseProblem(f"--fail-on {fail_on}: Allowed values: warn, alert.")
    with Status().running() as status:
        status.doing(f"loading {source.model}")
        schema = None if source.schema is None else read_schema(source.schema)
        cafe = how.explainer(load_model(source.model, source.weights, source.trust), schema=schema)
        known = called(lambda: Monitor.load(monitor, cafe), source.model, source.data)
        rows, labels = _read_window(source, label)
        status.doing(f"explaining {len(rows)} rows")
        verdict = called(lambda: known.check(rows, labels), source.model, source.data)
    typer.echo(files.as_json(verdict.to_dict()) if json else _text(verdict))
    code = CHANGED[verdict.severity]
    if fail_on is not None and code >= CHANGED[fail_on]:
        raise typer.Exit(code)


def _check_ending(path: Path) -> None:
    if path.suffix != ".safetensors":
        raise UseProblem(f"{path}: a monitor is a safetensors file; let its name end in .safetensors.")


def _read_window(source: options.Source, label: str | None) -> tuple[Any, Any]:
    """New rows as they are in the file, and their labels. Missing values and columns are for the monitor to find."""
    data = read_data(source.data, None, encoding=source.encoding)
    if data.form != "table":
        raise UseProblem(f"{source.data}: a monitor watches tables, and these are {data.form}.")
    if label is None:
        return data.rows, None
    labels = _read_labels(data, label, source.data)
    return data.rows.drop(columns=label), labels


def _read_labels(data: Data, label: str, path: str) -> Any:
    if label not in data.names:
        raise UseProblem(f"--label {label}: {path} has no such column. It has {', '.join(data.names[:20])}.")
    return data.rows[label].to_numpy()


def _load(source: options.Source, label: str | None, status: Status, baseline: str) -> tuple[Work, Any]:
    """Model and rows; with a label, all other columns are the model's unless --columns says otherwise."""
    labels = None
    if label is not None:
        data = read_data(source.data, None, encoding=source.encoding)
        labels = _read_labels(data, label, source.data)
        if source.columns is None and source.schema is None:
            source = dataclasses.replace(source, columns=",".join(name for name in data.names if name != label))
    return Work(source, status, None, baseline), labels


def _target(work: Work, text: str | None) -> Any:
    from . import parsing

    return parsing.output(text, "target", work.classes)


def _explainer(work: Work, how: options.How) -> Any:
    return how.explainer(work.model, background=work.background(), schema=work.schema)


def _text(verdict: Verdict) -> str:
    """The sentence, the kind, and the columns and pairs that moved most."""
    lines = [str(verdict), "", f"kind: {verdict.kind}    severity: {verdict.severity}    rows: {verdict.rows}"]
    lines += [f"{family}: {value:.2f} (limit {limit:.2f})" for family, (value, limit) in verdict.statistics.items()]
    lines += _performance(verdict)
    if verdict.moved:
        lines += ["", f"{'moved':<12}{'feature':<24}{'distance':>9}{'p':>10}"]
        lines += [f"{one.kind:<12}{one.feature[:23]:<24}{one.distance:>9.3f}{one.p:>10.1g}" for one in verdict.moved[:10]]
    if verdict.pairs:
        lines += ["", "correlations that changed"]
        lines += [
            f"{one.first}, {one.second}: {one.before:+.2f} to {one.now:+.2f} (p {one.p:.1g})" for one in verdict.pairs[:5]
        ]
    return "\n".join(lines)


def _performance(verdict: Verdict) -> list[str]:
    found = verdict.performance
    if found is None:
        return []
    lines = [f"accuracy: {found.accuracy_now:.3f} (reference {found.accuracy_before:.3f}, {found.labelled} labels)"]
    if found.auc_now is not None and found.auc_before is not None:
        lines.append(f"AUC: {found.auc_now:.3f} (reference {found.auc_before:.3f})")
    return lines
