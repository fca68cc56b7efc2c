"""``cafexai serve``: scores of single rows over HTTP."""

from __future__ import annotations

import errno
import socket
from typing import Annotated, Any

import typer

from .._extras import needs
from . import options, parsing
from .batch import Background, Baseline, Deterministic, model_of
from .errors import UseProblem
from .request import Request, called
from .status import Status

Host = Annotated[str, typer.Option(help="Where it listens; 0.0.0.0 for everybody who can reach this machine.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="The port.")]


def serve(
    model: options.Model,
    weights: options.Weights = None,
    schema: options.SchemaFile = None,
    columns: options.Columns = None,
    target: options.Target = None,
    against: options.Against = None,
    output: options.Output = None,
    baseline: Baseline = "zero",
    background: Background = None,
    c: options.Sensitivity = "0.5",
    netting: options.Netting = None,
    flows: options.Flows = None,
    biases: options.Biases = None,
    norms: options.Norms = None,
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
    from ..cafe import CAFE
    from ..loading import columns_of_model
    from ..serving.rows import Answerer
    from ..serving.run import serve as listen

    sensitivity = parsing.sensitivity(c)
    if isinstance(sensitivity, list) or target == "all":
        raise UseProblem("serve: a result is about one output and one c. Start a server for each.")
    _free(host, port)
    request = Request(model, background or baseline, weights, trust, schema, columns, baseline=baseline, c=c, output=output)
    with Status().running() as status:
        made, known, baselines, about = model_of(request, status, background)
    classes = tuple(known.classes if known is not None else getattr(made, "class_names", None) or ())
    asked = {
        "target": parsing.output(target, "target", classes),
        "against": parsing.output(against, "against", classes),
        "output": parsing.part(output),
    }
    settings: dict[str, Any] = {"flows": flows, "biases": biases, "norms": norms, "background": about, "schema": known}
    cafe = called(lambda: CAFE(made, sensitivity, netting, **settings), model, "the settings")
    names = parsing.names(columns) or (columns_of_model(made) if known is None else None)
    known_options = {name: value for name, value in asked.items() if value is not None}
    answerer = Answerer(cafe, names, baselines, known_options, deterministic)
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
