"""``cafexai compare``, ``audit`` and ``supported``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import __version__
from . import options, output, parsing
from .errors import UseProblem
from .request import Work
from .status import Status

Methods = Annotated[str | None, typer.Option(help="Methods, such as cafe,integrated_gradients; all if not given.")]
Metrics = Annotated[str | None, typer.Option(help="Metrics, such as infidelity,complexity; the usual ones if not given.")]
Method = Annotated[str, typer.Option(help="The method to audit.")]
Table = Annotated[Path | None, typer.Option(help="File for the table, by its ending: .md, .csv, .parquet or .json.")]
ENDINGS = (".md", ".csv", ".parquet", ".json")


@options.expand
def compare(
    source: options.Source,
    out: Table = None,
    json: options.Json = False,
    methods: Methods = None,
    metrics: Metrics = None,
    rows: options.Rows = "0:50",
    target: options.Target = None,
    baseline: options.Baseline = "zero",
) -> None:
    """Many methods on the same rows, each measured.

    Of DATA the first 50 rows are taken, unless --rows says otherwise.
    """
    output.check_out(out, ENDINGS)
    with Status().running() as status:
        work = Work(source, status, rows, baseline)
        found = _compare(work, target, parsing.names(methods), parsing.names(metrics))
    frame = found.to_frame().reset_index()
    _give(found.to_markdown(), frame, {"notes": found.notes, "methods": _lines(frame)}, work, out, json)


def _compare(work: Work, target: str | None, methods: list[str] | None, metrics: list[str] | None) -> Any:
    from .. import comparison

    chosen: dict[str, Any] = {} if metrics is None else {"metrics": metrics}
    model, x, baseline, groups = encoded = work.encode()
    wanted = work.target(target, encoded)
    work.status.doing(f"comparing methods on {len(work.data)} rows")
    return work.guard(
        lambda: comparison.compare(model, x, wanted, methods, baselines=baseline, feature_groups=groups, **chosen)
    )


@options.expand
def audit(
    source: options.Source,
    out: Table = None,
    json: options.Json = False,
    method: Method = "cafe_published",
    rows: options.Rows = "0:50",
    baseline: options.Baseline = "zero",
    c: options.Sensitivity = "1",
) -> None:
    """Does a method report the conflicts in the model?

    Of DATA the first 50 rows are taken, unless --rows says otherwise.
    """
    output.check_out(out, ENDINGS)
    with Status().running() as status:
        work = Work(source, status, rows, baseline)
        found = _audit(work, method, options.How(c).one_c("an audit is about one c."))
    frame = found.to_frame().reset_index(names="layer")
    text = "\n".join([f"{method} {found}", "", output.table(frame), *(f"{name}: {why}" for name, why in found.skipped.items())])
    _give(text, frame, {"method": method, "verdict": str(found), "layers": _lines(frame)}, work, out, json)


def _audit(work: Work, method: str, c: float) -> Any:
    import functools

    from ..cafe import CAFE
    from ..conflicts import audit as audited
    from ..methods import METHODS

    if method not in METHODS:
        raise UseProblem(f"--method {method}: unknown method. Allowed values: {', '.join(METHODS)}.")
    model, x, baseline, _ = work.encode()
    work.status.doing(f"auditing {method} on {len(work.data)} rows")
    explainers: dict[str, Any] = {"cafe": CAFE, "cafe_published": CAFE.published}
    scored = functools.partial(explainers[method], c=c) if method in explainers else METHODS[method]
    return work.guard(lambda: audited(scored, model, x, baseline))


@options.expand
def supported(source: options.Source, json: options.Json = False) -> None:
    """Can the model be explained?

    Runs it once on the first row and lists its operations; ends with code 4 if some have no rule.
    """
    with Status().running() as status:
        work = Work(source, status, "0")
        status.doing("following the model")
        found = work.supported()
    if json:
        problems = [vars(problem) for problem in found.problems]
        typer.echo(
            output.as_json(
                {"cafexai": __version__, "supported": bool(found), "operations": found.operations, "problems": problems}
            )
        )
    else:
        typer.echo(str(found))
    raise typer.Exit(0 if found else 4)


def _lines(frame: Any) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in line.items()} for line in frame.to_dict("records")]


def _give(text: str, frame: Any, described: dict[str, Any], work: Work, out: Path | None, json: bool) -> None:
    """On the terminal, as JSON, or into a file."""
    about = {"cafexai": __version__, "model": work.source.model, "data": work.source.data, "rows": len(work.data)}
    told = output.as_json({**about, **described})
    if out is not None:
        if out.suffix.lower() in (".md", ".json"):
            output.write_text(out, (told if out.suffix.lower() == ".json" else text).rstrip("\n") + "\n")
        else:
            output.write_frame(out, frame)
        typer.echo(f"{out}: written, over {len(work.data)} rows of {work.source.data}.", err=json)
    if json:
        typer.echo(told)
    elif out is None:
        typer.echo(text.rstrip("\n"))
