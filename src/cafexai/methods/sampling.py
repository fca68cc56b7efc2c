"""Methods that switch groups of features off: KernelSHAP and LIME, for all rows at once, and Shapley value sampling.

A feature that is off takes its baseline. As in Captum, every element of a group gets the score of its group.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..explanation import needs
from .case import Case, case, drawing

CERTAIN = 1e6  # weight of the full and of the empty coalition in KernelSHAP, as in Captum
AT_ONCE = 2**21  # numbers that the model gets in one call


def kernel_shap(
    model: Any,
    x: Any,
    *,
    target: Any = None,
    baselines: Any = None,
    feature_mask: Any = None,
    n_samples: int = 25,
    seed: int = 0,
) -> Tensor:
    """KernelSHAP (Lundberg and Lee 2017): a linear model of the output over coalitions, drawn by Shapley's weights."""
    given = case("kernel_shap", model, x, target, baselines, feature_mask)
    with drawing(seed, given.x):
        on = kernel_shap_draws(len(given.x), int(given.groups.max()) + 1, n_samples)
    return _mean_over_baselines(given, on.to(given.x.device), kernel_shap_scores)


def lime(
    model: Any,
    x: Any,
    *,
    target: Any = None,
    baselines: Any = None,
    feature_mask: Any = None,
    n_samples: int = 25,
    alpha: float = 0.01,
    seed: int = 0,
) -> Tensor:
    """LIME (Ribeiro et al. 2016) with Captum's choices: coins for each group, cosine distance, a lasso."""
    given = case("lime", model, x, target, baselines, feature_mask)
    with drawing(seed, given.x):
        on = torch.bernoulli(torch.full((len(given.x), n_samples, int(given.groups.max()) + 1), 0.5)).bool()
    return _mean_over_baselines(given, on.to(given.x.device), lime_scores, alpha)


def shapley_value_sampling(
    model: Any,
    x: Any,
    *,
    target: Any = None,
    baselines: Any = None,
    feature_mask: Any = None,
    n_samples: int = 25,
    seed: int = 0,
) -> Tensor:
    """Shapley values from random orders of the features (Strumbelj and Kononenko 2010), from Captum."""
    given = case("shapley_value_sampling", model, x, target, baselines, feature_mask)
    explainer = needs("captum.attr", "captum").ShapleyValueSampling(given.model)
    scores = []
    with drawing(seed, given.x), torch.no_grad():
        for baseline in given.baselines:
            options = {"target": given.target, "feature_mask": given.groups[None], "n_samples": n_samples}
            scores.append(explainer.attribute(given.x, baseline, **options))
    return torch.stack(scores).mean(0)


def kernel_shap_draws(rows: int, features: int, n_samples: int) -> Tensor:
    """(rows, samples, features): all on, all off, then k features on with probability ~ 1 / (k (features - k))."""
    on = torch.zeros(rows, n_samples, features, dtype=torch.bool)
    on[:, 0] = True
    if features > 1 and n_samples > 2:
        sizes = torch.arange(1, features, dtype=torch.float64)
        drawn = torch.multinomial(1 / (sizes * (features - sizes)), rows * (n_samples - 2), replacement=True) + 1
        places = torch.rand(rows, n_samples - 2, features).argsort(-1).argsort(-1)
        on[:, 2:] = places < drawn.view(rows, -1, 1)
    return on


def kernel_shap_scores(given: Case, baseline: Tensor, on: Tensor) -> Tensor:
    """Weighted least squares with an intercept for each row; the shortest solution where there are too few samples."""
    outputs = _outputs(given, baseline, on)
    certain = on.all(-1) | ~on.any(-1)
    weights = torch.where(certain, CERTAIN, 1.0).to(outputs)
    design, goal = _centred(on.to(outputs), outputs, weights)
    return (torch.linalg.pinv(design) @ goal[..., None])[..., 0]


def lime_scores(given: Case, baseline: Tensor, on: Tensor, alpha: float) -> Tensor:
    """A lasso for each row, weighted by how similar the switched row is to the original."""
    outputs = _outputs(given, baseline, on)
    weights = _similarity(given, baseline, on).to(outputs)
    samples = on.shape[1]
    weights = weights * samples / weights.sum(1, keepdim=True)
    design, goal = _centred(on.to(outputs), outputs, weights)
    return lasso(design, goal, alpha * samples)


def lasso(design: Tensor, goal: Tensor, penalty: float, steps: int = 2000) -> Tensor:
    """Minimise |design b - goal|^2 / 2 + penalty |b|_1 for each row, by coordinate descent over all rows at once."""
    gram = design.mT @ design
    slope = (design.mT @ goal[..., None])[..., 0]
    scale = gram.diagonal(dim1=1, dim2=2)
    b = torch.zeros_like(slope)
    limit = 64 * torch.finfo(b.dtype).eps * (slope.abs().amax() / scale.amax().clamp_min(1e-30)).item()
    for _ in range(steps):
        before = b.clone()
        for j in range(b.shape[1]):
            rest = slope[:, j] - (gram[:, j] * b).sum(1) + scale[:, j] * b[:, j]
            shrunk = rest.sign() * (rest.abs() - penalty).clamp_min(0)
            b[:, j] = torch.where(scale[:, j] > 0, shrunk / scale[:, j].clamp_min(1e-30), 0)
        if (b - before).abs().max() <= limit:
            break
    return b


def _mean_over_baselines(given: Case, on: Tensor, scores: Any, *options: Any) -> Tensor:
    """One score per group, handed to all its elements."""
    with torch.no_grad():
        mean = torch.stack([scores(given, baseline, on, *options) for baseline in given.baselines]).mean(0)
    return mean[:, given.groups.flatten()].view(given.x.shape).to(given.x.dtype)


def _switched(given: Case, baseline: Tensor, on: Tensor, rows: slice) -> Tensor:
    """(rows, samples, *row)."""
    mask = on[rows][..., given.groups.flatten()].view(*on[rows].shape[:2], *given.groups.shape)
    return torch.where(mask, given.x[rows, None], baseline[rows, None])


def _outputs(given: Case, baseline: Tensor, on: Tensor) -> Tensor:
    """The chosen outputs of all switched rows in float64, (rows, samples)."""
    step = max(1, AT_ONCE // (on.shape[1] * given.groups.numel()))
    parts = []
    for start in range(0, len(on), step):
        rows = slice(start, start + step)
        some = Case(given.model, given.x[rows], given.index[rows], given.sizes, [], given.groups)
        parts.append(some.outputs(_switched(given, baseline, on, rows)))
    exact = torch.float64 if given.x.device.type != "mps" else torch.float32
    return torch.cat(parts).to(exact)


def _similarity(given: Case, baseline: Tensor, on: Tensor) -> Tensor:
    whole = given.x[:, None].flatten(2)
    cosine = torch.cosine_similarity(whole, _switched(given, baseline, on, slice(None)).flatten(2), -1)
    return torch.exp(-((1 - cosine) ** 2) / 2)


def _centred(design: Tensor, goal: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Without the weighted means, which an intercept takes up, and times the roots of the weights."""
    share = weights / weights.sum(1, keepdim=True)
    design = design - (share[..., None] * design).sum(1, keepdim=True)
    goal = goal - (share * goal).sum(1, keepdim=True)
    return design * weights.sqrt()[..., None], goal * weights.sqrt()
