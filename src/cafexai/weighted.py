"""Linear layers. Their weights are as large as the model, so no copy of them is kept for the backward passes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def weighted(value: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear in the precision of the value."""
    return F.linear(value, weight.to(value.dtype), None if bias is None else bias.to(value.dtype))


class Weighted(torch.autograd.Function):
    """The same with a gradient for the value; with the absolute values of weight and bias if asked for."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, weight: Tensor, bias: Tensor | None, absolute: bool) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.absolute = absolute
        if absolute:
            return weighted(value, weight.abs(), None if bias is None else bias.abs())
        return weighted(value, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        weight = ctx.saved_tensors[0].to(gradients[0].dtype)
        return gradients[0] @ (weight.abs() if ctx.absolute else weight), None, None, None
