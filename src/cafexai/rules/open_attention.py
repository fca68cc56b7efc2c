"""Open attention in one step: the patterns of weights are computed again where they are needed, some queries at a time.

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

BLOCK = 2**19  # elements of a pattern that are held at once: most stay in the cache


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
        (query, key, value), (queries, keys, values) = self._inputs(), self._means()
        found = [torch.zeros_like(part) if want else None for part, want in zip((query, key, value), wanted, strict=True)]
        for place, pattern, secant in self._patterns(query, key):
            here = gradient[..., place, :]
            if found[2] is not None:
                found[2] += pattern.mT @ here
            if found[0] is None and found[1] is None:
                continue
            to_logits = _along(here @ values.mT, secant).mul_(self.scale)
            if found[0] is not None:
                found[0][..., place, :] = to_logits @ keys
            if found[1] is not None:
                found[1] += to_logits.mT @ queries[..., place, :]
        return found

    def push(self, *changes: Tensor | None) -> Tensor:
        """What any changes of queries, keys and values bring about; further dimensions may stand in front."""
        query, key, _ = self._inputs()
        queries, keys, values = self._means()
        of_query, of_key, of_value = changes
        parts = []
        for place, pattern, secant in self._patterns(query, key):
            logits: Any = 0
            if of_query is not None:
                logits = of_query[..., place, :] @ keys.mT
            if of_key is not None:
                logits = logits + queries[..., place, :] @ of_key.mT
            result: Any = 0 if isinstance(logits, int) else _along(logits.mul_(self.scale), secant) @ values
            parts.append(result if of_value is None else result + pattern @ of_value)
        return torch.cat(parts, -2)

    def _inputs(self) -> tuple[Tensor, ...]:
        return tuple(map(_at_input, self.starts, self.changes))

    def _means(self) -> tuple[Tensor, ...]:
        return tuple(_at_input(start, change, 0.5) for start, change in zip(self.starts, self.changes, strict=True))

    def _patterns(self, query: Tensor, key: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Some queries at a time: the mean of both patterns, and their logarithmic mean."""
        count, tiny = key.shape[-2], torch.finfo(query.dtype).tiny ** 0.5
        at_once = max(1, BLOCK // max(1, query[..., 0, 0].numel() * count))
        start, start_key, _ = self._starts()
        keys = key.mT * self.scale, start_key.mT * self.scale
        for first in range(0, query.shape[-2], at_once):
            place = slice(first, first + at_once)
            here, there = query[..., place, :] @ keys[0], start[..., place, :] @ keys[1]
            half = here - there
            mask = self._mask(place, here)
            patterns = []
            for sign, logits in ((-1, here), (1, there)):
                logits = logits if mask is None else logits + mask
                whole = logits.logsumexp(-1, keepdim=True)
                whole.masked_fill_(whole == -torch.inf, 0)  # a row without any key has weights of 0
                half.add_(whole, alpha=sign)
                patterns.append(logits.sub_(whole).exp_())
            pattern = patterns[0].add_(patterns[1]).mul_(0.5)
            half.mul_(0.5).abs_().clamp_min_(tiny)
            # (P - P_r) / (P + P_r) = tanh((log P - log P_r) / 2): no difference of close numbers, nor log of 0
            yield place, pattern, torch.tanh(half).div_(half).mul_(pattern)

    def _mask(self, place: slice, logits: Tensor) -> Tensor | None:
        mask = self.mask
        if mask is not None and mask.ndim > 1 and mask.shape[-2] > 1:
            mask = mask[..., place, :]
        if self.causal:
            later = later_keys(logits.shape[-2], logits.shape[-1], place.start, logits)
            mask = later if mask is None else mask + later
        return mask


def _at_input(start: Tensor, change: Tensor | None, share: float = 1) -> Tensor:
    return start if change is None else torch.add(start, change, alpha=share)


def _along(v: Tensor, secant: Tensor) -> Tensor:
    """The secant of the softmax, which is its own transpose: l (v - sum l v / sum l)."""
    total = secant.sum(-1, keepdim=True)
    total = total.masked_fill_(total == 0, 1)
    v = v * secant
    return v.addcmul_(secant, v.sum(-1, keepdim=True).div_(total), value=-1)


def later_keys(queries: int, keys: int, first: int, like: Tensor) -> Tensor:
    """Minus infinity where a key stands behind its query."""
    return torch.full((queries, keys), -torch.inf, dtype=like.dtype, device=like.device).triu_(1 + first)
