"""Whether a run uses compiled kernels: decided once, before its first part, and kept in its manifest.

Kernels that are made on the way, as ``CAFE.explain`` makes them by itself, would have last digits depend on when. Making them
takes each process some seconds, which pays where there is enough to do.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import kernels

if TYPE_CHECKING:
    from ._scorer import Scorer

VARIABLE = "CAFEXAI_COMPILE"
WORDS = ("auto", "always", "never")
WORTH = 1 << 34  # elements of activations, of all rows: some ten minutes of a processor, of which kernels save a twentieth
FEW = 1 << 16  # rows for which kernels never pay
PROBE = 256  # rows of which the elements are counted; layers of less than 16 units count for nothing


def asked(word: str) -> str:
    """What the user wants; the environment variable speaks where the call does not."""
    if word not in WORDS:
        raise ValueError(f"score(..., kernels={word!r}): unknown value. Allowed values: {', '.join(map(repr, WORDS))}.")
    wanted = os.environ.get(VARIABLE, word) if word == "auto" else word
    return wanted if wanted in WORDS else "auto"


def worth_it(scorer: Scorer, table: Any, rows: int | None) -> bool:
    """Whether so many rows like the first ones of the table pay for kernels."""
    if rows is None or rows < FEW:
        return False
    few = table.take(np.arange(PROBE) % table.num_rows)
    with kernels.use_kernels("auto"), kernels.count_elements() as sizes:
        done = sum(part.scores.num_rows for part in scorer.parts(few))
    return done > 0 and sum(sizes) / done * rows >= WORTH


def for_all(word: str) -> AbstractContextManager[None]:
    """Kernels for all that is done in the block, or none."""
    check(word)
    return kernels.use_kernels(word)


def check(word: str) -> None:
    """If kernels are to be used, they can be made in this process, and have been."""
    if word == "always" and (problem := kernels.problem()) is not None:
        raise ValueError(
            f"score(..., kernels='always'): kernels cannot be made here ({problem}). Install a C++ compiler and the headers of "
            "Python, or give kernels='never'; a folder that was begun with kernels is finished with kernels."
        )
