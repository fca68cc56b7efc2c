"""Attention: weights are frozen, a linear map of the values with non-negative weights, or open (``softmax.py``)."""

from __future__ import annotations

import inspect
import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._core.pending import Pending
from .._core.value import Scores
from ..errors import UnsupportedOperation
from .arithmetic import add, bilinear_map, multiply
from .linear import linear
from .open_attention import Attention, later_keys
from .registry import rule
from .shape import move
from .softmax import is_open, open_softmax


def _value(part: Any) -> Tensor:
    return part.value if isinstance(part, Scores) else part


def _frozen_mask(mask: Any) -> Any:
    """What is added to the logits as a constant."""
    return mask.freeze("attention mask", lambda v: v, "routing") if isinstance(mask, Scores) else mask


def _note_pattern(query: Any, key: Any) -> None:
    """The pattern is a constant of the current input, if it depends on it."""
    scored = query if isinstance(query, Scores) else key
    if isinstance(scored, Scores):
        scored.run.note_frozen("attention pattern", "routing")


def _map_values(pattern: Tensor, value: Scores) -> Any:
    return value.linear(lambda v: pattern @ v, aligned=value.ndim > 2 and pattern.ndim == value.ndim)


@rule("scaled_dot_product_attention", in_place=False)
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout_p > 0:
        raise ValueError("explain(...): dropout in attention is active (dropout_p > 0). Call model.eval() first.")
    if enable_gqa:
        key, value = (_repeat_heads(part, query.shape[-3] // part.shape[-3]) for part in (key, value))
    if is_open(query) or is_open(key) or is_open(attn_mask):
        return _open_attention(query, key, value, attn_mask, is_causal, scale)
    _note_pattern(query, key)
    pattern = _pattern(_value(query), _value(key), _frozen_mask(attn_mask), is_causal, scale)
    return _map_values(pattern, value) if isinstance(value, Scores) else pattern @ value


def _repeat_heads(part: Any, times: int) -> Any:
    """Heads of keys and values that several heads of queries share."""
    if isinstance(part, Scores):
        return part.reshape(lambda v: v.repeat_interleave(times, -3), aligned=part.ndim > 3)
    return part.repeat_interleave(times, -3)


def _open_attention(query: Any, key: Any, value: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    """Queries, keys or the mask have scores: the change of the weights counts."""
    parts = [part.full() if isinstance(part, Pending) else part for part in (query, key, value)]
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if isinstance(mask, Tensor):
        mask = _as_added(~mask if mask.dtype == torch.bool else mask, _value(query).dtype)

    def composed() -> Any:
        weights = _open_weights(parts[0], parts[1], mask, causal, scale)
        return bilinear_map(torch.matmul, weights, parts[2], weights.ndim == value.ndim >= 3)

    if isinstance(mask, Scores) or len({part.shape[:-2] for part in parts}) > 1 or value.ndim < 3:
        return composed()
    first = next(part for part in parts if isinstance(part, Scores))
    return first.take_step(parts, Attention.of(parts, mask, causal, scale), composed)


def _lazy_weights(query: Any, key: Any, mask: Any) -> Pending:
    """The weights as a value of their own, which few models use: their scores are made when they are asked for."""
    run = next(part.run for part in (query, key, mask) if isinstance(part, Scores))
    value = _pattern(_value(query), _value(key), _value(mask), False, None)
    return Pending(run, value, lambda: _open_weights(query, key, mask, False, 1 / math.sqrt(query.shape[-1])))


def _open_weights(query: Any, key: Any, mask: Any, causal: bool, scale: float) -> Scores:
    keys = move(key, lambda v: v.transpose(-2, -1))
    logits = multiply(bilinear_map(torch.matmul, query, keys, query.ndim == key.ndim >= 3), scale)
    if isinstance(mask, Scores):  # what depends on the input is a part of the logits
        logits, mask = add(mask, logits), None
    if causal:
        later = later_keys(logits.shape[-2], logits.shape[-1], 0, logits.template)
        mask = later if mask is None else mask + later
    return open_softmax(logits, -1, mask=mask)


def _pattern(q: Tensor, k: Tensor, mask: Any, causal: bool, scale: float | None) -> Tensor:
    """The softmax of scaled query times key; a row without any key attends to nothing."""
    scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, -torch.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return torch.softmax(scores, -1).nan_to_num_(0)


_SIGNATURE = inspect.signature(F.multi_head_attention_forward)


@rule("multi_head_attention_forward", in_place=False)
def multi_head_attention(*args: Any, **options: Any) -> Any:
    """nn.MultiheadAttention, on (length, batch, width) as torch calls it."""
    bound = _SIGNATURE.bind(*args, **options)
    bound.apply_defaults()
    given = SimpleNamespace(**bound.arguments)
    query, key, value = given.query, given.key, given.value
    if given.training and given.dropout_p > 0:
        raise ValueError("explain(...): dropout in attention is active. Call model.eval() first.")
    if given.static_k is not None or given.static_v is not None:
        raise UnsupportedOperation("static_k and static_v are not followed")
    batched = query.ndim == 3
    weights = [given.q_proj_weight, given.k_proj_weight, given.v_proj_weight]
    if not given.use_separate_proj_weight:
        weights = list(given.in_proj_weight.chunk(3))
    biases = [None] * 3 if given.in_proj_bias is None else given.in_proj_bias.chunk(3)
    is_followed = is_open(query) or is_open(key) or is_open(given.attn_mask)
    if is_followed:
        q, k = (linear(part, weight, bias) for part, weight, bias in zip((query, key), weights, biases, strict=False))
    else:
        _note_pattern(query, key)
        q, k = (F.linear(_value(part), w, bias) for part, w, bias in zip((query, key), weights, biases, strict=False))
    v = linear(value, weights[2], biases[2])
    if not batched:
        q, k, v = (move(part, lambda t: t[:, None]) for part in (q, k, v))
    if given.bias_k is not None:
        k = _append_value(k, given.bias_k.expand(1, k.shape[1], -1))
        v = _append_value(v, given.bias_v.expand(1, v.shape[1], -1))
    if given.add_zero_attn:
        k, v = (_append_value(part, _value(part).new_zeros(1, *part.shape[1:])) for part in (k, v))

    def heads(t: Tensor) -> Tensor:
        return t.reshape(t.shape[0], t.shape[1], given.num_heads, -1).permute(1, 2, 0, 3)

    mask = _mask(given.attn_mask, given.key_padding_mask, k, given.num_heads)
    if not is_followed:
        mask = _frozen_mask(mask)
    v = move(v, heads)
    pattern: Any = None
    if is_followed:
        q, k = move(q, heads), move(k, heads)
        out = _open_attention(q, k, v, mask, False, None)
        if given.need_weights:
            pattern = _lazy_weights(q, k, mask)
    else:
        pattern = _pattern(heads(q), heads(k), mask, False, None)
        out = _map_values(pattern, v) if isinstance(v, Scores) else pattern @ v
    out = move(out, lambda t: t.permute(2, 0, 1, 3).reshape(t.shape[2], t.shape[0], -1))
    out = linear(out, given.out_proj_weight, given.out_proj_bias)
    shown = None
    if given.need_weights:
        shown = _average_heads(pattern) if given.average_attn_weights else pattern
        shown = shown if batched else move(shown, lambda t: t[0])
    return (out if batched else move(out, lambda t: t[:, 0])), shown


def _average_heads(pattern: Any) -> Any:
    """The mean over the heads."""
    if isinstance(pattern, Scores):
        return pattern.linear(lambda v: v.mean(1), aligned=True)
    return pattern.mean(1)


def _append_value(v: Any, constant: Tensor) -> Any:
    """A further value at the end, a constant of the model."""
    if isinstance(v, Scores):
        return v.join(v.run, lambda *parts: torch.cat(parts), [v, constant])
    return torch.cat([v, constant])


def _mask(attn_mask: Any, padding: Any, keys: Any, heads: int) -> Any:
    """Both masks as one that is added to the scores, (batch, heads, queries, keys); ``keys`` is (keys, batch, width)."""
    count, batch = keys.shape[:2]
    dtype = _value(keys).dtype
    added = None
    if attn_mask is not None:
        added = attn_mask if isinstance(attn_mask, Scores) else _as_added(attn_mask, dtype)
        if added.ndim == 3:
            added = move(added, lambda v: v.view(batch, heads, *v.shape[1:]))
        if added.shape[-1] < count:
            added = move(added, lambda v: F.pad(v, (0, count - v.shape[-1])))
    if padding is not None:
        hidden = _as_added(padding if padding.ndim == 2 else padding[None], dtype)
        hidden = F.pad(hidden, (0, count - hidden.shape[-1]))[:, None, None]
        added = hidden if added is None else add(added, hidden)
    return added


def _as_added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -torch.inf)
    return mask.to(dtype)
