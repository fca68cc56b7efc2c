"""Attention: weights are frozen, a linear map of the values with non-negative weights, or open (``softmax.py``)."""

from __future__ import annotations

import inspect
import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._core.value import Scores
from ..errors import UnsupportedOperation
from .arithmetic import bilinear_map
from .linear import linear
from .registry import rule
from .shape import move
from .softmax import is_open, open_softmax


def _value(part: Any) -> Tensor:
    return part.value if isinstance(part, Scores) else part


def _note_pattern(query: Any, key: Any) -> None:
    """The pattern is a constant of the current input, if it depends on it."""
    scored = query if isinstance(query, Scores) else key
    if isinstance(scored, Scores):
        scored.run.note_frozen("attention pattern", "routing")


def _mapped(pattern: Tensor, value: Scores) -> Any:
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
    if isinstance(attn_mask, Scores):
        attn_mask = attn_mask.freeze("attention mask", lambda v: v, "routing")
    if enable_gqa:
        key, value = (_repeated(part, query.shape[-3] // part.shape[-3]) for part in (key, value))
    if is_open(query) or is_open(key):
        return _open_attention(query, key, value, attn_mask, is_causal, scale)
    _note_pattern(query, key)
    q, k = _value(query), _value(key)
    pattern = _pattern(q, k, attn_mask, is_causal, scale)
    return _mapped(pattern, value) if isinstance(value, Scores) else pattern @ value


def _repeated(part: Any, times: int) -> Any:
    """Heads of keys and values that several heads of queries share."""
    if isinstance(part, Scores):
        return part.reshape(lambda v: v.repeat_interleave(times, -3), aligned=part.ndim > 3)
    return part.repeat_interleave(times, -3)


def _open_attention(query: Any, key: Any, value: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    """Queries and keys have scores: the change of the weights counts."""
    weights = _open_weights(query, key, mask, causal, scale)
    return bilinear_map(torch.matmul, weights, value, weights.ndim == value.ndim >= 3)


def _open_weights(query: Any, key: Any, mask: Any, causal: bool, scale: float | None) -> Scores:
    keys = move(key, lambda v: v.transpose(-2, -1))
    logits = bilinear_map(torch.matmul, query, keys, query.ndim == key.ndim >= 3)
    logits = logits.scale(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    return open_softmax(logits, -1, mask=_added_mask(logits, mask, causal))


def _added_mask(logits: Scores, mask: Any, causal: bool) -> Tensor | None:
    """Causal and other masks as one that is added to the logits."""
    dtype, device = logits.template.dtype, logits.template.device
    added = None if mask is None else _as_added(~mask if mask.dtype == torch.bool else mask, dtype)
    if causal:
        later = torch.ones(logits.shape[-2:], dtype=torch.bool, device=device).tril().logical_not()
        hidden = _as_added(later, dtype)
        added = hidden if added is None else added + hidden
    return added


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
    is_followed = is_open(query) or is_open(key)
    if is_followed:
        q, k = (linear(part, weight, bias) for part, weight, bias in zip((query, key), weights, biases, strict=False))
    else:
        _note_pattern(query, key)
        q, k = (F.linear(_value(part), w, bias) for part, w, bias in zip((query, key), weights, biases, strict=False))
    v = linear(value, weights[2], biases[2])
    if not batched:
        q, k, v = (move(part, lambda t: t[:, None]) for part in (q, k, v))
    if given.bias_k is not None:
        k = _appended(k, given.bias_k.expand(1, k.shape[1], -1))
        v = _appended(v, given.bias_v.expand(1, v.shape[1], -1))
    if given.add_zero_attn:
        k, v = (_appended(part, _value(part).new_zeros(1, *part.shape[1:])) for part in (k, v))

    def heads(t: Tensor) -> Tensor:
        return t.reshape(t.shape[0], t.shape[1], given.num_heads, -1).permute(1, 2, 0, 3)

    mask = _mask(given.attn_mask, given.key_padding_mask, q, k, given.num_heads)
    v = move(v, heads)
    if is_followed:
        pattern: Any = _open_weights(move(q, heads), move(k, heads), mask, False, None)
        out = bilinear_map(torch.matmul, pattern, v, True)
    else:
        pattern = _pattern(heads(q), heads(k), mask, False, None)
        out = _mapped(pattern, v) if isinstance(v, Scores) else pattern @ v
    length = q.shape[0]
    out = move(out, lambda t: t.permute(2, 0, 1, 3).reshape(length, t.shape[0], -1))
    out = linear(out, given.out_proj_weight, given.out_proj_bias)
    shown = None
    if given.need_weights:
        shown = _averaged(pattern) if given.average_attn_weights else pattern
        shown = shown if batched else move(shown, lambda t: t[0])
    return (out if batched else move(out, lambda t: t[:, 0])), shown


def _averaged(pattern: Any) -> Any:
    """The mean over the heads."""
    if isinstance(pattern, Scores):
        return pattern.linear(lambda v: v.mean(1), aligned=True)
    return pattern.mean(1)


def _appended(v: Any, constant: Tensor) -> Any:
    """A further value at the end, a constant of the model."""
    if isinstance(v, Scores):
        return v.join(v.run, lambda *parts: torch.cat(parts), [v, constant])
    return torch.cat([v, constant])


def _mask(attn_mask: Any, padding: Any, q: Tensor, k: Tensor, heads: int) -> Any:
    """Both masks as one that is added to the scores, (batch, heads, queries, keys)."""
    batch, added = q.shape[1], None
    if attn_mask is not None:
        added = _as_added(_value(attn_mask), q.dtype)
        if added.ndim == 3:
            added = added.view(batch, heads, *added.shape[1:])
        added = F.pad(added, (0, k.shape[0] - added.shape[-1]))
    if padding is not None:
        hidden = _as_added(padding if padding.ndim == 2 else padding[None], q.dtype)
        hidden = F.pad(hidden, (0, k.shape[0] - hidden.shape[-1]))[:, None, None]
        added = hidden if added is None else added + hidden
    return added


def _as_added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -torch.inf)
    return mask.to(dtype)
