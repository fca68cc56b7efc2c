"""The two steps that networks are made of, a linear layer and an activation, on delta and total at once, and back.

A step is a pair of pure functions: ``apply(delta, total, *arguments)`` gives the new delta and total and what the way back
needs, tensors and the rest; ``pull(gradients, tensors, rest)`` takes gradients of the new delta and total back to the old ones.
A chain of layers calls them in a loop; elsewhere ``InGraph`` makes them a part of torch's graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

Pair = tuple[Tensor | None, Tensor | None]


class Step(NamedTuple):
    """Forward and back."""

    apply: Callable[..., tuple[Tensor, Tensor, Sequence[Tensor | None], tuple[Any, ...]]]
    pull: Callable[[Sequence[Tensor | None], Sequence[Any], tuple[Any, ...]], Pair]


class InGraph(torch.autograd.Function):
    """A step as one node of torch's graph."""

    @staticmethod
    def forward(ctx: Any, delta: Tensor, total: Tensor, step: Step, *arguments: Any) -> tuple[Tensor, Tensor]:
        new_delta, new_total, tensors, ctx.rest = step.apply(delta, total, *arguments)
        ctx.save_for_backward(*tensors)
        ctx.pull, ctx.unused = step.pull, (None,) * (1 + len(arguments))
        ctx.set_materialize_grads(False)
        return new_delta, new_total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        return (*ctx.pull(gradients, ctx.saved_tensors, ctx.rest), *ctx.unused)
