"""``cafexai serve``: scores of single rows over HTTP."""

from __future__ import annotations

import errno
import socket
from typing import Annotated

import typer

from .._extras import needs
from . import options, parsing
from .batch import Background, Baseline, Deterministic, class_names, model_of
from .errors import UseProblem
from .request import called
from .status import Status

Host = Annotated[str, typer.Option(help="Where it listens; 0.0.0.0 for everybody who can reach this machine.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="The port.")]


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
    trust: options.Trust = False,
    deterministic: Deterministic = False,
) -> None:
    """Scores of single rows over HTTP.

    POST {"rows": [...]} to /v1/explain. /health, /metrics and /openapi.json say more.
    """
    needs("starlette", "explorer")
    needs("uvicorn", "explorer")
    from ..loading import columns_of_model
    from ..serving.rows import Answerer
    from ..serving.run import serve as listen

    how.one_c("a result is about one c. Start a server for each.")
    if asked.target == "all":
        raise UseProblem("--target all: a result is about one output. Start a server for each.")
    _free(host, port)
    source = options.Source(model, background or baseline, weights, columns, schema, trust=trust)
    with Status().running() as status:
        made, known, baselines, about = model_of(source, baseline, status, background)
    request = asked.request(class_names(made, known), baselines=baselines)
    cafe = called(lambda: how.explainer(made, background=about, schema=known), model, "the settings")
    names = parsing.names(columns) or (columns_of_model(made) if known is None else None)
    answerer = Answerer(cafe, names, request, deterministic)
    typer.echo(f"cafexai: http://{host}:{port}/v1/explain takes rows; Ctrl-C ends it.", err=True)
    listen(answerer, host, port)


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
