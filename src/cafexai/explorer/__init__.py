"""The explorer: ask a model "why" in the browser."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..cafe import CAFE
from ..errors import warn
from ..loading.file_errors import DataProblem
from .rows import Rows, table_of
from .serving import HOST, Explorer
from .session import Session

__all__ = ["Explorer", "explore"]


def explore(
    cafe: CAFE,
    data: Any,
    *,
    label: str | None = None,
    second: Any = None,
    columns: Sequence[str] | None = None,
    tokenizer: Any = None,
    preprocess: Any = None,
    output: Any = None,
    title: str = "data",
    host: str = HOST,
    port: int | None = None,
    token_file: str | os.PathLike[str] | None = None,
    open_browser: bool = True,
    block: bool = True,
) -> Explorer:
    """Open a page on this machine that explains rows of the data: a frame, an array or tensor, a list of texts or pictures.

    ``label``: the column of a frame that holds what is true. ``columns``: those that the model takes, if not all others.
    ``second``: further data, whose conflicts are compared. ``title``: what the data are called. Only this machine can open the
    page, with a token that is new at each start (``token_file`` keeps it); ``host`` names another address to listen at. With
    ``block=False`` the call returns while the page is served, until ``close()``.
    """
    if not isinstance(cafe, CAFE):
        raise ValueError(f"explore({type(cafe).__name__}, ...): give the explainer: explore(CAFE(model), data).")

    for name, value in (("tokenizer", tokenizer), ("preprocess", preprocess)):
        if value is not None:
            warn(
                f"explore(..., {name}=...) is deprecated and goes in 0.3. Write explore(CAFE(model, {name}=...), data).",
                DeprecationWarning,
            )
            cafe = cafe.replace(**{name: value})

    def rows(values: Any) -> Rows:
        return Rows(cafe.model, table_of(values), columns=columns, label=label, schema=cafe.schema, preprocess=cafe.preprocess)

    own = rows(data)
    if label is not None and label not in own.data.names:
        raise ValueError(f"explore(..., label={label!r}): there is no such column; there are {', '.join(own.data.names[:20])}.")
    try:
        session = Session(cafe, own, second=None if second is None else rows(second), output=output, title=title)
    except DataProblem as error:
        raise ValueError(f"explore(cafe, data): {error}") from error
    explorer = Explorer(session, host, port, token_file)
    serve(explorer, open_browser, block)
    return explorer


def serve(explorer: Explorer, open_browser: bool, block: bool = True) -> None:
    """Say where it is, show it, and wait for its end if wanted."""

    def say() -> None:
        print(f"The explorer is at {explorer.url}", flush=True)
        if block:
            print("Ctrl-C ends it.", flush=True)
        if open_browser:
            explorer.open()

    if block:
        explorer.run(say)
    else:
        explorer.start()
        say()
