"""Splitting the rows so that what is worked on at a time fits the cache, where that cannot change what is explained.

Rows may be split if the model treats each by itself. That is tested on all of them: every chunk of rows is explained with its
outputs held against a plain pass over *other* chunks, shifted by half, so that each row has been computed in two different
companies and at two different places. A model that mixes rows, counts them or draws random numbers for them differs, and is
then explained in one piece, as are calls with further arguments that might belong to the rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .activation import LARGE
from .forward import plain_output
from .request import Batch, Request
from .subject import Subject

SHARES = 2**24  # numbers that all contributions to a value have at most
WORTH = 2**14  # elements of input below which nobody asks how large the values inside are


class _Widest(TorchFunctionMode):
    """Remembers the largest result of any call."""

    size = 1

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.size = max(self.size, result.numel())
        return result


def rows_at_a_time(subject: Subject, first: Callable[[], Batch], tensors: tuple[Tensor, ...], request: Request) -> int:
    """How many rows to explain at once; all of them if they cannot be split. ``first`` gives the first row alone."""
    rows = len(tensors[0])
    carried = 1 if request.latent else request.carried([x.shape[1:] for x in tensors])
    if request.latent or request.check == "each" or carried * sum(x.numel() for x in tensors) < WORTH:
        return rows
    one, plain_arguments = first(), (type(None), bool, int, float, str, torch.dtype)
    if not all(isinstance(part, plain_arguments) for part in (*one.extra, *one.options.values())):
        return rows
    widest = _Widest()
    try:
        with widest:
            plain_output(subject, one, request)
    except Exception:  # a model that does not take a single row, or that cannot be explained at all, which will be said
        return rows
    pieces = -(-rows * widest.size * carried // (LARGE if carried == 1 else SHARES))
    return rows if pieces < 2 else max(2, -(-rows // pieces))


def plain_outputs(plain: Callable[[slice], Tensor], chunks: list[slice]) -> Iterator[Tensor]:
    """The outputs of each chunk of rows from plain passes over chunks that are shifted by half."""
    edges = [0, *((chunk.start + chunk.stop) // 2 for chunk in chunks), chunks[-1].stop]
    ahead = itertools.pairwise(edges)
    known: list[Tensor] = []
    for chunk in chunks:
        while sum(map(len, known)) < chunk.stop - chunk.start:
            start, stop = next(ahead)
            known.append(plain(slice(start, stop)))
        joined = torch.cat(known)
        yield joined[: chunk.stop - chunk.start]
        known = [joined[chunk.stop - chunk.start :]]
