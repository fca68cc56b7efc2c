"""Linear layers: delta meets the weight, total its absolute value.

Absolute weights are computed once in a call, also where a layer is used many times, and again in the next call. They are not
kept between calls: a write to ``weight.data`` leaves no trace by which a stale copy could be told, short of reading the whole
weight, which takes as long as computing it anew. Where a weight is larger than the value that it meets, its absolute value is
not even kept for the backward passes: it would need more memory than all else.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .ledger import Entry


def weighted(value: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear in the precision of the value."""
    return F.linear(value, weight.to(value.dtype), None if bias is None else bias.to(value.dtype))


SMALL = 2**16  # elements of a weight that are kept in any case


class Magnitudes:
    """The absolute weights of one call."""

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[Tensor, Tensor]] = {}

    def of(self, weight: Tensor, value: Tensor) -> tuple[Tensor, bool]:
        """The absolute weight in the precision of the value, and whether it may be kept."""
        if weight.layout is not torch.strided or weight.numel() > max(value.numel(), SMALL):
            return weight.to(value.dtype).abs(), False
        key = (weight.data_ptr(), weight.shape, weight.stride(), weight.dtype, value.dtype, weight._version)
        known = self._kept.get(key)
        if known is None:  # with the weight itself, so that no other tensor can take its place in memory
            known = self._kept[key] = (weight, weight.to(value.dtype).abs())
        return known[1], True


class Deltas:
    """The results of linear layers for delta, in order: they do not depend on c, so that passes for further c reuse them."""

    def __init__(self) -> None:
        self._known: list[tuple[Any, Tensor]] = []
        self._place = 0

    def rewind(self) -> None:
        """A new pass begins."""
        self._place = 0

    def next(self, delta: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The result of this layer, as computed now or in the first pass."""
        layer = (weight.data_ptr(), delta.shape, delta.dtype)
        if self._place < len(self._known) and self._known[self._place][0] == layer:
            result = self._known[self._place][1].detach()
        else:
            result = F.linear(delta, weight, bias)
            del self._known[self._place :]
            self._known.append((layer, result.detach()))
        self._place += 1
        return result


class Weighted(torch.autograd.Function):
    """A linear layer on delta and total at once; what its bias brought is entered in the ledger on the way back."""

    @staticmethod
    def forward(
        ctx: Any,
        delta: Tensor,
        total: Tensor,
        weight: Tensor,
        magnitudes: Magnitudes,
        entry: Entry | None,
        known: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(weight)
        magnitude, keep = magnitudes.of(weight, total)
        ctx.magnitude = magnitude if keep else None
        ctx.entry = entry
        ctx.set_materialize_grads(False)
        bias, size = (None, None) if entry is None else entry.amount
        new_delta = F.linear(delta, weight.to(delta.dtype), bias) if known is None else known.detach()
        return new_delta, F.linear(total, magnitude, size)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        if ctx.entry is not None:
            ctx.entry.enter(*gradients)
        (weight,) = ctx.saved_tensors
        from_delta, from_total = gradients
        to_delta = None if from_delta is None else from_delta @ weight.to(from_delta.dtype)
        if from_total is None:
            return to_delta, None, None, None, None, None
        magnitude = weight.to(from_total.dtype).abs() if ctx.magnitude is None else ctx.magnitude
        return to_delta, from_total @ magnitude, None, None, None, None
