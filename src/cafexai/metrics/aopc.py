"""How close is the order of the scores to the best order in which features can be removed?"""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import torch
from torch import Tensor

from .._inputs import at_least
from .curves import top
from .removal import Part, by_removal

_EXACT = 8  # groups up to which all orders are looked at
_MOST = 256  # groups beyond which the search would take days


@by_removal("normalised AOPC", "high")
def normalized_aopc(part: Part, scores: Tensor, *, beam: int | None = None) -> Tensor:
    """(AOPC - lowest) / (highest - lowest) over all orders of the groups (Edin et al. 2024); 1 where all are equal.

    AOPC is the mean of f(x) - f(x without the k highest-scored groups) over k = 1, 2, ... all. Highest and lowest come from a
    beam search and from the orders that are given together. The model is evaluated on about beam x groups^2 versions of a row.

    Args:
        beam: How many of the best sets of every size the search keeps. It is exact if these are all sets, the default for
            up to eight groups; else the default is 5.
    """
    count = part.count
    if count > _MOST:
        raise ValueError(
            f"normalized_aopc(...): the orders of {count} features are too many to be searched; {_MOST} is the most. Put them "
            "into feature_groups, such as cells(x, size) for images."
        )
    if beam is None:
        beam = comb(count, count // 2) if count <= _EXACT else 5
    at_least("normalized_aopc", 1, beam=beam)
    own = part.drops(top(scores, torch.arange(1, count + 1))).mean(-1)
    highest = torch.maximum(_best(part, beam, part.drops), own.amax(1)) if count > 1 else own.amax(1)
    lowest = torch.minimum(-_best(part, beam, lambda away: -part.drops(away)), own.amin(1)) if count > 1 else highest
    span = (highest - lowest)[:, None]
    equal = span <= 1e-12 * torch.maximum(highest.abs(), lowest.abs())[:, None]
    return torch.where(equal, 1, (own - lowest[:, None]) / torch.where(equal, 1, span))


def _best(part: Part, beam: int, gain: Callable[[Tensor], Tensor]) -> Tensor:
    """The largest mean gain along an order of all groups, (rows,), by beam search."""
    count, device = part.count, part.groups.device
    marks = torch.randint(2**62, (count,), generator=torch.Generator().manual_seed(0)).to(device)  # their sum names a set
    away = torch.zeros(len(part.whole), 1, count, dtype=torch.bool, device=device)
    total = torch.zeros(len(away), 1, dtype=torch.float64, device=device)
    for size in range(1, count + 1):
        left = away.byte().argsort(dim=-1, stable=True)[..., : count - size + 1]  # what each set can still take in
        sets = (away[:, :, None] | (left[..., None] == torch.arange(count, device=device))).flatten(1, 2)
        reached = total.repeat_interleave(left.shape[2], 1) + gain(sets)
        reached = reached.masked_fill(_worse_twin(reached, (sets * marks).sum(-1)), -torch.inf)
        total, kept = reached.topk(min(beam, comb(count, size), reached.shape[1]), dim=1)
        away = sets.gather(1, kept[..., None].expand(-1, -1, count))
    return total[:, 0] / count


def _worse_twin(value: Tensor, name: Tensor) -> Tensor:
    """Whether another entry of the row has the same name and a larger value (or the same, and comes first)."""
    order = value.argsort(dim=1, descending=True, stable=True)
    order = order.gather(1, name.gather(1, order).argsort(dim=1, stable=True))
    name = name.gather(1, order)
    twin = torch.zeros_like(name, dtype=torch.bool)
    twin[:, 1:] = name[:, 1:] == name[:, :-1]
    return torch.empty_like(twin).scatter(1, order, twin)
