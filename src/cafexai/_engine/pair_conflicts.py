"""The exact conflict map of pairs of features, and what single removals do not show of it.

f(S) is the explained number with the features S at their baseline. e_i = f() - f(i) is what feature i does alone. The map is
Definition 4 for single features: M_ij is the larger of the counteractions of i and j. Single removals show
V_ij = min(|e_i|, |e_j|) if e_i and e_j have different signs, else 0. hidden_ij = max(0, M_ij - V_ij).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from .._core.tolerance import gap, tolerance
from .._extras import progress
from ..explanation import Explanation
from ..explanation.conflict import counteraction
from .evaluate import Asked, evaluate, evaluate_together, without
from .feature_sets import FeatureSets, feature_sets
from .job import Job

AT_ONCE = 4096  # rows that are evaluated at a time


@dataclass(frozen=True)
class PairMap:
    """Exact conflicts between pairs of features of each row, from evaluations of the model."""

    features: Tensor  # (rows, m): which features
    conflict: Tensor  # (rows, m, m): M, symmetric
    visible: Tensor  # (rows, m, m): V, symmetric
    alone: Tensor  # (rows, m): e, what each feature does alone
    beside: Tensor  # (rows, m, m): [i, j] is what j does once i is at its baseline
    evaluations: int  # per row

    @property
    def hidden(self) -> Tensor:
        """(rows, m, m): what single removals do not show."""
        return (self.conflict - self.visible).clamp_min(0)


def count_evaluations(features: int) -> int:
    """Evaluations per row of an exact map: none removed, one and two."""
    return 1 + features + features * (features - 1) // 2


def map_pairs(job: Job, explanation: Explanation, features: Tensor, baseline: int = 0) -> PairMap:
    """The exact map of some features, (rows, m), of each row of an explanation, against one of its baselines."""
    rows, many = features.shape
    pairs = list(itertools.combinations(range(many), 2))
    sets = [(), *((one,) for one in range(many)), *pairs]
    of = feature_sets(job, [x.shape[1:] for x in job.given.tensors])
    removed = torch.zeros(len(sets), rows, of.count, dtype=torch.bool)
    for place, members in enumerate(sets):
        if members:
            removed[place].scatter_(1, features[:, list(members)], True)
    values = _evaluate_sets(job, explanation, removed, of, baseline).double()
    y, single = values[0], values[1 : 1 + many].T
    joint = y.new_zeros(rows, many, many)
    for place, (i, j) in enumerate(pairs):
        joint[:, i, j] = joint[:, j, i] = values[1 + many + place]
    alone = y[:, None] - single
    beside = single[:, :, None] - joint
    own = torch.eye(many, dtype=torch.bool)
    one_way = counteraction(alone[:, :, None].expand_as(beside), beside).masked_fill(own, 0)
    opposed = alone[:, :, None] * alone[:, None, :].sign() < 0
    smaller = torch.minimum(alone[:, :, None].abs(), alone[:, None, :].abs())
    visible = torch.where(opposed, smaller, torch.zeros_like(smaller))
    conflict = torch.maximum(one_way, one_way.mT)
    return PairMap(features, conflict, visible, alone, beside.masked_fill(own, 0), len(sets))


def _evaluate_sets(job: Job, e: Explanation, removed: Tensor, of: FeatureSets, baseline: int) -> Tensor:
    """The explained number of every row with each set of features at the baseline. ``removed``: (sets, rows, features)."""
    batch, rows = job.batch(reference=baseline), len(e)
    asked = Asked(e.target, e.against, e.meta.final)
    step = max(1, AT_ONCE // rows)
    told = f"evaluating the model, {len(removed)} times a row"
    starts = range(0, len(removed), step)
    found = []
    together = not job.arguments() and not of.by_row and step > 1
    for start in progress(starts, told, "batch", job.request.show_progress):
        part = removed[start : start + step]
        values = evaluate_together(job, batch, asked, _spread(of, part)) if together else None
        if values is None or (start == 0 and gap(values[0], e.output.to(values)) > tolerance(values.dtype)):
            together = False  # the model does not treat each row by itself
            values = torch.stack([evaluate(job, without(batch, of.spread(one)), asked) for one in part])
        found.append(values)
    return torch.cat(found)


def _spread(of: FeatureSets, removed: Tensor) -> Tensor:
    """Sets of features, (sets, rows, features), as sets of elements."""
    return of.spread(removed.flatten(0, 1)).unflatten(0, removed.shape[:2])
