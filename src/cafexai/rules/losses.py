"""Losses that models compute beside their outputs when they get labels; computed on first use."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._core.math_functions import soft_winners
from .._core.pending import Pending
from .._core.value import Scores
from ..errors import UnsupportedOperation
from .arithmetic import sub
from .linear import total as summed
from .registry import rule


@rule("cross_entropy", in_place=False)
def cross_entropy(
    x: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """logsumexp(x) - x at the label: a maximum with soft edges less one of its elements."""
    if label_smoothing or weight is not None:
        raise UnsupportedOperation("it has weights or smooth labels; write it as logsumexp(x) minus the logit of the label")
    marks, dim = _labels(x, target, ignore_index)

    def compute() -> Any:
        weights, _ = soft_winners(x.value, x.reference, (dim,))
        shares = (weights - marks) * marks.sum(dim, keepdim=True)
        losses = x.linear(lambda v, share: (v * share).sum(dim), shares, aligned=dim > 0)
        start = F.cross_entropy(x.start, target, ignore_index=ignore_index, reduction="none")
        return _reduce(losses.rebase(start), marks, reduction)

    return Pending(x.run, F.cross_entropy(x.value, target, ignore_index=ignore_index, reduction=reduction), compute)


@rule(F.nll_loss, name="nll_loss")
def nll_loss(
    x: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    """Minus the element at the label."""
    if weight is not None:
        raise UnsupportedOperation("it has weights; multiply the logarithms by them")
    marks, dim = _labels(x, target, ignore_index)
    return _reduce(x.linear(lambda v, share: (v * share).sum(dim), -marks, aligned=dim > 0), marks, reduction)


def _labels(x: Scores, target: Any, ignored: int) -> tuple[Tensor, int]:
    """1 at the label of each element that has one, else 0; and the dimension of the classes."""
    if not isinstance(target, Tensor) or target.is_floating_point():
        raise UnsupportedOperation("its labels are not given integers; write it as logsumexp(x) minus the expected logit")
    dim = min(1, x.ndim - 1)
    kept = (target != ignored).unsqueeze(dim)
    places = torch.where(kept, target.unsqueeze(dim), 0)
    return torch.zeros_like(x.value).scatter_(dim, places, kept.to(x.value.dtype)), dim


def _reduce(losses: Any, marks: Tensor, reduction: str) -> Any:
    """The losses, their sum, or their mean over elements with a label."""
    if reduction == "none":
        return losses
    total = losses.linear(lambda v: v.sum())
    return total if reduction == "sum" else total.scale(1 / marks.sum())


def _of_difference(function: Any) -> None:
    """A function of the difference of two values, as mean, sum or element by element."""

    @rule(function, name=function.__name__)
    def apply(a: Any, b: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", **more: Any) -> Any:
        if size_average is not None or reduce is not None or more.pop("weight", None) is not None:
            raise UnsupportedOperation(
                'size_average=, reduce= and weight= are not followed; use reduction="none" and arithmetic'
            )
        parts = sub(a, b).elementwise(lambda v: function(v, torch.zeros_like(v), reduction="none", **more), keeps_zero=True)
        if reduction == "none":
            return parts
        return summed(parts).scale(1 / parts.template.numel() if reduction == "mean" else 1)


for _function in (F.mse_loss, F.l1_loss, F.smooth_l1_loss):
    _of_difference(_function)
