"""What happens to the output when features are removed, or put back, in the order of their scores?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .._inputs import at_least
from .removal import Part, by_removal

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)


@by_removal("comprehensiveness", "high")
def comprehensiveness(part: Part, scores: Tensor, *, shares: Sequence[float] = SHARES) -> Tensor:
    """f(x) - f(x without the highest-scored groups), mean over shares of the groups (DeYoung et al. 2020), each rounded up.

    Args:
        shares: Shares of the groups that are removed, each above 0 and at most 1.
    """
    return part.drops(top(scores, _counts("comprehensiveness", part.count, shares))).mean(-1)


@by_removal("sufficiency", "low")
def sufficiency(part: Part, scores: Tensor, *, shares: Sequence[float] = SHARES) -> Tensor:
    """f(x) - f(the highest-scored groups alone), mean over shares of the groups (DeYoung et al. 2020), each rounded up.

    Args:
        shares: Shares of the groups that stay, each above 0 and at most 1.
    """
    return part.drops(~top(scores, _counts("sufficiency", part.count, shares))).mean(-1)


@by_removal("deletion", "low")
def deletion(part: Part, scores: Tensor, *, steps: int = 100, normalize: bool = True) -> Tensor:
    """Area under the output while groups are removed, the highest score first (Petsiuk et al. 2018). The path has length 1.

    Args:
        steps: Steps of the path at most.
        normalize: Measure the output from f(all groups removed), in units of its distance to f(x), unless that is 0.
    """
    counts = _evenly("deletion", part.count, steps)
    return _area(part, top(scores, counts), counts, normalize)


@by_removal("insertion", "high")
def insertion(part: Part, scores: Tensor, *, steps: int = 100, normalize: bool = True) -> Tensor:
    """Area under the output while groups are put back, the highest score first (Petsiuk et al. 2018). The path has length 1.

    Args:
        steps: Steps of the path at most.
        normalize: Measure the output from f(all groups removed), in units of its distance to f(x), unless that is 0.
    """
    counts = _evenly("insertion", part.count, steps)
    return _area(part, ~top(scores, counts), counts, normalize)


def top(scores: Tensor, counts: Tensor) -> Tensor:
    """Sets of so many highest-scored groups, (..., groups) to (..., counts, groups); of equal scores the first comes first."""
    place = scores.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
    return place[..., None, :] < counts.to(place.device)[:, None]


def _counts(call: str, groups: int, shares: Sequence[float]) -> Tensor:
    if not len(shares) or not all(0 < share <= 1 for share in shares):
        raise ValueError(f"{call}(..., shares={shares!r}): give shares of the features, each above 0 and at most 1.")
    return torch.tensor([max(1, math.ceil(share * groups - 1e-9)) for share in shares])


def _evenly(call: str, groups: int, steps: int) -> Tensor:
    at_least(call, 1, steps=steps)
    return torch.linspace(0, groups, min(groups, steps) + 1, dtype=torch.float64).round().long()


def _area(part: Part, away: Tensor, counts: Tensor, normalize: bool) -> Tensor:
    if normalize:
        most = part.drops(torch.ones_like(away[:, :1, :1]))  # (rows, 1, 1)
        curve = (most - part.drops(away)) / torch.where(most == 0, 1, most.abs())
    else:
        curve = part.outputs(away).double()
    return torch.trapezoid(curve, (counts / part.count).to(curve), dim=-1)
