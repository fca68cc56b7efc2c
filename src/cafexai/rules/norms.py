"""Normalisations: their statistics are frozen at the current value, or open.

The mean, too, is a constant in the paper, so that it counts as a bias; with ``norm_mean="linear"`` it is the linear map
that it is, and its effect goes to the features. A normalisation spelled out in arithmetic is of this second kind.

With ``norms="open"`` the deviation sigma depends on the input as it does in the model. n = m / sigma, m being the value minus
its mean, changes as a quotient does in halves: with bars for the mean of input and reference,

    dn = dm / sigma_bar - n_bar d sigma / sigma_bar,    d sigma = mean(m_bar dm) / sigma_bar,

which is exact, as n sigma = m and sigma ** 2 = mean(m ** 2) + eps at both ends. It is symmetric in both, and stays finite where
one of them has no variance. So the reference is the model itself at the baseline.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._core.math_functions import affine
from .._core.pending import Pending
from .._core.provenance import ROOT, TERMS, kind_of, record
from .._core.value import Scores
from .elementwise import finite
from .fused_norm import NormStep
from .recognise import softmax_of
from .registry import rule


def subtract_mean(x: Scores, dims: tuple[int, ...]) -> Any:
    """x minus its mean over dims, a linear map with 1 - 1/n on the diagonal and -1/n beside it."""
    n = math.prod(x.shape[dim] for dim in dims)

    def centre(v: Tensor, own: float, other: float) -> Tensor:
        return v - v.mean(dims, keepdim=True) if other < 0 else own * v + other * (v.sum(dims, keepdim=True) - v)

    return x.linear(centre, 1 - 1 / n, -1 / n, aligned=0 not in dims)


def _normalise(x: Scores, name: str, count: int, eps: float, weight: Any, bias: Any) -> Any:
    """(x - mean) / sigma * weight + bias over the last ``count`` dimensions; weight and bias in the shape that meets x."""
    shape, dims = x.shape[x.ndim - count :], tuple(range(x.ndim - count, x.ndim))
    if x.run.settings.norms == "open":
        return _affine(_over_deviation(subtract_mean(x, dims), dims, eps), weight, bias)
    # torch's own layer norm gives both statistics, many times faster than var_mean
    _, mean, scale = x.freeze(name, lambda v: torch.native_layer_norm(v, shape, None, None, eps), "routing")
    weight = torch.ones_like(scale[:1]) if weight is None else weight
    if x.run.settings.norm_mean == "linear":
        result = subtract_mean(x, dims).scale(scale).scale(weight)
        return result if bias is None else result.add_constant(bias)

    def shift() -> Tensor:
        moved = -mean * scale
        return moved * weight if bias is None else torch.addcmul(bias, moved, weight)

    # Two factors instead of their product: what the backward pass needs of them is small.
    return x.linear(affine, scale, weight, bias=shift, aligned=True)


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    if weight is not None and bias is not None:
        return x.linear(affine, weight, bias=bias, aligned=True)
    x = x if weight is None else x.scale(weight)
    return x if bias is None else x.add_constant(bias)


def _over_deviation(x: Scores, dims: tuple[int, ...], eps: float) -> Any:
    """x over the root of the mean of its squares, which depends on x."""
    here, there = ((v.square().mean(dims, keepdim=True) + eps).sqrt() for v in (x.value, x.start))
    return x.quotient(_length(x, here, there, lambda v: v.mean(dims, keepdim=True), 0 not in dims), here)


def _length(x: Scores, here: Tensor, there: Tensor, gather: Callable[[Tensor], Tensor], aligned: bool) -> Any:
    """The root of gathered squares (and a constant): it changes by the gathered (a + r) times what x does, over its sum."""
    both = here + there
    weights = (x.value + x.start) / torch.where(both == 0, 1, both)
    return x.linear(lambda v, w: gather(v * w), weights, aligned=aligned).rebase(there)


@rule("layer_norm", in_place=False)
def layer_norm(
    x: Scores, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: bool = True
) -> Any:
    count = 1 if isinstance(normalized_shape, int) else len(normalized_shape)
    if x.run.settings.norms != "open" or count == x.ndim or eps == 0:
        return _normalise(x, "layer_norm", count, eps, weight, bias)
    x = x.full() if isinstance(x, Pending) else x
    step = NormStep.of(x, count, eps, True, weight, bias)
    return x.take_step((x,), step, lambda: _normalise(x, "layer_norm", count, eps, weight, bias))


@rule("rms_norm", in_place=False)
def rms_norm(x: Scores, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    count = 1 if isinstance(normalized_shape, int) else len(normalized_shape)
    dims = tuple(range(x.ndim - count, x.ndim))
    eps = torch.finfo(x.template.dtype).eps if eps is None else eps
    if x.run.settings.norms != "open":
        scale: Tensor = x.freeze("rms_norm", lambda v: (v.square().mean(dims, keepdim=True) + eps).rsqrt(), "routing")
        return x.scale(scale if weight is None else scale * weight)
    x = x.full() if isinstance(x, Pending) else x

    def composed() -> Any:
        return _affine(_over_deviation(x, dims, eps), weight, None)

    if count == x.ndim or eps == 0:
        return composed()
    return x.take_step((x,), NormStep.of(x, count, eps, False, weight, None), composed)


def _channels(parameter: Any, ndim: int) -> Any:
    return None if parameter is None else parameter.view(-1, *(1,) * (ndim - 2))


@rule("group_norm", in_place=False)
def group_norm(
    x: Scores, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Any:
    shape = x.shape
    groups = x.reshape(lambda v: v.reshape(shape[0], num_groups, -1), aligned=True)
    whole = _normalise(groups, "group_norm", 1, eps, *(_spread_groups(p, groups.shape, shape) for p in (weight, bias)))
    return whole.reshape(lambda v: v.reshape(shape), aligned=True)


def _spread_groups(parameter: Any, groups: torch.Size, shape: torch.Size) -> Any:
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
    return _normalise(x, "instance_norm", x.ndim - 2, eps, weight, bias)


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
    squares = subtract_mean(x, dims).elementwise(torch.square, keeps_zero=True, routing=True)
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
    """x divided by its norm; of exponentials, the sum of their sizes makes it a softmax."""
    weights, made_by = None, x.made_by
    if p == 1 and made_by is not None and kind_of(x) == TERMS:
        weights = softmax_of(x, F.normalize(x.value, p, dim, eps), lambda v: made_by.apply(v).sum(dim, keepdim=True))
    return of_length_one(x, "normalize", p, dim, eps) if weights is None else weights


def of_length_one(x: Scores, name: str, p: float, dim: Any, eps: float) -> Any:
    """x divided by its norm of order p, which is at least eps."""
    dims = _dims(x, dim)
    here, there = (v.norm(p, dims, keepdim=True) for v in (x.value, x.start))
    if x.run.settings.norms != "open":
        return x.linear(torch.div, x.freeze(name, lambda _: here.clamp_min(eps), "routing"), aligned=True)
    with x.run.secants():
        if p == 2:
            length = _length(x, here, there, lambda v: v.sum(dims, keepdim=True), 0 not in dims)
        else:
            from .reductions import vector_norm

            length = vector_norm(x, p, dims, True)
        length = length.elementwise(lambda v: v.clamp_min(eps))
        return x.quotient(length.full() if isinstance(length, Pending) else length, here.clamp_min(eps))
