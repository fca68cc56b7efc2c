"""Which row of the batch each element of a value belongs to.

The ledger of the biases is kept per row, also where a model has moved the batch to another dimension or folded it
into one. ``None`` is the usual layout (dimension 0 is the batch); else an integer tensor that broadcasts to the value,
rows counted from 1 and 0 where unknown; ``MIXED`` where one element depends on several rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from .math_functions import ONE_TO_ONE


class _Mixed:
    def __repr__(self) -> str:
        return "MIXED"


MIXED: Final = _Mixed()
UNKNOWN: Final = torch.zeros((), dtype=torch.int32)
Rows = Tensor | None | _Mixed


def spread(rows: Rows, shape: Sequence[int], batch: int, device: torch.device) -> Tensor:
    """The row of every element, as a view without memory of its own where that is possible."""
    if isinstance(rows, Tensor):
        return rows.to(device).expand(shape)
    if rows is None:
        index = torch.arange(1, batch + 1, dtype=torch.int32, device=device)
        return index.view(-1, *(1,) * (len(shape) - 1)).expand(shape)
    return torch.zeros((), dtype=torch.int32, device=device).expand(shape)


def settle(index: Tensor, batch: int) -> Rows:
    """The shortest form of a full index; elements of unknown row take that of their slice where it is unique."""
    if not index.numel():
        return UNKNOWN
    index = index.to(torch.int32)
    for dim, stride in enumerate(index.stride()):
        if stride == 0 and index.shape[dim] > 1:
            index = index.narrow(dim, 0, 1)
    if index.numel() > batch or not bool(index.all()):
        for dim in range(index.ndim):
            others = tuple(d for d in range(index.ndim) if d != dim)
            slices = index.amax(others, keepdim=True) if others else index
            if bool(((index == slices) | (index == 0)).all()):
                index = slices
                break
    if index.ndim and index.shape[0] == batch == index.numel():
        if torch.equal(index.flatten(), torch.arange(1, batch + 1, dtype=index.dtype, device=index.device)):
            return None
    return index


def move_rows(fn: Callable[..., Any], parts: Sequence[tuple[Rows, Tensor]], batch: int) -> list[Rows]:
    """The rows after an operation that only moves elements; one entry for each of its results."""
    if any(rows is MIXED for rows, _ in parts):
        result = fn(*[value for _, value in parts])
        return [MIXED] * (1 if isinstance(result, Tensor) else len(result))
    full = [spread(rows, value.shape, batch, value.device) for rows, value in parts]
    try:
        result = fn(*full)
    except (RuntimeError, NotImplementedError):  # not for integers, or not without memory of its own
        result = fn(*[index.float().contiguous() for index in full])
    return [settle(index, batch) for index in ([result] if isinstance(result, Tensor) else result)]


def average_rows(fn: Callable[[Tensor], Tensor], rows: Rows, value: Tensor, batch: int) -> Rows:
    """The rows after a linear operation given as an average or sum of elements; MIXED if it joins several rows."""
    if rows is MIXED:
        return MIXED
    index = spread(rows, value.shape, batch, value.device).to(value.dtype)
    count = fn(torch.ones_like(index)).clamp_min(1e-30)
    mean = fn(index) / count
    square = fn(index * index) / count
    if bool(((square - mean * mean).abs() > 1e-4 + 1e-5 * square).any()):
        return MIXED
    return settle(mean.round().to(torch.int32), batch)


def merge_rows(first: tuple[Rows, Tensor], second: tuple[Rows, Tensor], batch: int) -> Rows:
    """The rows of two values combined element by element, broadcasting; MIXED if they disagree."""
    (rows, value), (other_rows, other) = first, second
    if rows is MIXED or other_rows is MIXED:
        return MIXED
    if rows is None and other_rows is None and value.ndim == other.ndim:
        return None
    one = spread(rows, value.shape, batch, value.device)
    two = spread(other_rows, other.shape, batch, other.device)
    if bool(((one != two) & (one > 0) & (two > 0)).any()):
        return MIXED
    return settle(torch.maximum(one, two), batch)


def common_rows(rows: Sequence[Rows], batch: int) -> Rows:
    """The rows of all of several values that dimension 0 tells; MIXED if they differ, or if it does not."""
    first = rows[0]
    if batch == 1 or all(one is None for one in rows):
        return None
    for one in rows:
        if not isinstance(one, Tensor) or not one.ndim or one.shape[0] != one.numel():
            return MIXED
        if not isinstance(first, Tensor) or not torch.equal(one.flatten(), first.flatten()):
            return MIXED
    return first


def behind_map(
    value: Any, fn: Callable[..., Tensor], constants: tuple[Any, ...], bias: Any, aligned: bool, out: Tensor
) -> Rows:
    """The rows of a scored value behind a linear map, ``fn(value, *constants, bias)``, which gave ``out``."""
    rows, batch = value.rows, value.run.batch
    if batch == 1:
        return None
    if aligned:
        if rows is None and out.ndim and out.shape[0] == batch:
            return None
        if isinstance(rows, Tensor) and rows.ndim == out.ndim > 0 and rows.shape[0] == out.shape[0]:
            if rows.shape[0] == rows.numel():
                return rows
    ones = [torch.ones_like(c) if isinstance(c, Tensor) else 1 for c in constants]
    if bias is None:
        return average_rows(lambda v: fn(v, *ones), rows, value.delta, batch)
    nothing = torch.zeros_like(bias)
    return average_rows(lambda v: fn(v, *ones, nothing), rows, value.delta, batch)


def behind_product(one: Any, two: Any, fn: Callable[[Tensor, Tensor], Tensor], out: Tensor, aligned: bool = False) -> Rows:
    """The rows of a bilinear map of two scored values; ``aligned``: dimension 0 of both, row by row, stays the first."""
    batch = one.run.batch
    if batch == 1 or _row_by_row(one, two, fn, out, aligned):
        return None
    ones = [torch.ones_like(value.delta) for value in (one, two)]
    mine = average_rows(lambda v: fn(v, ones[1]), one.rows, one.delta, batch)
    yours = average_rows(lambda v: fn(ones[0], v), two.rows, two.delta, batch)
    return merge_rows((mine, out), (yours, out), batch)


def _row_by_row(one: Any, two: Any, fn: Callable[..., Tensor], out: Tensor, aligned: bool) -> bool:
    """Whether rows are where they usually are, in both values and in their product."""
    if one.rows is not None or two.rows is not None or out.shape[:1] != (one.run.batch,):
        return False
    return aligned or (fn in ONE_TO_ONE and one.delta.ndim == two.delta.ndim == out.ndim)
