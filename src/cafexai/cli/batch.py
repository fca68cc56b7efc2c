"""``cafexai batch``: scores for files of any number of rows."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._logging import configure_logging
from ..loading import load_model
from ..loading.file_errors import DataProblem
from . import options, parsing
from .errors import UseProblem
from .request import WORDS, Work, guard_call, load_monitor, read_schema
from .status import Status

if TYPE_CHECKING:
    from ..monitor import Monitor

EVERY = 60.0  # seconds between two lines without a terminal
Input = Annotated[
    str, typer.Argument(help="Parquet, CSV or Arrow: a file, a folder, a 'glob*', or an address.", metavar="INPUT")
]
Folder = Annotated[
    str,
    typer.Argument(help="Folder, or s3://..., for the parts of the result. Started again, it goes on.", metavar="OUTPUT"),
]
ModelOption = Annotated[
    str, typer.Option("--model", help="package.module:factory (or file.py:factory), .skops, .onnx; with --trust others.")
]
Keep = Annotated[str | None, typer.Option(help="Columns that go to the result and are no features: id,day,...")]
Scores = Annotated[str, typer.Option(help="net, signed (positive and negative) or all.")]
Top = Annotated[int | None, typer.Option(min=1, help="Lists of the strongest features, so many, instead of a column for each.")]
Workers = Annotated[int | None, typer.Option(min=0, help="Processes; one for each processor if not given. 0: this one alone.")]
PartRows = Annotated[int, typer.Option("--rows-per-part", min=1, help="Rows of one part, the unit of work.")]
MaxBad = Annotated[float | None, typer.Option(min=0, help="End if more rows are refused: a number, or a share below 1.")]
Baseline = Annotated[str, typer.Option(help="zero; mean, median or mode of --background; or a file of rows.")]
Background = Annotated[str | None, typer.Option(help="A file of rows with the columns of the model, for --baseline mean.")]

Engine = Annotated[str, typer.Option(help="local; ray or spark: the machines of a cluster, which see OUTPUT, too.")]
Kernels = Annotated[str, typer.Option(help="Compiled formulas: always, never, or auto, where a run is long enough to pay.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Explain every row by itself, so that its bits can be replayed; far slower.")
]
Address = Annotated[str | None, typer.Option(help="Of the Ray cluster, or the master of Spark; this machine if not given.")]


def _verify(folder: str | None) -> None:
    """Compare results with their checksums instead of a run, and end."""
    if folder is None:
        return
    from ..batch import verify

    with Status().running() as status:
        status.doing(f"reading {folder}")
        found = verify(folder)
    if found.problems:
        raise DataProblem(f"{folder}: {found}")
    typer.echo(f"{folder}: {found}")
    raise typer.Exit


PartitionBy = Annotated[str | None, typer.Option(help="Kept columns that become folders such as day=3: day,...")]
Compression = Annotated[str, typer.Option(help="snappy; zstd (smaller, slower) or none.")]
Append = Annotated[bool, typer.Option("--append", help="Also score files that were added to INPUT since the run was begun.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Estimate size and time from some rows, write nothing, and end.")]
MonitorFile = Annotated[
    Path | None,
    typer.Option(help="A file of cafexai monitor fit: write counts of these rows for cafexai monitor check, beside OUTPUT."),
]
Verify = Annotated[
    str | None,
    typer.Option(
        help="Compare these results with their checksums, and end.", metavar="OUTPUT", is_eager=True, callback=_verify
    ),
]


@options.expand
def batch(
    input: Input,
    output: Folder,
    model: ModelOption,
    *,
    weights: options.Weights = None,
    schema: options.SchemaFile = None,
    columns: options.Columns = None,
    keep: Keep = None,
    scores: Scores = "all",
    top: Top = None,
    partition_by: PartitionBy = None,
    compression: Compression = "snappy",
    baseline: Baseline = "zero",
    background: Background = None,
    target: options.Target = None,
    against: options.Against = None,
    output_part: Annotated[str | None, typer.Option("--output", help="Which of several outputs of the model.")] = None,
    batch_size: options.BatchSize = None,
    how: options.How,
    workers: Workers = None,
    rows_per_part: PartRows = 65536,
    max_bad: MaxBad = None,
    encoding: options.Encoding = None,
    trust: options.Trust = False,
    engine: Engine = "local",
    address: Address = None,
    kernels: Kernels = "auto",
    deterministic: Deterministic = False,
    append: Append = False,
    dry_run: DryRun = False,
    monitor: MonitorFile = None,
    verify: Verify = None,
    log_level: options.LogLevel = "warning",
    log_format: options.LogFormat = "text",
    json: options.Json = False,
) -> None:
    """Scores for more rows than memory holds.

    Reads Parquet, CSV or Arrow and writes Parquet parts. It can be stopped at any time: started again, it goes on. Rows that
    cannot be scored are put aside with the reason.
    """
    from ..batch import estimate, score
    from ..batch._sink import sink_at

    guard_call(lambda: configure_logging(log_level, log_format), model, input)
    how.one_c("give one number; score each into a folder of its own.")
    if target == "all":
        raise UseProblem("--target all: a row of the result is about one output. Score each class into a folder of its own.")
    source = options.Source(model, background or baseline, weights, columns, schema, encoding=encoding, trust=trust)
    if deterministic and (batch_size not in (None, 1) or kernels == "always"):
        raise UseProblem(
            "--deterministic: rows are explained one by one, without kernels. Leave out --batch-size and --kernels."
        )
    batch_size, kernels = (1, "never") if deterministic else (batch_size, kernels)
    with Status().running() as status:
        made, known, baselines, about = model_of(source, baseline, status, background)
        status.doing(f"looking at {input}")
        asked = options.Asked(target, against, output_part, batch_size=batch_size)
        counter = None
        if monitor is not None:
            _check_local(output)
            cafe = how.explainer(made, background=about, schema=known)
            counter = load_monitor(monitor, cafe, asked.request(class_names(made, known), baselines=baselines)).copy()
            _check_kept(counter, parsing.names(keep) or (), scores, top)

        def call() -> Any:
            return (estimate if dry_run else score)(
                how.explainer(made, background=about, schema=known),
                input,
                output,
                keep=parsing.names(keep) or (),
                columns=parsing.names(columns),
                request=asked.request(class_names(made, known), baselines=baselines),
                scores=scores,
                top=top,
                partition_by=parsing.names(partition_by) or (),
                compression=compression,
                workers=workers,
                rows_per_part=rows_per_part,
                max_bad=max_bad,
                encoding=encoding,
                engine=engine,
                address=address,
                kernels=kernels,
                append=append,
                say=_Teller(status),
            )

        summary = guard_call(call, model, input)
        watched = None if counter is None or dry_run else _count_for(counter, output, status)
    typer.echo(_as_json(summary) if json else f"{output}: {summary}")
    if watched is not None:
        typer.echo(f"Counts for monitor check: {watched}", err=True)
    if not dry_run and not json and summary.refused:
        typer.echo(f"Reasons of the refused rows: {sink_at(output).side}/refused")


def _count_for(counter: Monitor, output: str, status: Status) -> str:
    """Counts of the results for a monitor, in a file of the bookkeeping beside them."""
    from ..batch._sink import sink_at

    status.doing(f"counting {output}")
    guard_call(lambda: counter.update_batch(output), "the monitor", output)
    path = Path(sink_at(output).side) / "monitor.safetensors"
    guard_call(lambda: counter.save(path), "the monitor", output)
    return str(path)


def _check_local(output: str) -> None:
    """Fail before the rows are scored, if they would go where the monitor cannot count them."""
    from ..batch._sink import Local, sink_at

    if not isinstance(sink_at(output), Local):
        raise UseProblem(
            f"--monitor: it counts the results in a folder of this machine. Leave it out for {output}, copy them to a folder, "
            "and run cafexai monitor check --scores there."
        )


def _check_kept(monitor: Monitor, kept: Sequence[str], scores: str, top: int | None) -> None:
    """Fail before the rows are scored, if the result would lack what the monitor counts."""
    if scores != "all" or top is not None:
        raise UseProblem("--monitor: it counts positive and negative scores of all features. Leave out --scores and --top.")
    if lost := [name for name in monitor.reference.features if name not in kept]:
        raise UseProblem(
            f"--monitor: it counts inputs, too, and --keep has no {', '.join(lost[:5])}. Add --keep {','.join([*kept, *lost])}."
        )


def model_of(source: options.Source, baseline: str, status: Status, background: str | None) -> tuple[Any, Any, Any, Any]:
    """The model, the schema, the baseline, and the data that words such as "mean" are about."""
    if baseline in WORDS and background is None:
        raise UseProblem(f"--baseline {baseline}: of which rows? Give them: --background FILE.")
    if baseline == "zero":
        status.doing(f"loading {source.model}")
        schema = None if source.schema is None else read_schema(source.schema)
        return load_model(source.model, source.weights, source.trust), schema, None, None
    work = Work(source, status, baseline=baseline)
    return work.model, work.schema, work.baselines, work.background()


def class_names(model: Any, schema: Any) -> tuple[str, ...]:
    """Names of the outputs."""
    return tuple(schema.classes if schema is not None else getattr(model, "class_names", None) or ())


class _Teller:
    """How far the run is: on a terminal all the time, in a log once a minute."""

    def __init__(self, status: Status) -> None:
        self._status, self._last, self._quiet = status, time.monotonic(), not sys.stderr.isatty()

    def __call__(self, line: str) -> None:
        self._status.tell(line)
        if self._quiet and time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            typer.echo(f"cafexai: {line}", err=True)


def _as_json(summary: Any) -> str:
    import dataclasses

    from .output import as_json

    slowest = getattr(summary, "slowest", None)
    return as_json({**dataclasses.asdict(summary), **({} if slowest is None else {"slowest": slowest})})
