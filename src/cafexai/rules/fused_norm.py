"""Layer and RMS norms in one step: the quotient in halves (``norms.py``) from what torch's own kernels give at both ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from .._core.math_functions import over_rows
from .._core.value import Scores


@dataclass(frozen=True)
class NormStep:
    """A value at the reference, its change, and the norm over its last ``count`` dimensions, less its mean if ``centre``."""

    start: Tensor
    change: Tensor
    count: int
    eps: float
    centre: bool
    weight: Tensor | None
    bias: Tensor | None

    @classmethod
    def of(cls, x: Scores, count: int, eps: float, centre: bool, weight: Any, bias: Any) -> NormStep:
        """Of a scored value."""
        like = x.template.dtype
        weight, bias = (None if part is None else part.detach().to(like) for part in (weight, bias))
        return cls(x.start, x.delta.detach(), count, eps, centre, weight, bias)

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All that is kept."""
        return self.start, self.change, self.weight

    def outputs(self) -> tuple[Tensor, Tensor]:
        """The norm at the reference, and its change."""
        start = over_rows(self._normalise, self.start)
        return start, self._normalise(self.start + self.change) - start

    def _normalise(self, v: Tensor) -> Tensor:
        shape = v.shape[v.ndim - self.count :]
        if self.centre:
            return F.layer_norm(v, shape, self.weight, self.bias, self.eps)
        return F.rms_norm(v, shape, self.weight, self.eps)

    def pull(self, gradient: Tensor, wanted: Sequence[bool]) -> tuple[Tensor]:
        """What flows back to the value."""
        middle, along, against, dims = self._constants()
        gradient = gradient if self.weight is None else gradient * self.weight
        result = gradient * along
        if self.centre:
            result -= result.mean(dims, keepdim=True)
        return (result.addcmul_(middle, (gradient * against).mean(dims, keepdim=True), value=-1),)

    def push(self, *changes: Tensor | None) -> Tensor:
        """What another change of the value brings about."""
        (change,) = changes
        assert change is not None
        middle, along, against, dims = self._constants()
        inner = (middle * change).mean(dims, keepdim=True)
        change = change - change.mean(dims, keepdim=True) if self.centre else change
        result = (change * along).addcmul_(against, inner, value=-1)
        return result if self.weight is None else result * self.weight

    def _constants(self) -> tuple[Tensor, Tensor, Tensor, tuple[int, ...]]:
        """m_bar, 1 / sigma_bar and n_bar / sigma_bar ** 2, and the dimensions of the norm."""
        dims = tuple(range(-self.count, 0))
        here, there = self.start + self.change, self.start
        if self.centre:
            here, there = (v - v.mean(dims, keepdim=True) for v in (here, there))
        deviations = [(v.square().mean(dims, keepdim=True) + self.eps).sqrt() for v in (here, there)]
        along = 2 / (deviations[0] + deviations[1])
        halves = [along.square() / (2 * deviation) for deviation in deviations]
        return (here + there) / 2, along, here * halves[0] + there * halves[1], dims
