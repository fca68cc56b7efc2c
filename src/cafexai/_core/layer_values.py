"""What linear layers and convolutions gave in a plain run of the model, so that an explained pass need not multiply again.

A layer of the explained pass needs its result at the reference and its change. With the result a of a plain run, which no rule
has touched, the change is a - r: one product instead of two. The rules then only distribute that change, and the sum of the
scores shows whether they do it right: a wrong value or a wrong map before the layer gives a sum that is not the change of the
output. If the sum is missed, the pass is repeated with products of its own (``_engine/batches.py``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

RESIDUE = 16  # units in the last place of the largest numbers: a difference below them is what rounding left of no change
DIGITS = 16.0  # a change may be so many times smaller than the reference: the difference then has lost four bits


class LayerValues:
    """Results of a plain run by the weights that made them, in the order of the calls; each is used once."""

    def __init__(self) -> None:
        self.used = False
        self._found: dict[Any, deque[tuple[Tensor, int]]] = {}

    def clear(self) -> None:
        """Forget all of them."""
        self._found.clear()

    def add(self, value: Tensor, weight: Tensor, result: Tensor) -> None:
        """Remember what a layer with this weight gave for a value."""
        self._found.setdefault((weight.data_ptr(), value.shape, result.dtype), deque()).append((result, result._version))

    def change(self, value: Tensor, weight: Tensor, reference: Tensor | None) -> Tensor | None:
        """The change behind the next layer with this weight, of a value of the same shape, from the reference behind the layer.

        None if there was no such layer, if the model has written into its result, or if the difference would lose digits.
        """
        left = self._found.get((weight.data_ptr(), value.shape, value.dtype))
        if not left:
            return None
        result, version = left.popleft()
        if result._version != version:
            return None
        if reference is not None:
            if reference.shape != result.shape:
                return None
            result, size = result - reference, _largest(reference)
            change = _largest(result)
            if not DIGITS * change >= size:
                return None
            # where nothing changed, 0 it must be: flows through a unit jump there
            result = F.hardshrink(result, RESIDUE * torch.finfo(result.dtype).eps * (size + change))
        self.used = True
        return result


def _largest(values: Tensor) -> float:
    low, high = (end.item() for end in torch.aminmax(values))
    return max(-low, high)


class Adjoint(torch.autograd.Function):
    """A linear map of which the result is known; ``pull`` takes gradients back."""

    @staticmethod
    def forward(ctx: Any, delta: Tensor, result: Tensor, pull: Callable[..., Tensor], *constants: Tensor) -> Tensor:
        ctx.save_for_backward(*constants)
        ctx.pull, ctx.shape = pull, delta.shape
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        constants = ctx.saved_tensors
        return ctx.pull(gradient, ctx.shape, *constants), None, None, *(None for _ in constants)


def pull_linear(gradient: Tensor, shape: torch.Size, weight: Tensor) -> Tensor:
    """Back through a linear layer."""
    return gradient @ weight
