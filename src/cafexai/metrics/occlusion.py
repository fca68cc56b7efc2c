"""Do scores say what happens when features are removed one at a time?"""

from __future__ import annotations

import torch
from torch import Tensor

from .outputs import slices
from .removal import Part, by_removal


@by_removal("occlusion correlation", "high")
def occlusion_correlation(part: Part, scores: Tensor, *, ranks: bool = False) -> Tensor:
    """Correlation of the scores of the groups with f(x) - f(x without the group); 0 where scores or effects are all equal.

    Args:
        ranks: Spearman's correlation instead of Pearson's.
    """
    effects = _effects(part)[:, None]
    return correlation(rank_values(scores), rank_values(effects)) if ranks else correlation(scores, effects)


@by_removal("sign agreement", "high")
def sign_agreement(part: Part, scores: Tensor, *, weighted: bool = True) -> Tensor:
    """The share of the groups whose score has the sign of f(x) - f(x without the group), where 0 is a sign of its own.

    Args:
        weighted: Groups count by the size of that effect; if all effects are 0, equally.
    """
    effects = _effects(part)[:, None]
    weights = effects.abs() if weighted else torch.ones_like(effects)
    total = weights.sum(-1, keepdim=True)
    weights = torch.where(total == 0, 1 / part.count, weights / torch.where(total == 0, 1, total))
    return (weights * (scores.sign() == effects.sign())).sum(-1)


def _effects(part: Part) -> Tensor:
    """f(x) - f(x without the group) of every group, (rows, groups)."""
    rows, every = len(part.whole), torch.arange(part.count, device=part.groups.device)
    single = (every[some, None] == every for some in slices(part.count, rows * len(part.groups)))
    return torch.cat([part.drops(sets.expand(rows, -1, -1)) for sets in single], 1)


def correlation(a: Tensor, b: Tensor) -> Tensor:
    """Pearson's, over the last dimension; 0 where one of the two does not vary by more than rounding."""
    directions = []
    for values in (a, b):
        size = values.abs().amax(-1, keepdim=True)
        values = values / torch.where(size == 0, 1, size)
        apart = values - values.mean(-1, keepdim=True)
        apart = torch.where(apart.abs() < 1e-12, 0, apart)
        length = apart.norm(dim=-1, keepdim=True)
        directions.append(apart / torch.where(length == 0, 1, length))
    return (directions[0] * directions[1]).sum(-1)


def rank_values(values: Tensor) -> Tensor:
    """The place of each value among those of the last dimension; equal ones share the mean of theirs."""
    ordered, values = values.sort(dim=-1).values.contiguous(), values.contiguous()
    return (torch.searchsorted(ordered, values) + torch.searchsorted(ordered, values, right=True)).double() / 2
