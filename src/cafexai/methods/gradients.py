"""Methods made of plain gradients, from Captum: right on any model that torch can differentiate."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._extras import needs
from .._inputs import at_least
from .case import Case, drawing, method

AT_ONCE = 2**24  # numbers that the model gets in one call


def _mean_over_baselines(given: Case, attribute: Callable[..., Tensor]) -> Tensor:
    scores = [attribute(baseline) for baseline in given.starts]
    return (torch.stack(scores).mean(0) if len(scores) > 1 else scores[0]).detach()


def _captum(method: str, given: Case) -> Any:
    return getattr(needs("captum.attr", "captum"), method)(given.model)


def _leaf(x: Tensor) -> Tensor:
    """Captum warns about inputs that do not ask for gradients."""
    return x.detach().clone().requires_grad_()


@method(baselines=False)
def gradient_x_input(given: Case) -> Tensor:
    """Gradient times input, without a baseline."""
    return _captum("InputXGradient", given).attribute(_leaf(given.x), given.target).detach()


@method()
def integrated_gradients(given: Case, *, n_steps: int = 50) -> Tensor:
    """Integrated Gradients (Sundararajan et al. 2017).

    Args:
        n_steps: Points of Gauss-Legendre on the way from the baseline to the row.
    """
    at_least(given.name, 1, n_steps=n_steps)
    explainer = _captum("IntegratedGradients", given)
    step = max(1, AT_ONCE // (n_steps * given.groups.numel()))
    parts = []
    for start in range(0, len(given.x), step):
        some = given.some(slice(start, start + step))
        parts.append(
            _mean_over_baselines(some, lambda b, some=some: explainer.attribute(_leaf(some.x), b, some.target, n_steps=n_steps))
        )
    return torch.cat(parts)


@method()
def gradient_shap(given: Case, *, n_samples: int = 5, noise: float = 0.0, seed: int = 0) -> Tensor:
    """GradientSHAP (Lundberg and Lee 2017): gradients at random points between the rows and the baselines.

    Args:
        n_samples: Random points per row.
        noise: Standard deviation of the noise that is added to the rows.
        seed: Decides the draws.
    """
    at_least(given.name, 1, n_samples=n_samples)
    explainer = _captum("GradientShap", given)

    def attribute(baseline: Tensor) -> Tensor:
        same = bool((baseline == baseline[:1]).all())
        if not same:
            raise ValueError(
                "gradient_shap(..., baselines=...): give baselines for all rows alike; points are drawn from them."
            )
        return explainer.attribute(_leaf(given.x), baseline[:1], n_samples=n_samples, stdevs=noise, target=given.target)

    with drawing(seed, given.x):
        return _mean_over_baselines(given, attribute)


@method(baselines=False)
def smoothgrad(given: Case, *, n_samples: int = 5, noise: float = 1.0, seed: int = 0) -> Tensor:
    """SmoothGrad (Smilkov et al. 2017) as the paper uses it: mean absolute gradients at noisy rows, times the input.

    Args:
        n_samples: Noisy copies of every row.
        noise: Standard deviation of the noise.
        seed: Decides the draws.
    """
    at_least(given.name, 1, n_samples=n_samples)
    attr = needs("captum.attr", "captum")
    explainer = attr.NoiseTunnel(attr.Saliency(given.model))
    with drawing(seed, given.x), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        slopes = explainer.attribute(_leaf(given.x), nt_samples=n_samples, stdevs=noise, target=given.target)
    return (slopes * given.x).detach()
