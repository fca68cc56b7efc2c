"""``cafexai serve``: scores of single rows over HTTP."""

from __future__ import annotations

import errno
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from .._extras import needs
from .._logging import configure_logging
from .._processes import record_hangups
from . import options, parsing
from .batch import Background, Baseline, Deterministic, class_names, model_of
from .errors import UseProblem
from .request import guard_call, load_monitor
from .status import Status

if TYPE_CHECKING:
    from .._engine.request import Request
    from ..cafe import CAFE
    from ..serving.rows import Answerer
    from ..serving.watch import Watch

Host = Annotated[str, typer.Option(help="Where it listens; 0.0.0.0 for everybody who can reach this machine.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="The port.")]
Name = Annotated[str, typer.Option(help="The name of the model in the protocols.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes that answer, each with the model in memory.")]
Drain = Annotated[
    float, typer.Option(min=0, help="Seconds from SIGTERM until it stops to listen; meanwhile it answers, and is not ready.")
]


MonitorFile = Annotated[
    Path | None,
    typer.Option(help="A file of cafexai monitor fit: /metrics then also shows its verdict on the last window of rows."),
]
WindowRows = Annotated[int | None, typer.Option(min=1, help="Rows of a window of --monitor; 1000 if not given.")]


@dataclass(frozen=True)
class Loader:
    """Loads the model and what is asked of it: at the start, on SIGHUP, and in every process."""

    source: options.Source
    baseline: str
    background: str | None
    asked: options.Asked
    how: options.How
    deterministic: bool
    monitor: Path | None = None
    window: int | None = None

    def __call__(self) -> Answerer:
        """The model, ready to answer."""
        from ..loading import columns_of_model
        from ..serving.rows import Answerer

        source = self.source
        with Status().running() as status:
            made, known, baselines, about = model_of(source, self.baseline, status, self.background)
        request = self.asked.request(class_names(made, known), baselines=baselines)
        cafe = guard_call(lambda: self.how.explainer(made, background=about, schema=known), source.model, "the settings")
        names = parsing.names(source.columns) or (columns_of_model(made) if known is None else None)
        watch = None if self.monitor is None else self._watch(cafe, request)
        return Answerer(cafe, names, request, self.deterministic, watch)

    def _watch(self, cafe: CAFE, request: Request) -> Watch:
        """The monitor, if it is of the same explainer, target and baselines."""
        from ..serving.watch import ROWS, Watch

        return Watch(load_monitor(cast("Path", self.monitor), cafe, request), self.window or ROWS)


@options.expand
def serve(
    model: options.Model,
    *,
    weights: options.Weights = None,
    schema: options.SchemaFile = None,
    columns: options.Columns = None,
    baseline: Baseline = "zero",
    background: Background = None,
    asked: options.Asked,
    how: options.How,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    name: Name = "model",
    workers: Workers = 1,
    drain: Drain = 5.0,
    monitor: MonitorFile = None,
    window: WindowRows = None,
    trust: options.Trust = False,
    deterministic: Deterministic = False,
    log_level: options.LogLevel = "warning",
    log_format: options.LogFormat = "text",
) -> None:
    """Scores of single rows over HTTP.

    POST {"rows": [...]} to /v1/explain, or talk KServe's protocol (/v1/models/NAME:explain) or the Open Inference Protocol
    (/v2/models/NAME/infer). /health, /metrics and /openapi.json say more. SIGHUP loads the model again.
    """
    record_hangups()  # a signal to load the model again may come while it is loaded
    needs("starlette", "serve")
    needs("uvicorn", "serve")
    from ..serving.run import Settings
    from ..serving.run import serve as listen

    how.one_c("a result is about one c. Start a server for each.")
    if asked.target == "all":
        raise UseProblem("--target all: a result is about one output. Start a server for each.")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name):
        raise UseProblem(f"--name {name}: it is a part of addresses. Use letters, digits, '.', '_' and '-'.")
    if monitor is not None and workers > 1:
        raise UseProblem("--monitor: one process counts. Leave out --workers, or watch the output of batch.")
    guard_call(lambda: configure_logging(log_level, log_format), model, "the log")
    _free(host, port)
    source = options.Source(model, background or baseline, weights, columns, schema, trust=trust)
    loader = Loader(source, baseline, background, asked, how, deterministic, monitor, window)
    first = [loader()]  # what is wrong is told before anything listens
    load = loader if workers > 1 else lambda: first.pop() if first else loader()
    typer.echo(f"cafexai: http://{host}:{port}/v1/explain takes rows; Ctrl-C ends it.", err=True)
    listen(load, Settings(host, port, name, workers, drain, log_level, log_format))


def _free(host: str, port: int) -> None:
    """Refuse a port that is taken."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((host, port))
    except OSError as error:
        taken = "another program listens there" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise UseProblem(f"--host {host} --port {port}: {taken}. Give another, such as --port {port % 65535 + 1}.") from error
