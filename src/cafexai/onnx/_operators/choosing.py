"""Operators that look up, choose, sort and put elements by places."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._graph import OURS, Node
from .._read import DTYPES
from .registry import FormNotKnown, as_number, integers, operator, room


@operator("Embedding", domain=OURS, roles=("weight",), main=True)
def embedding(node: Node, table: Tensor, codes: Tensor) -> Tensor:
    return F.embedding(codes, table)


@operator("Gather")
def gather(node: Node, x: Tensor, places: Tensor) -> Tensor:
    axis = node.get("axis", 0) % x.ndim
    if places.ndim == 0 and type(places) is Tensor:
        return x.select(axis, int(places))
    cut = (*(slice(None),) * axis, places)
    return x[cut] if axis else x[places]  # codes look up a table by themselves


@operator("GatherElements")
def gather_elements(node: Node, x: Tensor, places: Tensor) -> Tensor:
    axis = node.get("axis", 0) % x.ndim
    return torch.gather(x, axis, torch.where(places < 0, places + x.shape[axis], places))


@operator("GatherND")
def gather_nd(node: Node, x: Tensor, places: Tensor) -> Tensor:
    shared = node.get("batch_dims", 0)
    lead = [
        torch.arange(size).view(*(-1 if i == place else 1 for i in range(places.ndim - 1)))
        for place, size in enumerate(x.shape[:shared])
    ]
    cut = (*lead, *places.unbind(-1))
    return x[cut]


@operator("ScatterElements", "Scatter")
def scatter_elements(node: Node, x: Tensor, places: Tensor, updates: Tensor) -> Tensor:
    axis, how = node.get("axis", 0) % x.ndim, node.get("reduction", "none")
    places = torch.where(places < 0, places + x.shape[axis], places)
    if how == "none":
        return torch.scatter(x, axis, places, updates)
    if how == "add":
        return torch.scatter_add(x, axis, places, updates)
    word = {"mul": "prod", "max": "amax", "min": "amin"}[how]
    return torch.scatter_reduce(x, axis, places, updates, word)


@operator("ScatterND")
def scatter_nd(node: Node, x: Tensor, places: Tensor, updates: Tensor) -> Tensor:
    how = node.get("reduction", "none")
    if how not in ("none", "add"):
        raise FormNotKnown(f"ScatterND with reduction {how!r}")
    return torch.index_put(x, places.unbind(-1), updates, accumulate=how == "add")


@operator("TopK")
def top_k(node: Node, x: Tensor, k: Any = None) -> tuple[Tensor, Tensor]:
    count = node.get("k") if k is None else int(k)
    values, places = torch.topk(x, count, node.get("axis", -1), bool(node.get("largest", 1)), bool(node.get("sorted", 1)))
    return values, places


@operator("ArgMax", "ArgMin")
def arg_extreme(node: Node, x: Tensor) -> Tensor:
    axis, keep = node.get("axis", 0), bool(node.get("keepdims", 1))
    find = torch.argmax if node.op == "ArgMax" else torch.argmin
    if not node.get("select_last_index", 0):
        return find(x, axis, keep)
    return x.shape[axis] - 1 - find(x.flip(axis), axis, keep)


@operator("NonZero")
def nonzero(node: Node, x: Tensor) -> Tensor:
    return torch.nonzero(x).t()


@operator("OneHot")
def one_hot(node: Node, places: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    axis, count = node.get("axis", -1), int(as_number(depth.reshape(-1)))
    room(node, [*places.shape, count])
    codes = places.long() if places.is_floating_point() else places
    off, on = values.unbind()
    made = F.one_hot(torch.remainder(codes, count), count).to(values.dtype) * (on - off) + off
    return made if axis in (-1, places.ndim) else made.movedim(-1, axis)


@operator("OneHotOf", domain=OURS)
def one_hot_of(node: Node, codes: Tensor, values: Tensor) -> Tensor:
    """1 where a code is one of the values, in a last dimension of its own; codes that are none of them are 0 everywhere."""
    kind, row = DTYPES[node.get("to")], values.reshape(-1)
    if codes.is_floating_point() or codes.ndim < values.ndim or codes.shape[-1] != 1:
        return (codes == values).to(kind)
    last = int(row.max()) + 1
    table = torch.zeros(last + 1, len(row), dtype=kind)
    table[row.long(), torch.arange(len(row))] = 1
    return F.embedding(torch.where((codes >= 0) & (codes < last), codes, last)[..., 0], table)


@operator("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_features(node: Node, x: Tensor, places: Tensor) -> Tensor:
    return x[..., integers(places.reshape(-1))]
