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
    """Open a page on this machine that explains rows of the data.

    Only this machine can open the page, with a token that is new at each start.

    Args:
        cafe: The explainer.
        data: A frame, an array or tensor, or a list of texts or pictures.
        label: The column of a frame that holds the true class or value.
        second: Further data, whose conflicts are compared.
        columns: The columns that the model takes, if not all others.
        tokenizer: Deprecated: give it to ``CAFE``.
        preprocess: Deprecated: give it to ``CAFE``.
        output: Which part of the model's output is meant, as in ``CAFE.explain``.
        title: A name for the data.
        host: The address to listen at.
        port: The port; None takes a free one.
        token_file: Keep the token in this file.
        open_browser: Show the page in the browser.
        block: Return when the page is closed; False returns while it is served, until ``close()``.

    Returns:
        The running explorer.

    Raises:
        ValueError: The data do not fit the model, or an argument is not allowed.
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
