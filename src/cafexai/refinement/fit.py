"""The fit behind refined scores.

Scores predict that a row loses sum(lost * scores) of its output when it is perturbed, where ``lost`` is the share of its
distance to the baseline that each feature loses. What they miss is fitted by a ridge regression around them. The corrections
of features that differ from their baseline are kept to the sum 0. The others have nothing to lose: what is fitted for them is
the change per unit, which is no contribution and stays apart.

Where the slopes of the model at the perturbed rows are known, too, their mean says for every feature at once what noise around
the row does to the output (for normal noise it is the best linear prediction). The scores are moved towards it, as far as the
answers at these rows agree; the regression is left for features without slopes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Fit(NamedTuple):
    """What the evaluations say of some rows."""

    correction: Tensor  # (rows, features): of all that differ from their baseline, sum 0
    absent: Tensor  # (rows, features): of those at their baseline, the change per unit
    correction_error: Tensor  # (rows, features): standard errors of both (jackknife: samples are held out in pairs)
    combined_error: Tensor  # (rows,): root mean square of what the scores miss
    refined_error: Tensor  # (rows,): the same of the corrected scores, at samples that are held out of the fit


def fit_correction(lost: Tensor, present: Tensor, scores: Tensor, change: Tensor, ridge: float) -> Fit:
    """min |change - lost (scores + d)|^2 + ridge * features * |spread d|^2, the sum of d over present features being 0.

    lost (rows, samples, features), present and scores (rows, features), change (rows, samples). The spread of a feature is
    the root mean square of what it loses, so that units do not matter.
    """
    samples, features = lost.shape[1:]
    spread = lost.square().mean(1).sqrt()
    size = torch.where(spread > 0, 1 / spread, torch.zeros_like(spread))
    design = lost * size[:, None]
    kept = torch.nn.functional.normalize(size * present, dim=1)[:, None]  # what would change the sum
    design = design - (design @ kept.mT) * kept
    strength = ridge * (spread > 0).sum(1).clamp_min(1).to(lost)[:, None, None]
    missed = (change - (lost @ scores[..., None])[..., 0])[..., None]
    few, other = (design, design.mT) if samples <= features else (design.mT, design)
    solved = torch.linalg.solve(few @ other + strength * torch.eye(len(few[0]), dtype=lost.dtype, device=lost.device), few)
    weights = solved.mT if samples <= features else solved  # (rows, features, samples)
    found = weights @ missed
    held_out = _miss_left_out(missed - design @ found, design @ weights)
    correction = size * found[..., 0]
    pairs = (weights * held_out.mT).unflatten(2, (-1, 2)).sum(-1)  # what the fit without a pair differs by
    error = size * (pairs.square().sum(-1) * (1 - 2 / samples)).sqrt()
    zero = torch.zeros_like(correction)
    means = (part[..., 0].square().mean(1).sqrt() for part in (missed, held_out))
    return Fit(torch.where(present, correction, zero), torch.where(present, zero, correction), error, *means)


def _miss_left_out(missed: Tensor, hat: Tensor) -> Tensor:
    """What the fit without a sample and its neighbour, which may be its mirror image, misses there; (rows, samples, 1)."""
    one, other = missed.unflatten(1, (-1, 2))[..., 0].unbind(2)
    own, cross = hat.diagonal(dim1=1, dim2=2), hat.diagonal(offset=1, dim1=1, dim2=2)[:, ::2]
    first, second = 1 - own[:, ::2], 1 - own[:, 1::2]
    both = torch.stack([second * one + cross * other, cross * one + first * other], 2)
    return (both / (first * second - cross.square())[..., None]).flatten(1)[..., None]


def fit_slopes(lost: Tensor, present: Tensor, scores: Tensor, change: Tensor, slopes: Tensor, ridge: float) -> Fit:
    """The same with the slopes of all samples as scores, (rows, samples, features); NaN where a feature has none.

    Errors are by jackknife: the whole fit is made again without each pair of samples.
    """
    samples = lost.shape[1]
    whole = _around_slopes(lost, present, scores, change, slopes, ridge)
    missed, apart = [], []
    for first in range(0, samples if samples > 2 else 0, 2):
        rest = [place for place in range(samples) if place - first not in (0, 1)]
        part = _around_slopes(lost[:, rest], present, scores, change[:, rest], slopes[:, rest], ridge)
        out = slice(first, first + 2)
        missed.append(change[:, out] - (lost[:, out] @ (scores + part)[..., None])[..., 0])
        apart.append(part - whole)
    before = change - (lost @ scores[..., None])[..., 0]
    after = torch.cat(missed, 1) if missed else change - (lost @ (scores + whole)[..., None])[..., 0]
    error = (torch.stack(apart).square().sum(0) * (1 - 2 / samples)).sqrt() if apart else torch.zeros_like(whole)
    zero = torch.zeros_like(whole)
    sizes = (part.square().mean(1).sqrt() for part in (before, after))
    return Fit(torch.where(present, whole, zero), torch.where(present, zero, whole), error, *sizes)


def _around_slopes(lost: Tensor, present: Tensor, scores: Tensor, change: Tensor, slopes: Tensor, ridge: float) -> Tensor:
    """The correction of all features."""
    step = slopes.mean(1) - scores
    without = step.isnan()
    step = _keep_sum(torch.where(without, torch.zeros_like(step), step), lost, present & ~without)
    missed = change - (lost @ scores[..., None])[..., 0]
    foretold = (lost @ step[..., None])[..., 0]
    size = foretold.square().sum(1)
    share = (foretold * missed).sum(1) / torch.where(size > 0, size, torch.ones_like(size))
    step = share.clamp(0, 1)[:, None] * step
    if not bool(without.any()):
        return step
    rest = fit_correction(lost, present, scores + step, change, ridge)
    return step + rest.correction + rest.absent


def _keep_sum(step: Tensor, lost: Tensor, present: Tensor) -> Tensor:
    """The step nearest to this one, in what it foretells, that leaves the sum over present features as it is."""
    spread = lost.square().mean(1)
    able = present & (spread > 0)
    weights = torch.where(able, 1 / torch.where(able, spread, torch.ones_like(spread)), torch.zeros_like(spread))
    total = weights.sum(1, keepdim=True)
    step = torch.where(present & (total == 0), torch.zeros_like(step), step)  # nothing could make up for it
    gap = (step * present).sum(1, keepdim=True)
    return step - gap * weights / torch.where(total > 0, total, torch.ones_like(total))
