"""Minimal conflicts of linear and ReLU units in closed form, from the contributions w (x - r) of their inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .._core.tolerance import all_finite


@dataclass(frozen=True)
class PairConflicts:
    """Minimal conflicts that are pairs. All tensors are (..., features, features)."""

    conflict: Tensor  # features i and j are in a minimal conflict
    counteracts: Tensor  # feature i counteracts feature j
    magnitude: Tensor  # Definition 4


@dataclass(frozen=True)
class Covers:
    """Minimal sets of negative inputs that each counteract every positive input of an inactive ReLU unit."""

    covers: tuple[tuple[int, ...], ...]
    positives: tuple[int, ...]
    complete: bool  # False: the bound was reached, there are more


def _refuse_infinite(call: str, *numbers: Tensor) -> None:
    if not all(map(all_finite, numbers)):
        raise ValueError(f"{call}(...): contributions and values are finite numbers; these hold NaN or infinite ones.")


def linear_conflicts(contributions: Tensor) -> PairConflicts:
    """Proposition 3: the pairs of opposite sign, each counteracting the other.

    Args:
        contributions: (..., features).

    Returns:
        The pairs, (..., features, features).

    Example:
        >>> from cafexai import conflicts
        >>> conflicts.linear_conflicts(torch.tensor([2.0, -1.0])).magnitude
        tensor([[0., 1.],
                [1., 0.]])
    """
    _refuse_infinite("linear_conflicts", contributions)
    sign = contributions.sign()
    conflict = sign[..., :, None] * sign[..., None, :] < 0
    size = contributions.abs()
    magnitude = torch.minimum(size[..., :, None], size[..., None, :]) * conflict
    return PairConflicts(conflict, conflict, magnitude)


def relu_conflicts(contributions: Tensor, value: Tensor) -> PairConflicts:
    """Proposition 4, an active ReLU unit: pairs of opposite sign.

    A negative input always counteracts a positive one; a positive p counteracts a negative -n only if value - p + n > 0.

    Args:
        contributions: (..., features).
        value: The pre-activation, above 0, (...).

    Returns:
        The pairs, (..., features, features).

    Example:
        >>> import torch
        >>> from cafexai import conflicts
        >>> conflicts.relu_conflicts(torch.tensor([2.0, -1.0]), torch.tensor(1.0)).magnitude
        tensor([[0., 1.],
                [1., 0.]])
    """
    _refuse_infinite("relu_conflicts", contributions, value)
    if not bool((value > 0).all()):
        raise ValueError("relu_conflicts(..., value): this form is that of active units; others have inactive_conflicts.")
    own, other, a = contributions[..., :, None], contributions[..., None, :], value[..., None, None]
    from_negative = (own < 0) & (other > 0)
    from_positive = (own > 0) & (other < 0) & (a - own - other > 0)
    p, n = own, -other
    by_positive = torch.minimum(torch.minimum(p, a), torch.relu(a - p + n) - torch.relu(a - p))
    by_negative = torch.minimum(-own, other)
    zero = torch.zeros_like(by_positive)
    size = torch.where(from_negative, by_negative, torch.where(from_positive, by_positive, zero))
    counteracts = from_negative | from_positive
    return PairConflicts(counteracts | counteracts.transpose(-1, -2), counteracts, torch.maximum(size, size.transpose(-1, -2)))


def inactive_conflicts(contributions: Tensor, value: float, bound: int = 10_000) -> Covers:
    """Proposition 5, an inactive ReLU unit: minimal covers of |value|.

    A set of negative inputs counteracts a positive one if removing it makes the unit active, and no part of the set does.

    Args:
        contributions: (features,).
        value: The pre-activation, at most 0.
        bound: List so many covers at most: there can be exponentially many. The result says if there are more.

    Returns:
        The covers.

    Example:
        >>> import torch
        >>> from cafexai import conflicts
        >>> conflicts.inactive_conflicts(torch.tensor([2.0, -1.0, -3.0]), -2.0).covers
        ((2,),)
    """
    _refuse_infinite("inactive_conflicts", contributions, torch.tensor(value))
    if value > 0 or contributions.ndim != 1:
        raise ValueError("inactive_conflicts(contributions, value): give (features,) of one unit whose value is at most 0.")
    sizes = contributions.tolist()
    positives = tuple(i for i, k in enumerate(sizes) if k > 0)
    negatives = sorted((i for i, k in enumerate(sizes) if k < 0), key=lambda i: sizes[i])  # the largest first
    need = -value
    left = [0.0]
    for i in reversed(negatives):
        left.append(left[-1] - sizes[i])
    left.reverse()  # what the inputs from a place on can still bring
    covers: list[tuple[int, ...]] = []
    stack: list[tuple[int, tuple[int, ...], float]] = [(0, (), 0.0)] if positives else []
    while stack:
        place, chosen, total = stack.pop()
        if total > need:
            # In order of size the last input is the smallest: the set is minimal if it is needed.
            if total + sizes[chosen[-1]] <= need:
                if len(covers) == bound:
                    return Covers(tuple(covers), positives, False)
                covers.append(tuple(sorted(chosen)))
            continue
        if place == len(negatives) or total + left[place] <= need:
            continue
        i = negatives[place]
        stack.append((place + 1, chosen, total))
        stack.append((place + 1, (*chosen, i), total - sizes[i]))
    return Covers(tuple(sorted(covers)), positives, True)
