"""Moves of elements: the constants among what is moved, and moves of lazy values, which stay lazy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .contract import Move
from .provenance import join_exponentials, same_exponentials
from .run import Run


def at_start(part: Any, biases_in_reference: bool) -> Tensor:
    """What a part of a join brings to the reference."""
    if not isinstance(part, Tensor):
        return part.start
    return part if biases_in_reference else torch.zeros_like(part)


def join_constants(fn: Move, parts: Sequence[Any], like: Tensor, single: bool) -> Callable[[int], Tensor]:
    """The constants among the parts in each result of a move, made when they are first needed: they are as large as that."""
    kept = [part.clone() if isinstance(part, Tensor) else part.shape for part in parts]  # the model may write to its own later

    @functools.cache
    def constant(place: int) -> Tensor:
        joined = fn(*[like.new_zeros(part) if isinstance(part, torch.Size) else part for part in kept])
        return joined if single else joined[place]

    return constant


def join_lazily(join: Callable[..., Any], run: Run, fn: Move, parts: Sequence[Any], aligned: bool) -> Any:
    """A move of elements of lazy values and constants stays lazy, if it has one result; else None."""
    if not all(part.pending for part in parts if not isinstance(part, Tensor)):
        return None
    pending = [part for part in parts if not isinstance(part, Tensor)]
    if len(parts) == 1 and pending[0].columns is not None:
        cut = _columns(pending[0], fn)
        if cut is not None:
            return cut
    values = fn(*[part if isinstance(part, Tensor) else part.value for part in parts])
    records = [part.made_by for part in pending]
    single, same = isinstance(values, Tensor), same_exponentials(records)
    if not single and not same:
        return None

    @functools.cache
    def compute() -> Any:
        full = [part if isinstance(part, Tensor) else part.full() for part in parts]
        return join(run.settings.carrier, run, fn, full, aligned)

    firm = any(part.firm for part in pending)
    results = []
    for place, value in enumerate([values] if single else values):
        making = compute if single else functools.partial(lambda place: compute()[place], place)
        results.append(type(pending[0])(run, value, making, firm))
        results[-1].made_by = join_exponentials(records, fn, parts, None if single else place) if same else None
    return results[0] if single else tuple(results)


def _columns(layer: Any, fn: Move) -> Any:
    """The result of a move that cuts the output of a linear layer into pieces of its columns; None if it does not."""
    index = torch.arange(layer.shape[-1], device=layer.template.device).expand(layer.shape)
    try:
        moved = fn(index)
    except RuntimeError:  # a view that joins dimensions, of which columns without memory for each row have none
        return None
    parts = []
    for part in [moved] if isinstance(moved, Tensor) else moved:
        same = part.untyped_storage().data_ptr() == index.untyped_storage().data_ptr()
        if not same or part.shape[:-1] != index.shape[:-1] or part.stride() != index.stride() or part.shape == index.shape:
            return None
        parts.append(layer.columns(slice(part.storage_offset(), part.storage_offset() + part.shape[-1])))
        parts[-1]._path = layer._path
    return parts[0] if isinstance(moved, Tensor) else tuple(parts)
