"""``cafexai monitor fit`` and ``cafexai monitor check``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from .._extras import needs
from ..loading import read_data
from ..loading.file_errors import DataProblem, short
from . import options
from . import output as files
from .batch import model_of
from .errors import UseProblem
from .request import USUAL, Work, guard_call, load_monitor
from .status import Status

if TYPE_CHECKING:
    from ..monitor import Monitor, Verdict

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Watch a model in use: what changed in new rows, and does it matter."
)
WHOLE = "all"  # the name of the only window, without --by
CHANGED = {"none": 0, "warn": 10, "alert": 11}  # exit codes of check with --fail-on
File = Annotated[Path, typer.Argument(help="The file of the monitor, .safetensors.", metavar="MONITOR")]
Label = Annotated[str | None, typer.Option(help="Column with the true classes; check then compares accuracies.")]
Rate = Annotated[float, typer.Option(help="Share of windows without any change that may raise an alarm.")]
FailOn = Annotated[
    str | None, typer.Option(help="warn or alert: end with exit code 10 (warn) or 11 (alert) from this severity on.")
]
By = Annotated[str | None, typer.Option(help="Column, such as a day, that cuts DATA into windows: one verdict for each value.")]
Scores = Annotated[
    bool,
    typer.Option("--scores", help="DATA is an output folder of batch (with --keep of the inputs): nothing is explained twice."),
]
Background = Annotated[
    str | None,
    typer.Option(help="Rows that a baseline such as mean or background is about, if DATA does not have them.", metavar="FILE"),
]
Page = Annotated[Path | None, typer.Option(help="Also write a page: verdict, what moved, rows to look at, windows over time.")]
Metrics = Annotated[Path | None, typer.Option(help="Also write the verdicts as Prometheus text into this .prom file.")]


@app.command()
@options.expand
def fit(
    source: options.Source,
    monitor: File,
    *,
    label: Label = None,
    target: options.Target = None,
    baseline: options.Baseline = USUAL,
    background: Background = None,
    scores: Scores = False,
    false_alarms: Rate = 0.01,
    how: options.How,
) -> None:
    """Learn from DATA, rows of a time when all was well, what is usual.

    The file holds counts, no rows and no model; with --baseline mean, median or mode also that one row.
    """
    from ..monitor import Monitor

    _check_ending(monitor)
    with Status().running() as status:
        if scores:
            made = _fit_scores(source, label, target, baseline, background, false_alarms, how, status)
            _save(made, monitor)
            return
        if background is not None:
            raise UseProblem("--background: only with --scores. Without it, DATA itself is the background.")
        work, labels = _load(source, label, status, baseline)
        status.doing(f"explaining {len(work.data)} rows")
        wanted = {"target": _target(work, target), "baselines": work.baselines, "false_alarms": false_alarms}
        made = work.guard(lambda: Monitor.fit(_explainer(work, how), work.inputs, labels, **wanted))
        _save(made, monitor)


def _save(made: Monitor, monitor: Path) -> None:
    with files.writing(monitor):
        guard_call(lambda: made.save(monitor), str(monitor), "the settings")
    typer.echo(f"Wrote {monitor}: {made.reference.window.rows} rows, {len(made.reference.features)} features.")
    typer.echo(f"A window needs at least {made.reference.minimum} rows.")


@app.command()
@options.expand
def check(
    source: options.Source,
    monitor: File,
    *,
    label: Label = None,
    by: By = None,
    scores: Scores = False,
    background: Background = None,
    html: Page = None,
    prometheus: Metrics = None,
    json: options.Json = False,
    fail_on: FailOn = None,
    how: options.How,
) -> None:
    """Compare DATA, new rows, with what MONITOR learned. Give the model and options that fit was given.

    DATA is a file, a folder of Parquet files, or the counts (.safetensors) that batch --monitor and serve --monitor wrote.
    """
    from ..monitor import write_metrics, write_page

    counts = Path(source.data).suffix == ".safetensors"
    if counts and (by or label or scores):
        raise UseProblem(f"{source.data} holds counts of one window. Leave out --by, --label and --scores.")
    if fail_on not in (None, "warn", "alert"):
        raise UseProblem(f"--fail-on {fail_on}: Allowed values: warn, alert.")
    files.check_out(prometheus, (".prom",))
    files.check_out(html, (".html", ".htm"))
    with Status().running() as status:
        cafe, _ = _load_explainer(source, how, status, "zero" if background is None else "background", background)
        known = load_monitor(monitor, cafe)
        if counts:
            counted = load_monitor(Path(source.data), cafe)
            found = guard_call(lambda: known.copy().merge(counted).check(), source.model, source.data)
            verdicts, odd = {WHOLE: found}, dict[str, Any]()
        else:
            verdicts, odd = _check_rows(known, label, by, scores, html is not None, source, status)
    if prometheus is not None:
        files.write_text(prometheus, write_metrics(verdicts))
    if html is not None:
        files.write_text(html, write_page(verdicts, odd, f"{Path(source.data).name}, compared with {monitor.name}"))
    if by is None:
        typer.echo(files.as_json(verdicts[WHOLE].to_dict()) if json else _text(verdicts[WHOLE]))
    elif json:
        typer.echo(files.as_json({name: one.to_dict() for name, one in verdicts.items()}))
    else:
        typer.echo("\n".join(f"{name}: {one.severity}. {one}" for name, one in verdicts.items()))
    code = max((CHANGED[one.severity] for one in verdicts.values()), default=0)
    if fail_on is not None and code >= CHANGED[fail_on]:
        raise typer.Exit(code)


def _check_rows(
    known: Monitor, label: str | None, by: str | None, scores: bool, look: bool, source: options.Source, status: Status
) -> tuple[dict[str, Verdict], dict[str, Any]]:
    """Verdicts by window, and if asked for the rows to look at."""
    rows = _read_rows(source, scores)
    status.doing(f"reading {len(rows)} rows" if scores else f"explaining {len(rows)} rows")
    verdicts: dict[str, Verdict] = {}
    odd: dict[str, Any] = {}
    for name, window in _cut_windows(rows, by, known.reference.minimum, source.data):
        signals = _read_window(known, window, label, scores, source)
        verdicts[name] = guard_call(partial(known.check, signals), source.model, source.data)
        if look and verdicts[name].kind != "none":
            odd[name] = known.find_odd_rows(signals)
    return verdicts, odd


def _check_ending(path: Path) -> None:
    if path.suffix != ".safetensors":
        raise UseProblem(f"{path}: a monitor is a safetensors file; let its name end in .safetensors.")


def _read_rows(source: options.Source, scores: bool) -> Any:
    """New rows as they are in the files. Missing values and columns are for the monitor to find."""
    if Path(source.data).is_dir():
        return _read_folder(source.data, scores)
    data = read_data(source.data, None, encoding=source.encoding)
    if data.form != "table":
        raise UseProblem(f"{source.data}: a monitor watches tables, and these are {data.form}.")
    return data.rows


def _read_folder(path: str, scores: bool) -> Any:
    pandas = needs("pandas", "batch")
    if not any(Path(path).rglob("*.parquet")):
        raise DataProblem(f"{path}: there is no Parquet file in this folder.")
    if scores:
        from ..monitor._batch_files import read_all

        return read_all(path)
    try:
        return pandas.read_parquet(path)
    except (OSError, ValueError) as error:
        raise DataProblem(f"{path}: it cannot be read ({short(error)}).") from error


def _cut_windows(rows: Any, by: str | None, smallest: int, path: str) -> Iterator[tuple[str, Any]]:
    """Names and rows of windows, in the order of the column; windows that are too small are told and left out."""
    if by is None:
        yield WHOLE, rows
        return
    if by not in rows.columns:
        raise UseProblem(f"--by {by}: {path} has no such column. It has {', '.join(map(str, rows.columns[:20]))}.")
    for value, window in rows.groupby(by, sort=True, dropna=False, observed=True):
        if len(window) < smallest:
            typer.echo(f"{value}: {len(window)} rows, too few for a verdict; it needs {smallest}.", err=True)
        else:
            yield str(value), window.drop(columns=by).reset_index(drop=True)


def _read_window(known: Monitor, rows: Any, label: str | None, scores: bool, source: options.Source) -> Any:
    """The watched numbers of a window."""
    labels = None if label is None else _read_labels(rows, label, source.data)
    if scores:
        return guard_call(lambda: known.read_scores(rows, labels), source.model, source.data)
    plain = rows if label is None else rows.drop(columns=label)
    return guard_call(lambda: known.read(plain, labels), source.model, source.data)


def _read_labels(rows: Any, label: str, path: str) -> Any:
    if label not in rows.columns:
        raise UseProblem(f"--label {label}: {path} has no such column. It has {', '.join(map(str, rows.columns[:20]))}.")
    return rows[label].to_numpy()


def _load(source: options.Source, label: str | None, status: Status, baseline: str) -> tuple[Work, Any]:
    """Model and rows; with a label, all other columns are the model's unless --columns says otherwise."""
    labels = None
    if label is not None:
        data = read_data(source.data, None, encoding=source.encoding)
        labels = _read_labels(data.rows, label, source.data)
        if source.columns is None and source.schema is None:
            source = dataclasses.replace(source, columns=",".join(name for name in data.names if name != label))
    return Work(source, status, None, baseline), labels


def _load_explainer(
    source: options.Source, how: options.How, status: Status, baseline: str, background: str | None
) -> tuple[Any, Any]:
    """The explainer of a model whose rows come in another form, and the baselines that are asked for."""
    about = dataclasses.replace(source, data=background or source.data)
    made, schema, baselines, rows = model_of(about, baseline, status, background)
    return guard_call(lambda: how.explainer(made, background=rows, schema=schema), source.model, "the settings"), baselines


def _fit_scores(
    source: options.Source,
    label: str | None,
    target: str | None,
    baseline: str,
    background: str | None,
    false_alarms: float,
    how: options.How,
    status: Status,
) -> Monitor:
    """A monitor from an output folder of batch."""
    from ..monitor import Monitor
    from . import parsing

    cafe, baselines = _load_explainer(source, how, status, "zero" if baseline == USUAL else baseline, background)
    frame = _read_folder(source.data, True)
    labels = None if label is None else _read_labels(frame, label, source.data)
    status.doing(f"reading {len(frame)} rows")
    wanted = {"target": parsing.output(target, "target", cafe.class_names), "baselines": baselines}
    wanted |= {"false_alarms": false_alarms, "scored": True}
    return cast("Monitor", guard_call(lambda: Monitor.fit(cafe, frame, labels, **wanted), source.model, source.data))


def _target(work: Work, text: str | None) -> Any:
    from . import parsing

    return parsing.output(text, "target", work.classes)


def _explainer(work: Work, how: options.How) -> Any:
    return how.explainer(work.model, background=work.background(), schema=work.schema)


def _text(verdict: Verdict) -> str:
    """The sentence, the kind, and the columns and pairs that moved most."""
    from ..monitor._sentence import show_p

    lines = [str(verdict), "", f"kind: {verdict.kind}    severity: {verdict.severity}    rows: {verdict.rows}"]
    lines += [f"{family}: {value:.2f} (limit {limit:.2f})" for family, (value, limit) in verdict.statistics.items()]
    lines += _performance(verdict)
    if verdict.moved:
        lines += ["", f"{'moved':<12}{'feature':<24}{'distance':>9}{'p':>10}"]
        lines += [f"{one.kind:<12}{one.feature[:23]:<24}{one.distance:>9.3f}{show_p(one.p):>10}" for one in verdict.moved[:10]]
    if verdict.pairs:
        lines += ["", "correlations of ranks that changed"]
        lines += [
            f"{one.first}, {one.second}: {one.before:+.2f} to {one.now:+.2f} (p {show_p(one.p)})" for one in verdict.pairs[:5]
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
