"""Methods that switch groups of features off, for all rows at once: KernelSHAP, LIME and Shapley value sampling.

A feature that is off takes its baseline. As in Captum, every element of a group gets the score of its group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._extras import needs
from .._inputs import at_least
from .case import Case, drawing, method

CERTAIN = 1e6  # weight of the full and of the empty coalition in KernelSHAP, as in Captum
AT_ONCE = 2**21  # numbers that the model gets in one call


@method(group_scores=True)
def kernel_shap(given: Case, *, n_samples: int = 25, seed: int = 0) -> Tensor:
    """KernelSHAP (Lundberg and Lee 2017): a linear model of the output over coalitions, drawn by Shapley's weights.

    Args:
        n_samples: Coalitions per row.
        seed: Decides the draws.
    """
    at_least(given.name, 3, n_samples=n_samples)
    with drawing(seed, given.x):
        on = kernel_shap_draws(len(given.x), int(given.groups.max()) + 1, n_samples)
    return _mean_over_baselines(given, on.to(given.x.device), kernel_shap_scores)


@method(group_scores=True)
def lime(given: Case, *, n_samples: int = 25, alpha: float = 0.01, seed: int = 0) -> Tensor:
    """LIME (Ribeiro et al. 2016) with Captum's choices: coins for each group, cosine distance, a lasso.

    Args:
        n_samples: Coalitions per row.
        alpha: The penalty of the lasso.
        seed: Decides the draws.
    """
    at_least(given.name, 1, n_samples=n_samples)
    with drawing(seed, given.x):
        on = torch.bernoulli(torch.full((len(given.x), n_samples, int(given.groups.max()) + 1), 0.5)).bool()
    return _mean_over_baselines(given, on.to(given.x.device), lime_scores, alpha)


@method(group_scores=True)
def shapley_value_sampling(given: Case, *, n_samples: int = 25, seed: int = 0) -> Tensor:
    """Shapley values from random orders of the features (Strumbelj and Kononenko 2010).

    Args:
        n_samples: Random orders, which all rows share.
        seed: Decides the draws.
    """
    at_least(given.name, 1, n_samples=n_samples)
    features = int(given.groups.max()) + 1
    with drawing(seed, given.x):
        orders = torch.stack([torch.randperm(features) for _ in range(n_samples)])
    return _mean_over_baselines(given, orders.to(given.x.device), shapley_scores)


def shapley_scores(given: Case, baseline: Tensor, orders: Tensor) -> Tensor:
    """What every group adds to those before it, in the mean over orders that all rows share."""
    features = orders.shape[1]
    scores: Tensor = torch.zeros(())
    for order in orders:
        place = order.argsort()  # of each group in the order
        on = place < torch.arange(features + 1, device=order.device)[:, None]
        outputs = _outputs(given, baseline, on.expand(len(given.x), -1, -1))
        scores = scores + outputs.diff(dim=1)[:, place]
    return scores / len(orders)


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
    design, goal = _centre(on.to(outputs), outputs, weights)
    return (torch.linalg.pinv(design) @ goal[..., None])[..., 0]


def lime_scores(given: Case, baseline: Tensor, on: Tensor, alpha: float) -> Tensor:
    """A lasso for each row, weighted by how similar the switched row is to the original."""
    linear_model = needs("sklearn.linear_model", "compare")
    outputs = _outputs(given, baseline, on)
    weights = _similarity(given, baseline, on)
    model = linear_model.Lasso(alpha, random_state=0)  # without one it draws from the numbers of the caller
    scores = []
    parts = (part.cpu().double().numpy() for part in (on, outputs, weights))
    with needs("sklearn", "compare").config_context(assume_finite=True, skip_parameter_validation=True):
        for design, goal, weight in zip(*parts, strict=True):
            scores.append(torch.from_numpy(model.fit(design, goal, sample_weight=weight).coef_))
    return torch.stack(scores).to(outputs)


def _mean_over_baselines(given: Case, on: Tensor, scores: Any, *options: Any) -> Tensor:
    """One score per group, handed to all its elements."""
    with torch.no_grad():
        mean = torch.stack([scores(given, baseline, on, *options) for baseline in given.starts]).mean(0)
    return mean[:, given.groups.flatten()].view(given.x.shape).to(given.x.dtype)


def _switch_features(given: Case, baseline: Tensor, on: Tensor, rows: slice) -> Tensor:
    """(rows, samples, *row)."""
    mask = on[rows][..., given.groups.flatten()].view(*on[rows].shape[:2], *given.groups.shape)
    return torch.where(mask, given.x[rows, None], baseline[rows, None])


def _outputs(given: Case, baseline: Tensor, on: Tensor) -> Tensor:
    """The chosen outputs of all switched rows in float64, (rows, samples)."""
    exact = torch.float64 if given.x.device.type != "mps" else torch.float32
    return _by_rows(given, on, lambda rows: given.some(rows).outputs(_switch_features(given, baseline, on, rows)).to(exact))


def _similarity(given: Case, baseline: Tensor, on: Tensor) -> Tensor:
    def similar(rows: slice) -> Tensor:
        switched = _switch_features(given, baseline, on, rows).flatten(2)
        cosine = torch.cosine_similarity(given.x[rows, None].flatten(2), switched, -1)
        return torch.exp(-((1 - cosine) ** 2) / 2)

    return _by_rows(given, on, similar)


def _by_rows(given: Case, on: Tensor, compute: Callable[[slice], Tensor]) -> Tensor:
    """Some rows at a time, so that their versions fit into memory."""
    step = max(1, AT_ONCE // (on.shape[1] * given.groups.numel()))
    return torch.cat([compute(slice(start, start + step)) for start in range(0, len(on), step)])


def _centre(design: Tensor, goal: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Without the weighted means, which an intercept takes up, and times the roots of the weights."""
    share = weights / weights.sum(1, keepdim=True)
    design = design - (share[..., None] * design).sum(1, keepdim=True)
    goal = goal - (share * goal).sum(1, keepdim=True)
    return design * weights.sqrt()[..., None], goal * weights.sqrt()
