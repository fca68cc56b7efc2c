"""Packed sequences: the steps of all sequences one after the other, of which the longest come first in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._core.value import Scores
from .._torch import pack_padded_sequence, pad_packed_sequence
from .registry import plain_function, rule
from .shape import move


@rule("_pack_padded_sequence", in_place=False)
def pack(x: Scores, lengths: Tensor, batch_first: bool) -> Any:
    """A move: the steps that are no padding, with the number of sequences at each step."""
    places = torch.arange(x.shape[0] * x.shape[1]).view(x.shape[:2])
    index, sizes = pack_padded_sequence(places, lengths, batch_first)
    index = index.to(x.template.device)
    return x.reshape(lambda v: v.flatten(0, 1)[index]), sizes


@rule("_pad_packed_sequence", in_place=False)
def unpack(x: Scores, sizes: Tensor, batch_first: bool, padding_value: Any, total_length: int) -> Any:
    """A move back, with a constant where there is nothing."""
    index, lengths = pad_packed_sequence(torch.arange(1, x.shape[0] + 1), sizes, batch_first, 0, total_length)
    index = index.to(x.template.device)
    result = x.reshape(lambda v: torch.cat([v.new_zeros(1, *v.shape[1:]), v])[index])
    if padding_value:
        empty = (index == 0).view(*index.shape, *(1,) * (x.ndim - 1))
        result = result.add_constant(empty.to(x.template.dtype).expand(result.shape) * padding_value)
    return result, lengths


def stepwise(x: Any, start: tuple[Any, ...], step: Callable[..., Any], sizes: list[int], backwards: bool) -> tuple[Any, Any]:
    """One direction of one recurrent layer: sequences that have ended keep their state, others begin with their own."""
    state, begun, outputs = start, 0, []
    for time in reversed(range(len(sizes))) if backwards else range(len(sizes)):
        first, size = sum(sizes[:time]), sizes[time]
        parts, going = [], min(begun, size)
        if going:
            parts.append(step(_rows(x, first, first + going), _all_rows(state, 0, going)))
        if size > begun:
            parts.append(step(_rows(x, first + begun, first + size), _all_rows(start, begun, size)))
        new = tuple(_in_a_row(list(same)) for same in zip(*parts, strict=True))
        outputs.append(new[0])
        ended = [_all_rows(state, size, begun)] if begun > size else []
        state = tuple(_in_a_row(list(same)) for same in zip(new, *ended, strict=True))
        begun = max(begun, size)
    return _in_a_row(outputs[::-1] if backwards else outputs), state


def _rows(x: Any, start: int, end: int) -> Any:
    return move(x, lambda v: v[start:end])


def _all_rows(state: tuple[Any, ...], start: int, end: int) -> tuple[Any, ...]:
    return tuple(_rows(part, start, end) for part in state)


def _in_a_row(parts: list[Any]) -> Any:
    first = next((part for part in parts if isinstance(part, Scores)), None)
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if first is None else first.join(first.run, lambda *tensors: torch.cat(tensors), parts)


@rule("pad_sequence", in_place=False)
def padded(sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right") -> Any:
    """Sequences of different lengths side by side, with a constant where there is nothing."""
    scored = next(part for part in sequences if isinstance(part, Scores))
    pad = plain_function("pad_sequence")
    result = scored.join(scored.run, lambda *parts: pad(list(parts), batch_first, 0.0, padding_side), list(sequences))
    if padding_value:
        nothing = [scored.template.new_zeros(part.shape) for part in sequences]
        result = result.add_constant(pad(nothing, batch_first, padding_value, padding_side))
    return result
