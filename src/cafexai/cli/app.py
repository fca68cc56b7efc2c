"""The command line: ``cafexai explain``, ``report``, ``explore``, ``batch``, ``serve`` and others."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from .batch import batch
from .demo import demo
from .errors import CODES
from .explain import explain, report
from .explore import explore
from .methods import audit, compare, supported
from .monitor import app as monitor
from .serve import serve
from .study import study

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: half the time
    epilog="\b\nExit codes:\n" + "\n".join(f"  {code:<4} {meaning}" for code, meaning in CODES.items()),
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"cafexai {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from; it may stand anywhere.")] = False,
) -> None:
    """Conflict-aware explanations of models: what pushed a prediction up, what down, and what cancelled out."""


for _command in (explain, report, explore, batch, compare, audit, supported, serve, study, demo):
    app.command()(_command)
app.add_typer(monitor, name="monitor")
