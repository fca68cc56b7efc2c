"""Pooling, and pictures made larger or smaller."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._graph import Node
from .linear import padding
from .registry import FormNotKnown, integers, operator


def _pad_last_window(
    node: Node, x: Tensor, kernel: list[int], stride: list[int], before: list[int], behind: list[int]
) -> list[int]:
    """How much more is put behind each dimension, so that the last window is whole."""
    if not node.get("ceil_mode", 0):
        return [0] * len(kernel)
    dilation = node.get("dilations") or [1] * len(kernel)
    more = []
    for n, k, s, b, e, d in zip(x.shape[2:], kernel, stride, before, behind, dilation, strict=True):
        wide = (k - 1) * d + 1
        count = -(-(n + b + e - wide) // s) + 1
        if (count - 1) * s >= n + b:  # a window that begins in the padding is left out
            count -= 1
        more.append(max(0, (count - 1) * s + wide - (n + b + e)))
    return more


def _pool(node: Node, x: Tensor) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    kernel = list(node.get("kernel_shape"))
    stride = list(node.get("strides") or [1] * len(kernel))
    before, behind = padding(node, x, kernel)
    return kernel, stride, before, behind, _pad_last_window(node, x, kernel, stride, before, behind)


def _around(before: list[int], behind: list[int]) -> list[int]:
    return [amount for pair in reversed(list(zip(before, behind, strict=True))) for amount in pair]


@operator("MaxPool", main=True)
def max_pool(node: Node, x: Tensor) -> Tensor:
    if len(node.outputs) > 1 and node.outputs[1]:
        raise FormNotKnown("MaxPool with the places of the maxima")
    kernel, stride, before, behind, more = _pool(node, x)
    dilation = list(node.get("dilations") or [1] * len(kernel))
    function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(kernel) - 1]
    if before == behind and all(2 * b <= k for b, k in zip(before, kernel, strict=True)):
        return function(x, kernel, stride, before, dilation, bool(node.get("ceil_mode", 0)))
    if max(dilation) > 1:
        raise FormNotKnown("MaxPool with dilations and different paddings at both ends")
    for place, (first, last, extra) in enumerate(zip(before, behind, more, strict=True)):
        size = x.shape[place + 2]  # the element at the border is in every window that reaches beyond it
        places = torch.arange(-first, size + last + extra, device=x.device).clamp(0, size - 1)
        x = x if len(places) == size else x.index_select(place + 2, places)
    return function(x, kernel, stride)


@operator("AveragePool", main=True)
def average_pool(node: Node, x: Tensor) -> Tensor:
    kernel, stride, before, behind, more = _pool(node, x)
    counts = bool(node.get("count_include_pad", 0))
    function = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(kernel) - 1]
    small = all(2 * b <= k for b, k in zip(before, kernel, strict=True))
    if before == behind and not any(more) and small and max(node.get("dilations") or [1]) == 1:
        return function(x, kernel, stride, before, count_include_pad=counts)
    if max(node.get("dilations") or [1]) > 1:
        raise FormNotKnown("AveragePool with dilations")
    ones = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype, device=x.device)
    ones = F.pad(ones, _around(before, behind), value=1.0 if counts else 0.0)
    around = _around(before, [e + m for e, m in zip(behind, more, strict=True)])
    share = function(F.pad(ones, _around([0] * len(more), more)), kernel, stride)
    return function(F.pad(x, around), kernel, stride) / share


@operator("GlobalAveragePool", main=True)
def global_average_pool(node: Node, x: Tensor) -> Tensor:
    function = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[x.ndim - 3]
    return function(x, 1)


@operator("GlobalMaxPool", main=True)
def global_max_pool(node: Node, x: Tensor) -> Tensor:
    return torch.amax(x, tuple(range(2, x.ndim)), True)


@operator("Resize", "Upsample")
def resize(node: Node, x: Tensor, *given: Any) -> Tensor:
    """Where torch has the same; a size in all of space, or a scale."""
    mode = node.get("mode", "nearest")
    scales, sizes = _read_sizes(node, x, given)
    kind = node.get("coordinate_transformation_mode", "half_pixel" if node.version >= 11 else "asymmetric")
    mode = {"nearest": "nearest", "linear": ("linear", "bilinear", "trilinear")[x.ndim - 3], "cubic": "bicubic"}[mode]
    if mode == "nearest":
        rounding = node.get("nearest_mode", "round_prefer_floor") if node.version >= 11 else "floor"
        whole = all(s % n == 0 for s, n in zip(sizes, x.shape[2:], strict=True))
        if kind == "asymmetric" and rounding == "floor":
            return _interpolate(x, sizes, scales, "nearest", None)
        if kind == "half_pixel" and rounding == "round_prefer_floor" and whole:
            return F.interpolate(x, sizes, mode="nearest")  # every pixel in a block of its own, however it is counted
        if kind == "half_pixel" and rounding in ("round_prefer_floor", "round_prefer_ceil"):
            return F.interpolate(x, sizes, mode="nearest-exact")
        raise FormNotKnown(f"Resize to the nearest pixel by {kind} and {rounding}")
    if kind == "align_corners":
        return F.interpolate(x, sizes, mode=mode, align_corners=True)
    if kind == "pytorch_half_pixel" or kind == "half_pixel":
        if mode == "bicubic" and node.get("cubic_coeff_a", -0.75) != -0.75:
            raise FormNotKnown("Resize with another cubic_coeff_a than -0.75")
        return _interpolate(x, sizes, scales, mode, False)
    raise FormNotKnown(f"Resize ({mode}) by {kind}")


def _read_sizes(node: Node, x: Tensor, given: tuple[Any, ...]) -> tuple[list[float] | None, list[int]]:
    """Scales, where they are given, and sizes of space."""
    if node.version < 11:
        scales: Any = given[0].tolist() if given else node.get("scales")
        sizes = None
    else:
        scales = given[1].tolist() if len(given) > 1 and given[1] is not None and given[1].numel() else None
        sizes = integers(given[2]) if len(given) > 2 and given[2] is not None and given[2].numel() else None
    if node.get("antialias", 0) or node.get("axes") is not None or node.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise FormNotKnown("Resize with antialias, axes or keep_aspect_ratio_policy")
    if sizes is not None:
        if list(sizes[:2]) != list(x.shape[:2]):
            raise FormNotKnown("Resize of rows or channels")
        return None, list(sizes[2:])
    if list(scales[:2]) != [1, 1]:
        raise FormNotKnown("Resize of rows or channels")
    return scales[2:], [math.floor(n * s) for n, s in zip(x.shape[2:], scales[2:], strict=True)]


def _interpolate(x: Tensor, sizes: list[int], scales: Any, mode: str, corners: Any) -> Tensor:
    if scales is None or all(s * n == w for s, n, w in zip(scales, x.shape[2:], sizes, strict=True)):
        return F.interpolate(x, sizes, mode=mode, align_corners=corners)
    return F.interpolate(x, scale_factor=tuple(scales), mode=mode, align_corners=corners, recompute_scale_factor=False)
