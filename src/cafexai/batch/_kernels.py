"""Whether a run uses compiled kernels: decided once, before its first part, and kept in its manifest.

Kernels that are made on the way, as ``CAFE.explain`` makes them by itself, would have last digits depend on when. Making them
takes each process some seconds, which pays where there is enough to do.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._scores import kernels

if TYPE_CHECKING:
    from ._scorer import Scorer

VARIABLE = "CAFEXAI_COMPILE"
WORDS = ("auto", "always", "never")
WORTH = 1 << 32  # elements of activations, of all rows: some minutes of work, of which kernels save a twentieth and more
FEW = 1 << 16  # rows for which nobody need look
PROBE = 256  # rows of which the elements are counted


def asked(word: str) -> str:
    """What the user wants; the environment variable speaks where the call does not."""
    wanted = os.environ.get(VARIABLE, word) if word == "auto" else word
    if wanted not in WORDS:
        given = f"score(..., kernels={word!r})" if wanted == word else f"{VARIABLE}={wanted}"
        raise ValueError(f"{given}: the words are {', '.join(map(repr, WORDS))}.")
    return wanted


def worth_it(scorer: Scorer, table: Any, rows: int | None) -> bool:
    """Whether so many rows like those of the table pay for kernels; it depends on nothing but them and the model."""
    if rows is None or rows < FEW:
        return False
    with used("auto"):
        before = kernels.work()
        for _ in scorer.parts(table.slice(0, PROBE)):
            pass
        return (kernels.work() - before) / min(PROBE, table.num_rows) * rows >= WORTH


@contextlib.contextmanager
def used(word: str) -> Iterator[None]:
    """Kernels always, never, or by themselves, within the block."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = word
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def check(word: str) -> None:
    """If kernels are to be used, they can be made in this process."""
    if word == "always" and (problem := kernels.problem()) is not None:
        raise ValueError(
            f"score(..., kernels='always'): kernels cannot be made here ({problem}). Install a C++ compiler and the headers of "
            "Python, or give kernels='never'; a folder that was begun with kernels is finished with kernels."
        )
