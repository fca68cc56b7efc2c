"""Operators that move elements, ask for sizes, or make constants of given sizes."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._graph import Node
from .._read import DTYPES
from .registry import axes_of, integers, operator, room


@operator("Constant")
def constant(node: Node) -> Tensor:
    name, value = next(iter(node.attributes.items()))
    if isinstance(value, Tensor):
        return value
    kind = {"value_float": torch.float32, "value_floats": torch.float32, "value_int": torch.int64, "value_ints": torch.int64}
    return torch.tensor(value, dtype=kind[name])


@operator("ConstantOfShape")
def constant_of_shape(node: Node, sizes: Tensor) -> Tensor:
    value = node.get("value")
    value = torch.zeros(1) if value is None else value
    return torch.full(room(node, integers(sizes)), value.item(), dtype=value.dtype, device=sizes.device)


@operator("Shape")
def shape(node: Node, x: Tensor) -> Tensor:
    return torch.tensor(list(x.shape)[node.get("start", 0) : node.get("end")], dtype=torch.int64)


@operator("Size")
def size(node: Node, x: Tensor) -> Tensor:
    return torch.tensor(math.prod(x.shape))


@operator("Reshape")
def reshape(node: Node, x: Tensor, sizes: Any = None) -> Tensor:
    wanted = integers(node.get("shape") if sizes is None else sizes)
    if not node.get("allowzero", 0):
        wanted = [x.shape[place] if size == 0 else size for place, size in enumerate(wanted)]
    return x.reshape(wanted)


@operator("Flatten")
def flatten(node: Node, x: Tensor) -> Tensor:
    axis = node.get("axis", 1)
    if axis == 1 and x.ndim > 1:
        return torch.flatten(x, 1)
    return x.reshape(math.prod(x.shape[: axis % x.ndim if axis < 0 else axis]), -1)


@operator("Transpose")
def transpose(node: Node, x: Tensor) -> Tensor:
    return x.permute(node.get("perm") or list(range(x.ndim))[::-1])


@operator("Squeeze")
def squeeze(node: Node, x: Tensor, axes: Any = None) -> Tensor:
    dims = axes_of(node, axes, x.ndim)
    return x.squeeze() if dims is None else x.squeeze(dims)


@operator("Unsqueeze")
def unsqueeze(node: Node, x: Tensor, axes: Any = None) -> Tensor:
    given = node.get("axes") if axes is None else integers(axes.reshape(-1))
    for axis in sorted(axis % (x.ndim + len(given)) for axis in given):
        x = x.unsqueeze(axis)
    return x


@operator("Expand")
def expand(node: Node, x: Tensor, sizes: Tensor) -> Tensor:
    wanted = torch.broadcast_shapes(x.shape, integers(sizes))
    return x if wanted == x.shape else x.expand(room(node, wanted))


@operator("Tile")
def tile(node: Node, x: Tensor, repeats: Tensor) -> Tensor:
    counts = integers(repeats)
    room(node, [count * size for count, size in zip(counts, x.shape, strict=True)])
    return x.repeat(counts)


@operator("Concat")
def concat(node: Node, *values: Tensor) -> Tensor:
    return torch.cat(values, node.get("axis", 1))


@operator("Split")
def split(node: Node, x: Tensor, sizes: Any = None) -> tuple[Tensor, ...]:
    axis = node.get("axis", 0)
    given = node.get("split") if sizes is None else integers(sizes)
    if given is None:
        count = node.get("num_outputs", len(node.outputs))
        return tuple(torch.split(x, -(-x.shape[axis] // count), axis))
    return tuple(torch.split(x, list(given), axis))


@operator("Slice")
def slice_(node: Node, x: Tensor, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Tensor:
    begin, end = (integers(node.get(name) if got is None else got) for name, got in (("starts", starts), ("ends", ends)))
    places = node.get("axes") if axes is None else integers(axes)
    dims = [axis % x.ndim for axis in (range(len(begin)) if places is None else places)]
    by = [1] * len(begin) if steps is None else integers(steps)
    cut = [slice(None)] * x.ndim
    for dim, first, last, step in zip(dims, begin, end, by, strict=True):
        if step > 0:
            cut[dim] = slice(first, last, step)
            continue
        kept = range(x.shape[dim])[slice(first, last if last >= -x.shape[dim] else None, step)]
        x = x.flip(dim)  # what was at place i is now at size - 1 - i
        size = x.shape[dim]
        cut[dim] = slice(size - 1 - kept[0], size - kept[-1], -step) if len(kept) else slice(0, 0)
    return x if all(one == slice(None) for one in cut) else x[tuple(cut)]


@operator("Pad")
def pad(node: Node, x: Tensor, pads: Any = None, value: Any = None, axes: Any = None) -> Tensor:
    given = integers(node.get("pads") if pads is None else pads)
    dims = list(range(x.ndim)) if axes is None else [axis % x.ndim for axis in integers(axes)]
    half = len(given) // 2
    ends = {dim: (given[place], given[half + place]) for place, dim in enumerate(dims)}
    if node.get("mode", "constant") == "constant":
        room(node, [size + sum(ends.get(dim, (0, 0))) for dim, size in enumerate(x.shape)])
        around = [amount for dim in reversed(range(x.ndim)) for amount in ends.get(dim, (0, 0))]
        return F.pad(x, around, "constant", node.get("value", 0.0) if value is None else value.item()) if any(around) else x
    for dim, (before, behind) in ends.items():
        if before or behind:
            x = x.index_select(dim, torch.tensor(_mirror(node.get("mode"), x.shape[dim], before, behind), device=x.device))
    return x


def _mirror(mode: str, size: int, before: int, behind: int) -> list[int]:
    """For each place the one whose element is there."""
    places = range(-before, size + behind)
    if mode == "edge":
        return [min(max(place, 0), size - 1) for place in places]
    if mode == "wrap":
        return [place % size for place in places]
    turn = max(2 * (size - 1), 1)
    return [min(place % turn, turn - place % turn) for place in places]


@operator("Range")
def arange(node: Node, start: Tensor, limit: Tensor, step: Tensor) -> Tensor:
    first, last, by = start.item(), limit.item(), step.item()
    room(node, [max(0, math.ceil((last - first) / by))])
    return torch.arange(first, last, by, dtype=start.dtype)


@operator("Trilu")
def trilu(node: Node, x: Tensor, k: Any = None) -> Tensor:
    diagonal = 0 if k is None else int(k)
    return torch.triu(x, diagonal) if node.get("upper", 1) else torch.tril(x, diagonal)


@operator("EyeLike")
def eye_like(node: Node, x: Tensor) -> Tensor:
    kind = DTYPES[node.get("dtype")] if node.get("dtype") else x.dtype
    rows, columns = room(node, x.shape)
    return torch.ones(rows, columns).triu(node.get("k", 0)).tril(node.get("k", 0)).to(kind)


@operator("DepthToSpace")
def depth_to_space(node: Node, x: Tensor) -> Tensor:
    block = node.get("blocksize")
    if node.get("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, block)
    n, c, h, w = x.shape
    parts = x.reshape(n, block, block, c // block**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return parts.reshape(n, c // block**2, h * block, w * block)


@operator("SpaceToDepth")
def space_to_depth(node: Node, x: Tensor) -> Tensor:
    block, (n, c, h, w) = node.get("blocksize"), x.shape
    parts = x.reshape(n, c, h // block, block, w // block, block).permute(0, 3, 5, 1, 2, 4)
    return parts.reshape(n, c * block**2, h // block, w // block)
