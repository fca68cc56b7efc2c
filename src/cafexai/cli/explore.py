"""``cafexai explore``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..loading import DataProblem, ModelProblem, load_model, read_data
from ..loading.model_inputs import load_function, load_tokenizer
from ..loading.tables import choose_columns, list_names
from ..loading.user_code import describe_error
from . import options, parsing
from .errors import UseProblem, blame_option
from .request import read_schema
from .status import Status

Label = Annotated[str | None, typer.Option(help="The column that holds what is true; the model does not get it.")]
Second = Annotated[str | None, typer.Option(help="Further data, whose conflicts are compared with those of DATA.")]
Host = Annotated[str, typer.Option(help="The address to listen at; by default only this machine can open the page.")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="By default the first free one from 8808 on.")]
TokenFile = Annotated[
    Path | None, typer.Option(help="Keeps the token of the page for the next start, in a file that only you can read.")
]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Open no browser.")]


@options.expand
def explore(
    source: options.Source,
    *,
    label: Label = None,
    second: Second = None,
    target: options.Target = None,
    output: options.Output = None,
    how: options.How,
    host: Host = "127.0.0.1",
    port: Port = None,
    token_file: TokenFile = None,
    no_open: NoOpen = False,
) -> None:
    """Ask "why" in the browser: rows, what if, who fights whom.

    A page on this machine: sort rows by conflict, change values, compare rows and methods, take a report along.
    """
    from ..explorer import serve
    from ..explorer.serving import Explorer

    with Status().running() as status:
        given = {**vars(source), "output": output, "trust": "yes" if source.trust else None}
        known = {name: str(value) for name, value in given.items() if value is not None}
        session = _session(known, label, second, target, how, status)
        explorer = Explorer(session, host, port, token_file)
    with session.cafe.session():  # the model was loaded for the page alone: it does not change
        serve(explorer, not no_open)


def _session(
    sources: dict[str, str], label: str | None, second: str | None, target: str | None, how: options.How, status: Status
) -> Any:
    """Model and data, loaded one after the other."""
    from ..explorer.rows import Rows, table_of
    from ..explorer.session import Session

    how.one_c("the page begins with one number, and has a slider for others.")
    data = sources["data"]
    if data.endswith(".txt") and "tokenizer" not in sources:
        raise UseProblem(f"{data}: texts need the tokenizer of the model: --tokenizer FOLDER.")
    files = [data, *([second] if second is not None else [])]
    read = []
    for name in files:
        status.doing(f"reading {name}")
        read.append(read_data(name, encoding=sources.get("encoding"), what="the data"))
    if label is not None and label not in read[0].names:
        raise UseProblem(f"--label {label}: {data} has no such column; it has {list_names(read[0].names)}.")
    status.doing(f"loading {sources['model']}")
    model = load_model(sources["model"], sources.get("weights"), "trust" in sources)
    schema = None if "schema" not in sources else read_schema(Path(sources["schema"]))
    preprocess, tokenizer = load_function(sources.get("preprocess")), load_tokenizer(sources.get("tokenizer"))
    columns = parsing.names(sources.get("columns"))
    if columns is not None and read[0].form == "table":
        choose_columns(read[0].names, columns, data, "column")
    options = {"columns": columns, "label": label, "schema": schema, "preprocess": preprocess}
    read = [table_of(next(iter(one.rows.values()))) if one.form == "arrays" and len(one.rows) == 1 else one for one in read]
    rows = [Rows(model, one, **options) for one in read]
    try:
        cafe = how.explainer(model, schema=schema, tokenizer=tokenizer)
        wanted = parsing.output(target, "target", cafe.class_names)
        place = cafe.class_names.index(wanted) if wanted in cafe.class_names else wanted
        return Session(
            cafe,
            rows[0],
            second=rows[1] if second is not None else None,
            output=parsing.part(sources.get("output")),
            target=place,
            title=Path(data).name,
            second_title=Path(second or data).name,
            sources=sources,
            typical=True,  # as in cafexai explain
        )
    except DataProblem as error:
        raise DataProblem(f"{data}: {str(error).removeprefix('the data: ')}") from error
    except ValueError as error:
        raise blame_option(error, data) from error
    except (TypeError, RuntimeError, AttributeError, IndexError, KeyError) as error:
        raise ModelProblem(f"{sources['model']}: running it on {data} failed: {describe_error(error)}.") from error
