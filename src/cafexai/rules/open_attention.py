"""Open attention in one step: the patterns of weights are computed again where they are needed, a chunk at a time.

With O = P V, bars for the mean of input and reference, and l the logarithmic mean of both patterns (``softmax.py``), the change
is

    dO = P_bar dV + dP V_bar,    dP = l (dL - sum l dL / sum l),    dL = scale (dQ K_bar' + Q_bar dK').

A stored pattern has (heads x queries x keys) elements in each layer. Here only queries, keys and values are kept, at both ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._core.value import Scores

BLOCK = 2**17  # elements of a pattern that are held at once, so that they stay in the cache


@dataclass(frozen=True)
class Attention:
    """Queries, keys and values at the reference, what they change by (None: nothing), and how they meet."""

    starts: tuple[Tensor, ...]
    changes: tuple[Tensor | None, ...]
    mask: Tensor | None  # added to the logits
    causal: bool
    scale: float

    @classmethod
    def of(cls, parts: Sequence[Any], mask: Tensor | None, causal: bool, scale: float) -> Attention:
        """Of queries, keys and values, of which some are scored."""
        starts = tuple(part.start if isinstance(part, Scores) else part for part in parts)
        changes = tuple(part.delta.detach() if isinstance(part, Scores) else None for part in parts)
        return cls(starts, changes, mask, causal, scale)

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All that is kept."""
        return (*self.starts, *self.changes, self.mask)

    def outputs(self) -> tuple[Tensor, Tensor]:
        """What attention gives at the reference, and by how much it changes."""
        output, starts = self._output(*self._inputs()), self._starts()
        start = self._output(*starts).expand_as(output)
        return start, output - start

    def _output(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        mask, causal = self.mask, self.causal
        if causal and mask is not None:
            mask, causal = mask + later_keys(query.shape[-2], key.shape[-2], 0, query), False
        found = F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, scale=self.scale)
        return found.nan_to_num_(0)

    def _starts(self) -> tuple[Tensor, ...]:
        """Queries, keys and values at the reference, once if they are the same in all rows."""
        same = all(one.ndim > 2 and one.stride(0) == 0 for one in self.starts)
        mask = self.mask is None or self.mask.ndim < self.starts[0].ndim or self.mask.shape[0] == 1
        return tuple(one[:1] for one in self.starts) if same and mask else self.starts

    def pull(self, gradient: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
        """What flows back to queries, keys and values."""
        parts, (queries, keys, values) = self._inputs(), self._means()
        found = [torch.zeros_like(part) if want else None for part, want in zip(parts, wanted, strict=True)]
        to_query, to_key, to_value = found
        scale = 2 * self.scale  # patterns are summed, not averaged, so half of the gradient is taken
        gradient, queries, keys = gradient * 0.5, queries * scale, keys * scale
        for heads, place, pattern, secant in self._patterns(*parts[:2]):
            here = _cut(gradient, heads, place)
            if to_value is not None:
                _cut(to_value, heads).add_(pattern.mT @ here)
            if to_query is None and to_key is None:
                continue
            to_logits = _along(here @ _cut(values, heads).mT, secant)
            if to_query is not None:
                to_query[..., heads, place, :] = to_logits @ _cut(keys, heads)
            if to_key is not None:
                _cut(to_key, heads).add_(to_logits.mT @ _cut(queries, heads, place))
        return found

    def push(self, *changes: Tensor | None) -> Tensor:
        """What any changes of queries, keys and values bring about; further dimensions may stand in front."""
        query, key, _ = self._inputs()
        queries, keys, values = self._means()
        of_query, of_key, of_value = changes
        parts: dict[int, list[Tensor]] = {}
        for heads, place, pattern, secant in self._patterns(query, key):
            logits: Any = 0
            if of_query is not None:
                logits = _cut(of_query, heads, place) @ _cut(keys, heads).mT
            if of_key is not None:
                logits = logits + _cut(queries, heads, place) @ _cut(of_key, heads).mT
            result: Any = 0 if isinstance(logits, int) else _along(logits.mul_(2 * self.scale), secant) @ _cut(values, heads)
            if of_value is not None:
                result = result + pattern @ _cut(of_value, heads)
            parts.setdefault(heads.start, []).append(result)
        return torch.cat([torch.cat(some, -2) for some in parts.values()], -3).mul_(0.5)

    def _inputs(self) -> tuple[Tensor, ...]:
        return tuple(map(_at_input, self.starts, self.changes))

    def _means(self) -> tuple[Tensor, ...]:
        return tuple(_at_input(start, change, 0.5) for start, change in zip(self.starts, self.changes, strict=True))

    def _patterns(self, query: Tensor, key: Tensor) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
        """Some heads and queries at a time: the sum of both patterns, and their logarithmic mean."""
        start, start_key, _ = self._starts()
        keys, start_keys = key.mT * self.scale, start_key.mT * self.scale
        for heads, place in _chunks(query, key):
            here, there = _cut(query, heads, place) @ _cut(keys, heads), _cut(start, heads, place) @ _cut(start_keys, heads)
            apart, mask = here - there, self._mask(heads, place, here)
            (now, whole), (then, whole_then) = (_softmax(logits, mask) for logits in (here, there))
            apart = apart.add_(whole_then - whole).abs_().neg_()  # -|log P - log P_r|
            larger = torch.maximum(now, then)
            both = now + then if then.shape != now.shape else now.add_(then)
            # no difference of close numbers, nor log of 0
            yield heads, place, both, torch.expm1(apart).div_(apart).nan_to_num_(1).mul_(larger)

    def _mask(self, heads: slice, place: slice, logits: Tensor) -> Tensor | None:
        mask = self.mask
        if mask is not None and mask.ndim > 2 and mask.shape[-3] > 1:
            mask = mask[..., heads, :, :]
        if mask is not None and mask.ndim > 1 and mask.shape[-2] > 1:
            mask = mask[..., place, :]
        if self.causal:
            later = later_keys(logits.shape[-2], logits.shape[-1], place.start, logits)
            mask = later if mask is None else mask + later
        return mask


def _chunks(query: Tensor, key: Tensor) -> Iterator[tuple[slice, slice]]:
    """Heads and queries whose pattern has at most ``BLOCK`` elements, if one query of one head has."""
    heads, queries = query.shape[-3:-1]
    one_query = max(1, query[..., 0, 0, 0].numel() * key.shape[-2])
    some_queries = max(1, min(queries, BLOCK // one_query))
    some_heads = max(1, BLOCK // (one_query * some_queries))
    for head in range(0, heads, some_heads):
        for first in range(0, queries, some_queries):
            yield slice(head, min(heads, head + some_heads)), slice(first, min(queries, first + some_queries))


def _cut(x: Tensor, heads: slice, place: slice | None = None) -> Tensor:
    """The part of some heads and places; one head for all stays."""
    x = x if x.shape[-3] == 1 else x[..., heads, :, :]
    return x if place is None else x[..., place, :]


def _softmax(logits: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The weights, and the logarithm of what exponentials were divided by; 0 in a row without any key."""
    if mask is None:
        weights = torch.softmax(logits, -1)
        return weights, logits.amax(-1, keepdim=True).sub_(weights.amax(-1, keepdim=True).log_())
    logits = logits + mask
    weights = torch.softmax(logits, -1).nan_to_num_(0)
    return weights, logits.amax(-1, keepdim=True).sub_(weights.amax(-1, keepdim=True).log_()).nan_to_num_(0, 0, 0)


def _at_input(start: Tensor, change: Tensor | None, share: float = 1) -> Tensor:
    return start if change is None else torch.add(start, change, alpha=share)


def _along(v: Tensor, secant: Tensor) -> Tensor:
    """The secant of the softmax, which is its own transpose: l (v - sum l v / sum l)."""
    total = secant.sum(-1, keepdim=True)
    total.masked_fill_(total == 0, 1)
    v = v.mul_(secant) if v.shape == secant.shape else v * secant
    return v.addcmul_(secant, v.sum(-1, keepdim=True).div_(total), value=-1)


def later_keys(queries: int, keys: int, first: int, like: Tensor) -> Tensor:
    """Minus infinity where a key stands behind its query."""
    return torch.full((queries, keys), -torch.inf, dtype=like.dtype, device=like.device).triu_(1 + first)
