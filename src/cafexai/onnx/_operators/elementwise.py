"""Functions of each element by itself."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._graph import OURS, Node
from .registry import FormNotKnown, as_number, operator, plain

for _name in "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor Log Neg Round Sign Sin Sinh Sqrt Tan".split():
    plain(getattr(torch, _name.lower()), _name)
plain(torch.reciprocal, "Reciprocal")
plain(torch.isnan, "IsNaN")
plain(torch.logical_not, "Not")
for _name, _function in {
    "Relu": F.relu, "Sigmoid": torch.sigmoid, "Tanh": torch.tanh, "Softplus": F.softplus, "Softsign": F.softsign,
    "Mish": F.mish, "HardSwish": F.hardswish,
}.items():  # fmt: skip
    plain(_function, _name, main=True)

# What exporters take apart, by the names that it is put back with; further arguments are attributes.
FUNCTIONS: dict[str, Any] = {
    "gelu": F.gelu,
    "silu": F.silu,
    "mish": F.mish,
    "hardswish": F.hardswish,
    "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
    "selu": F.selu,
    "logsigmoid": F.logsigmoid,
    "elu": F.elu,
    "celu": F.celu,
    "leaky_relu": F.leaky_relu,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "threshold": F.threshold,
}


@operator(*FUNCTIONS, domain=OURS, main=True)
def apply_restored(node: Node, x: Tensor) -> Tensor:
    return FUNCTIONS[node.op](x, **node.attributes)


plain(lambda x: x, "Identity")


@operator("Dropout")
def dropout(node: Node, x: Tensor, share: Any = None, training: Any = None) -> Tensor:
    if training is not None and bool(training):
        raise FormNotKnown("Dropout in training mode")
    return x


@operator("LeakyRelu", main=True)
def leaky_relu(node: Node, x: Tensor) -> Tensor:
    return F.leaky_relu(x, node.get("alpha", 0.01))


@operator("Elu", main=True)
def elu(node: Node, x: Tensor) -> Tensor:
    return F.elu(x, node.get("alpha", 1.0))


@operator("Celu", main=True)
def celu(node: Node, x: Tensor) -> Tensor:
    return F.celu(x, node.get("alpha", 1.0))


_ALPHA, _GAMMA = 1.6732632423543772, 1.0507009873554805


@operator("Selu", main=True)
def selu(node: Node, x: Tensor) -> Tensor:
    alpha, gamma = node.get("alpha", _ALPHA), node.get("gamma", _GAMMA)
    if abs(alpha - _ALPHA) < 1e-6 and abs(gamma - _GAMMA) < 1e-6:
        return F.selu(x)
    return F.elu(x, alpha) * gamma


@operator("Gelu", main=True)
@operator("Gelu", domain="com.microsoft", main=True)
def gelu(node: Node, x: Tensor) -> Tensor:
    return F.gelu(x, approximate=node.get("approximate", "none"))


@operator("Swish", main=True)
def swish(node: Node, x: Tensor) -> Tensor:
    alpha = node.get("alpha", 1.0)
    return F.silu(x) if alpha == 1 else x * torch.sigmoid(x * alpha)


@operator("ThresholdedRelu", main=True)
def thresholded_relu(node: Node, x: Tensor) -> Tensor:
    return F.threshold(x, node.get("alpha", 1.0), 0.0)


@operator("HardSigmoid", main=True)
def hard_sigmoid(node: Node, x: Tensor) -> Tensor:
    alpha, beta = node.get("alpha", 0.2), node.get("beta", 0.5)
    return F.hardsigmoid(x) if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5 else torch.clamp(x * alpha + beta, 0, 1)


@operator("Shrink", main=True)
def shrink(node: Node, x: Tensor) -> Tensor:
    bias, limit = node.get("bias", 0.0), node.get("lambd", 0.5)
    if bias in (0, limit):
        return F.hardshrink(x, limit) if bias == 0 else F.softshrink(x, limit)
    return torch.where(x < -limit, x + bias, torch.where(x > limit, x - bias, x * 0))


@operator("PRelu", roles=("", "weight"), main=True)
def prelu(node: Node, x: Tensor, slope: Tensor) -> Tensor:
    """torch has one slope, or one for each channel."""
    sizes = slope.shape[::-1]
    channels = len(sizes) == x.ndim - 1 and all(size == 1 for size in sizes[:-1])
    if slope.numel() == 1 or channels or (slope.ndim == x.ndim and slope.shape[0] == 1 and slope.numel() == slope.shape[1]):
        return F.prelu(x, slope.reshape(-1))
    return F.relu(x) - slope * F.relu(-x)


@operator("Clip", main=True)
def clip(node: Node, x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    low, high = (as_number(node.get(name) if given is None else given) for name, given in (("min", low), ("max", high)))
    if low is None and high is None:
        return x
    if (low, high) == (0, None):
        return F.relu(x)
    return F.relu6(x) if (low, high) == (0, 6) and x.is_floating_point() else torch.clamp(x, low, high)


@operator("IsInf")
def is_inf(node: Node, x: Tensor) -> Tensor:
    up, down = node.get("detect_positive", 1), node.get("detect_negative", 1)
    return torch.isinf(x) & ((x > 0) & bool(up) | (x < 0) & bool(down))
