"""Layers with weights that are linear: products with matrices, convolutions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._graph import OURS, Node
from .registry import operator, plain

plain(torch.matmul, "MatMul")


@operator("Linear", domain=OURS, roles=("", "weight", "bias"), main=True)
def linear(node: Node, x: Tensor, weight: Tensor, bias: Any = None) -> Tensor:
    return F.linear(x, weight, bias)


@operator("Gemm", roles=("", "weight", "bias"), main=True)
def gemm(node: Node, a: Tensor, b: Tensor, c: Any = None) -> Tensor:
    a, b = a.t() if node.get("transA", 0) else a, b.t() if node.get("transB", 0) else b
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    result = torch.matmul(a, b)
    result = result if alpha == 1 else result * alpha
    return result if c is None else result + (c if beta == 1 else c * beta)


@operator("Einsum")
def einsum(node: Node, *values: Tensor) -> Tensor:
    return torch.einsum(node.get("equation"), *values)


def padding(node: Node, x: Tensor, kernel: list[int]) -> tuple[list[int], list[int]]:
    """What is put before and behind each dimension of space."""
    space, stride = len(kernel), node.get("strides") or [1] * len(kernel)
    dilation, how = node.get("dilations") or [1] * space, node.get("auto_pad", "NOTSET")
    if how == "NOTSET":
        given = node.get("pads") or [0] * 2 * space
        return list(given[:space]), list(given[space:])
    if how == "VALID":
        return [0] * space, [0] * space
    wide = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    sizes = x.shape[2:]
    total = [max((-(-n // s) - 1) * s + k - n, 0) for n, s, k in zip(sizes, stride, wide, strict=True)]
    less, more = [t // 2 for t in total], [t - t // 2 for t in total]
    return (less, more) if how == "SAME_UPPER" else (more, less)


@operator("Conv", roles=("", "weight", "bias"), main=True)
def conv(node: Node, x: Tensor, weight: Tensor, bias: Any = None) -> Tensor:
    space = x.ndim - 2
    before, behind = padding(node, x, list(weight.shape[2:]))
    if before != behind:
        x = F.pad(x, [amount for pair in reversed(list(zip(before, behind, strict=True))) for amount in pair])
        before = [0] * space
    function = (F.conv1d, F.conv2d, F.conv3d)[space - 1]
    strides, dilations = node.get("strides") or [1] * space, node.get("dilations") or [1] * space
    return function(x, weight, bias, strides, before, dilations, node.get("group", 1))


@operator("ConvTranspose", roles=("", "weight", "bias"), main=True)
def conv_transpose(node: Node, x: Tensor, weight: Tensor, bias: Any = None) -> Tensor:
    space, kernel = x.ndim - 2, list(weight.shape[2:])
    strides, dilations = node.get("strides") or [1] * space, node.get("dilations") or [1] * space
    more = node.get("output_padding") or [0] * space
    sizes = x.shape[2:]
    whole = [s * (n - 1) + m + (k - 1) * d + 1 for n, s, m, k, d in zip(sizes, strides, more, kernel, dilations, strict=True)]
    wanted, how = node.get("output_shape"), node.get("auto_pad", "NOTSET")
    if wanted is None and how in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(sizes, strides, strict=True)]
    if wanted is not None:
        total = [max(w - t, 0) for w, t in zip(whole, wanted[-space:], strict=True)]
        half = [t // 2 for t in total]
        before, behind = half, [t - h for t, h in zip(total, half, strict=True)]
        before, behind = (before, behind) if how == "SAME_UPPER" else (behind, before)
    else:
        given = node.get("pads") or [0] * 2 * space
        before, behind = list(given[:space]), list(given[space:])
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[space - 1]
    if before == behind:
        return function(x, weight, bias, strides, before, more, node.get("group", 1), dilations)
    result = function(x, weight, bias, strides, 0, more, node.get("group", 1), dilations)
    cut = (slice(None), slice(None), *(slice(b, n - e) for b, e, n in zip(before, behind, whole, strict=True)))
    return result[cut]
