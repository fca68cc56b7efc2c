"""Corrections for texts and other codes, which have no noise: the model is evaluated with random features at their baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .._core.tolerance import widest
from .._engine.evaluate import Asked, evaluate, without
from .._engine.feature_sets import FeatureSets, feature_sets
from .._engine.job import Batch, Job
from ..explanation import Explanation
from .fit import Fit, fit_correction

if TYPE_CHECKING:
    from .refine import Refine

SHARE = 0.25  # of the features that are removed in each evaluation


def fit_by_removal(job: Job, explanation: Explanation, refine: Refine) -> list[Fit]:
    """One fit per row: random features (tokens, words, groups) are set to their baseline, as ``explain`` compares them."""
    sets = feature_sets(job, [x.shape[1:] for x in job.given.tensors])
    return [_fit_row(job, explanation, refine, row, sets.take(slice(row, row + 1))) for row in range(job.given.rows)]


def _fit_row(job: Job, explanation: Explanation, refine: Refine, row: int, sets: FeatureSets) -> Fit:
    rows = slice(row, row + 1)
    batches = [job.batch(rows, number) for number in range(len(job.stack))]  # the scores are means over the baselines
    against = None if explanation.against is None else explanation.against[rows]
    asked = Asked(explanation.target[rows], against, explanation.meta.final)
    present = torch.stack([sets.sum(_find_away(batch)) > 0 for batch in batches]).any(0)
    lost = _draw(refine, present[0])
    scores, output = explanation.flat(explanation.combined)[rows], explanation.output[rows]
    wide = widest(output.device)
    answers = []
    for one in lost:
        away = sets.spread(one[None])
        answers.append(torch.stack([evaluate(job, without(batch, away), asked) for batch in batches]).mean(0))
    change = (output[:, None] - torch.stack(answers, 1)).to(wide)
    return fit_correction(lost[None].to(wide), present, scores.to(wide), change, refine.ridge)


def _draw(refine: Refine, present: Tensor) -> Tensor:
    """Which features each evaluation removes, (samples, features); of a row with few features at least one."""
    generator = torch.Generator(present.device).manual_seed(refine.seed)
    draws = torch.rand(refine.samples, len(present), generator=generator, device=present.device)
    draws = draws.masked_fill(~present, 2)
    count = max(1, round(SHARE * int(present.sum())))
    return (draws.argsort(1).argsort(1) < count) & present


def _find_away(batch: Batch) -> Tensor:
    """The elements that are not at their baseline, (rows, elements) with 0 and 1."""
    pairs = zip(batch.tensors, batch.references, strict=True)
    away = [torch.ones_like(x, dtype=torch.bool) if r is None else x != r.to(x) for x, r in pairs]
    return torch.cat([part.flatten(1) for part in away], 1).to(widest(away[0].device))
