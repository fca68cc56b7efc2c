"""Operators that sum, average or compare along dimensions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._graph import OURS, Node
from .registry import axes_of, operator

Dims = tuple[int, ...]


def _product(x: Tensor, dims: Dims, keep: bool) -> Tensor:
    for dim in sorted(dims, reverse=True):
        x = torch.prod(x, dim, keep)
    return x


_REDUCTIONS = {
    "ReduceMean": lambda x, dims, keep: x.mean(dims, keep),
    "ReduceSum": lambda x, dims, keep: x.sum(dims, keep),
    "ReduceMax": lambda x, dims, keep: torch.amax(x, dims, keep),
    "ReduceMin": lambda x, dims, keep: torch.amin(x, dims, keep),
    "ReduceProd": _product,
    "ReduceL1": lambda x, dims, keep: x.abs().sum(dims, keep),
    "ReduceL2": lambda x, dims, keep: torch.linalg.vector_norm(x, 2, dims, keep),
    "ReduceLogSum": lambda x, dims, keep: x.sum(dims, keep).log(),
    "ReduceLogSumExp": lambda x, dims, keep: torch.logsumexp(x, dims, keep),
    "ReduceSumSquare": lambda x, dims, keep: x.square().sum(dims, keep),
}


@operator(*_REDUCTIONS)
def reduce(node: Node, x: Tensor, axes: Any = None) -> Tensor:
    dims = axes_of(node, axes, x.ndim)
    if dims is None and node.get("noop_with_empty_axes", 0):
        return x
    return _REDUCTIONS[node.op](x, tuple(range(x.ndim)) if dims is None else dims, bool(node.get("keepdims", 1)))


@operator("Softmax", "LogSoftmax")
def softmax(node: Node, x: Tensor) -> Tensor:
    function = torch.softmax if node.op == "Softmax" else torch.log_softmax
    axis = node.get("axis", -1 if node.version >= 13 else 1)
    axis = axis % x.ndim
    if node.version >= 13 or axis == x.ndim - 1:
        return function(x, axis)
    return function(x.flatten(axis), -1).reshape(x.shape)  # old versions: over all that is behind


@operator("Normalize", domain=OURS)
def normalize(node: Node, x: Tensor) -> Tensor:
    return F.normalize(x, 2.0, node.get("axis"), node.get("epsilon"))


@operator("LpNormalization")
def lp_normalization(node: Node, x: Tensor) -> Tensor:
    return F.normalize(x, float(node.get("p", 2)), node.get("axis", -1))


@operator("Variance", domain=OURS)
def variance(node: Node, x: Tensor) -> Tensor:
    return torch.var(x, node.get("axes"), correction=0, keepdim=bool(node.get("keepdims", 1)))
