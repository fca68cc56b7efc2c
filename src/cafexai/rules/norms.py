"""Normalisations: their statistics are frozen at the current value, or open.

The mean, too, is a constant in the paper, so that it counts as a bias; with ``norm_mean="linear"`` it is the linear map
that it is, and its effect goes to the features. A normalisation spelled out in arithmetic is of this second kind.

With ``norms="open"`` the scale s = 1 / sqrt(v + eps) depends on the input as it does in the model. The change of m s, m being
the value minus its mean, from the reference is (m - m_r) s + m_r (s - s_r): the first part is what a frozen scale gives, the
second goes the way of the scale, along the secant of s between the variances v_r and v. So the reference is the model itself
at the baseline, and where the reference is 0 nothing changes.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._core.functions import affine
from .._core.provenance import ROOT, SCALE, record
from .._core.value import Scores
from .elementwise import finite, inverse_root
from .recognise import softmax_of
from .registry import rule


def centred(x: Scores, dims: tuple[int, ...]) -> Any:
    """x minus its mean over dims, a linear map with 1 - 1/n on the diagonal and -1/n beside it."""
    n = math.prod(x.shape[dim] for dim in dims)

    def centre(v: Tensor, own: float, other: float) -> Tensor:
        return v - v.mean(dims, keepdim=True) if other < 0 else own * v + other * (v.sum(dims, keepdim=True) - v)

    return x.linear(centre, 1 - 1 / n, -1 / n, aligned=0 not in dims)


def _normalised(x: Scores, name: str, count: int, eps: float, weight: Any, bias: Any) -> Any:
    """(x - mean) / sigma * weight + bias over the last ``count`` dimensions; weight and bias in the shape that meets x."""
    shape, dims = x.shape[x.ndim - count :], tuple(range(x.ndim - count, x.ndim))
    if x.run.settings.norms == "open":
        result = _scaled(centred(x, dims), dims, eps)
        if weight is not None and bias is not None:
            return result.linear(affine, weight, bias=bias, aligned=True)
        result = result if weight is None else result.scale(weight)
        return result if bias is None else result.add_constant(bias)
    # torch's own layer norm gives both statistics, many times faster than var_mean
    _, mean, scale = x.freeze(name, lambda v: torch.native_layer_norm(v, shape, None, None, eps), "routing")
    weight = torch.ones_like(scale[:1]) if weight is None else weight
    if x.run.settings.norm_mean == "linear":
        result = centred(x, dims).scale(scale).scale(weight)
        return result if bias is None else result.add_constant(bias)

    def shift() -> Tensor:
        moved = -mean * scale
        return moved * weight if bias is None else torch.addcmul(bias, moved, weight)

    # Two factors instead of their product: what the backward pass needs of them is small.
    return x.linear(affine, scale, weight, bias=shift, aligned=True)


def _scaled(x: Scores, dims: tuple[int, ...], eps: float) -> Any:
    """x over the root of the mean of its squares, which depends on x: they change by (r + a) times what x does."""
    value, start, aligned = x.value, x.start, 0 not in dims
    if x.run.settings.biases_in_reference:
        here, there = ((v.square().mean(dims, keepdim=True) + eps).rsqrt() for v in (value, start))
        unknown = there.isinf()  # the model has no value at such a reference: as if frozen
        both = here * there
        slope = (-both * both / (here + there)).masked_fill_(unknown, 0)
        scale = x.linear(lambda v, w: (v * w).mean(dims, keepdim=True), (value + start) * slope, aligned=aligned)
        scale = scale.rebase(torch.where(unknown, here, there))
        record(scale, SCALE, None, here)
    else:
        squares = x.linear(lambda v, w: (v * w).mean(dims, keepdim=True), value + start, aligned=aligned)
        squares = squares if x.reference is None else squares.rebase(start.square().mean(dims, keepdim=True))
        scale = inverse_root(squares.add_constant(torch.full_like(squares.value, eps)))
    return x.product(scale, torch.mul, ends=True)


@rule("layer_norm", in_place=False)
def layer_norm(
    x: Scores, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: bool = True
) -> Any:
    count = 1 if isinstance(normalized_shape, int) else len(normalized_shape)
    return _normalised(x, "layer_norm", count, eps, weight, bias)


@rule("rms_norm", in_place=False)
def rms_norm(x: Scores, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    count = 1 if isinstance(normalized_shape, int) else len(normalized_shape)
    dims = tuple(range(-count, 0))
    eps = torch.finfo(x.template.dtype).eps if eps is None else eps
    if x.run.settings.norms == "open":
        result = _scaled(x, dims, eps)
        return result if weight is None else result.scale(weight)
    scale: Tensor = x.freeze("rms_norm", lambda v: (v.square().mean(dims, keepdim=True) + eps).rsqrt(), "routing")
    return x.scale(scale if weight is None else scale * weight)


def _channels(parameter: Any, ndim: int) -> Any:
    return None if parameter is None else parameter.view(-1, *(1,) * (ndim - 2))


@rule("group_norm", in_place=False)
def group_norm(
    x: Scores, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Any:
    shape = x.shape
    groups = x.reshape(lambda v: v.reshape(shape[0], num_groups, -1), aligned=True)
    whole = _normalised(groups, "group_norm", 1, eps, *(_grouped(p, groups.shape, shape) for p in (weight, bias)))
    return whole.reshape(lambda v: v.reshape(shape), aligned=True)


def _grouped(parameter: Any, groups: torch.Size, shape: torch.Size) -> Any:
    """One number per channel, spread over the elements of each group."""
    if parameter is None:
        return None
    return _channels(parameter, len(shape)).expand(shape[1:]).reshape(groups[1:])


@rule("instance_norm", in_place=False)
def instance_norm(
    x: Scores,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:
    if not use_input_stats:
        from .linear import batch_norm

        return batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    weight, bias = (_channels(p, x.ndim) for p in (weight, bias))
    return _normalised(x, "instance_norm", x.ndim - 2, eps, weight, bias)


@rule(torch.instance_norm, name="instance_norm")
def instance_norm_builtin(x: Scores, weight: Any, bias: Any, mean: Any, var: Any, *more: Any) -> Any:
    """torch's own function has its arguments in another order."""
    return instance_norm(x, mean, var, weight, bias, *more[:3])


def _dims(x: Scores, dim: Any) -> tuple[int, ...]:
    chosen = tuple(range(x.ndim)) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    return tuple(d % x.ndim for d in chosen)


@rule("var", in_place=False)
def var(x: Scores, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Any:
    """The mean of the squared distances from the mean, operation by operation."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    dims = _dims(x, dim)
    correction = (1 if unbiased is not False else 0) if correction is None else correction
    count = math.prod(x.shape[d] for d in dims)
    squares = centred(x, dims).elementwise(torch.square, keeps_zero=True, routing=True)
    total = squares.linear(lambda v: v.sum(dims, keepdim=keepdim), aligned=0 not in dims)
    return total.scale(1 / max(count - correction, 0))


@rule("std", in_place=False)
def std(x: Scores, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Any:
    variance = var(x, dim, unbiased, keepdim, correction=correction)
    result = variance.elementwise(finite(x, "std", torch.sqrt), keeps_zero=True, routing=True)
    return record(result, ROOT, variance)


def _mean(x: Scores, dim: Any, keepdim: bool) -> Any:
    dims = _dims(x, None if isinstance(dim, bool) else dim)
    return x.linear(lambda v: v.mean(dims, keepdim=keepdim), aligned=0 not in dims)


@rule("var_mean", in_place=False)
def var_mean(x: Scores, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Any:
    return var(x, dim, unbiased, keepdim, correction=correction), _mean(x, dim, keepdim)


@rule("std_mean", in_place=False)
def std_mean(x: Scores, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Any:
    return std(x, dim, unbiased, keepdim, correction=correction), _mean(x, dim, keepdim)


@rule("normalize", in_place=False)
def normalize(x: Scores, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None) -> Any:
    """x divided by its frozen norm; of exponentials, the sum of their sizes makes it a softmax."""
    weights = softmax_of(x, F.normalize(x.value, p, dim, eps)) if p == 1 else None
    if weights is not None:
        return weights
    norm: Tensor = x.freeze("normalize", lambda value: value.norm(p, dim, keepdim=True).clamp_min(eps), "routing")
    return x.linear(torch.div, norm, aligned=True)
