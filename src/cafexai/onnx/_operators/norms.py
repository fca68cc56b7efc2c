"""Normalisations."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._graph import OURS, Node
from .registry import operator

_AFFINE = ("", "weight", "bias")


@operator("BatchNormalization", roles=(*_AFFINE, "running_mean", "running_var"), main=True)
def batch_norm(node: Node, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    if node.get("training_mode", 0):
        raise ValueError(
            f"node {node.name!r}: a batch norm of the file is in training mode, so that rows would influence each other. "
            "Export the model after model.eval()."
        )
    return F.batch_norm(x, mean, var, weight, bias, False, 0.0, node.get("epsilon", 1e-5))


@operator("InstanceNormalization", roles=_AFFINE, main=True)
def instance_norm(node: Node, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.instance_norm(x, None, None, weight, bias, True, 0.0, node.get("epsilon", 1e-5))


@operator("LayerNormalization", roles=_AFFINE, main=True)
def layer_norm(node: Node, x: Tensor, weight: Any = None, bias: Any = None) -> Tensor:
    shape = x.shape[node.get("axis", -1) % x.ndim :]
    return F.layer_norm(
        x, shape, _shape_for_channels(weight, shape), _shape_for_channels(bias, shape), node.get("epsilon", 1e-5)
    )


@operator("RMSNormalization", roles=_AFFINE, main=True)
def rms_norm(node: Node, x: Tensor, weight: Any = None) -> Tensor:
    shape = x.shape[node.get("axis", -1) % x.ndim :]
    return F.rms_norm(x, shape, _shape_for_channels(weight, shape), node.get("epsilon", 1e-5))


def _shape_for_channels(parameter: Any, shape: torch.Size) -> Any:
    return parameter if parameter is None or parameter.shape == shape else parameter.expand(shape).reshape(shape)


@operator("GroupNorm", domain=OURS, roles=_AFFINE, main=True)
def group_norm(node: Node, x: Tensor, weight: Any = None, bias: Any = None) -> Tensor:
    return F.group_norm(x, node.get("num_groups"), weight, bias, node.get("epsilon", 1e-5))


@operator("GroupNormalization", roles=_AFFINE, main=True)
def group_normalization(node: Node, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    groups = node.get("num_groups")
    if node.version < 21:  # one number for each group
        weight, bias = (part.repeat_interleave(x.shape[1] // groups) for part in (weight, bias))
    return F.group_norm(x, groups, weight, bias, node.get("epsilon", 1e-5))


@operator("LRN")
def local_response_norm(node: Node, x: Tensor) -> Tensor:
    alpha, beta, bias = node.get("alpha", 1e-4), node.get("beta", 0.75), node.get("bias", 1.0)
    return F.local_response_norm(x, node.get("size"), alpha, beta, bias)
