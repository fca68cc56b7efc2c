"""Embeddings: where codes become scored values."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F

from .._core.tensors import Coded
from .._core.value import Scores
from ..errors import UnsupportedOperation
from .registry import rule


@rule("embedding", in_place=False, casts=True, kinds=["lookup"])
def embedding(
    codes: Any, weight: Any, padding_idx: Any = None, max_norm: Any = None, norm_type: float = 2.0, *rest: Any, **options: Any
) -> Any:
    """What else F.embedding takes matters to training alone."""
    if isinstance(weight, Scores):
        return weight.reshape(lambda w: w[codes])
    if max_norm is not None:
        size = weight.norm(norm_type, 1, keepdim=True)
        weight = torch.where(size > max_norm, weight * (max_norm / (size + 1e-7)), weight)  # as torch writes it into the table
    return codes.leaf(lambda ids: F.embedding(ids, weight))


_BAG = inspect.signature(F.embedding_bag)


@rule("embedding_bag", in_place=False, kinds=["lookup"])
def embedding_bag(*args: Any, **options: Any) -> Any:
    bound = _BAG.bind(*args, **options)
    bound.apply_defaults()
    given = SimpleNamespace(**bound.arguments)
    codes, weight = given.input, given.weight
    if isinstance(given.per_sample_weights, Scores) or not isinstance(codes, Coded):
        raise UnsupportedOperation("its weights per sample depend on the input; look the codes up with F.embedding")
    rows = embedding(codes, weight, None, given.max_norm, given.norm_type)
    kept = torch.ones(codes.shape, device=weight.device)
    if given.padding_idx is not None:
        kept = codes.plain() != given.padding_idx
    kept, shares = kept.to(rows.template.dtype), given.per_sample_weights
    if codes.ndim == 1:
        place, inside = _bags(given.offsets, len(codes), given.include_last_offset)
        rows = rows.reshape(lambda v: v[place])
        kept, shares = kept[place] * inside, None if shares is None else shares[place]
    if given.mode == "max":
        best = rows.largest((1,), valid=kept.bool()[..., None].index_fill(0, torch.nonzero(kept.sum(1) == 0)[:, 0], True))
        return best.scale((kept.sum(1, keepdim=True) > 0).to(rows.template.dtype))  # of nothing, it is 0
    weights = kept if shares is None else kept * shares
    if given.mode == "mean":
        weights = weights / kept.sum(1, keepdim=True).clamp_min(1)
    return rows.linear(lambda v, w: (v * w[..., None]).sum(1), weights, aligned=codes.ndim == 2)


def _bags(offsets: Any, count: int, last: bool) -> tuple[Any, Any]:
    """The places of the codes of each bag, padded to one length, and which of them are real."""
    ends = offsets[1:] if last else torch.cat([offsets[1:], offsets.new_tensor([count])])
    starts = offsets[: len(ends)]
    place = starts[:, None] + torch.arange(max(int((ends - starts).max()), 1), device=offsets.device)
    return place.clamp_max(count - 1), place < ends[:, None]


@rule(torch.embedding, name="embedding", kinds=["lookup"])
def embedding_builtin(weight: Any, codes: Any, *options: Any) -> Any:
    """torch's own function has its arguments in another order."""
    return embedding(codes, weight)


@rule(torch.embedding_bag, name="embedding_bag", kinds=["lookup"])
def embedding_bag_builtin(weight: Any, codes: Any, offsets: Any, *options: Any, **more: Any) -> Any:
    raise UnsupportedOperation("torch.embedding_bag is not followed; use F.embedding_bag")


@rule("one_hot", in_place=False, kinds=["lookup"])
def one_hot(codes: Any, num_classes: int = -1) -> Any:
    return codes.leaf(lambda ids: F.one_hot(ids, num_classes).to(torch.get_default_dtype()))
