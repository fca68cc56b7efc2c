"""Methods made of plain gradients, from Captum: right on any model that torch can differentiate."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..explanation import needs
from .case import Case, case, drawing


def _mean_over_baselines(given: Case, attribute: Callable[[Tensor], Tensor]) -> Tensor:
    scores = [attribute(baseline) for baseline in given.baselines]
    return (torch.stack(scores).mean(0) if len(scores) > 1 else scores[0]).detach()


def _captum(method: str, given: Case) -> Any:
    return getattr(needs("captum.attr", "captum"), method)(given.model)


def _leaf(x: Tensor) -> Tensor:
    """Captum warns about inputs that do not ask for gradients."""
    return x.detach().clone().requires_grad_()


def gradient_x_input(model: Any, x: Any, *, target: Any = None, baselines: Any = None, feature_mask: Any = None) -> Tensor:
    """Gradient times input; it knows no baseline."""
    given = case("gradient_x_input", model, x, target, None, feature_mask)
    return _captum("InputXGradient", given).attribute(_leaf(given.x), given.target).detach()


def integrated_gradients(
    model: Any, x: Any, *, target: Any = None, baselines: Any = None, feature_mask: Any = None, n_steps: int = 50
) -> Tensor:
    """Integrated Gradients (Sundararajan et al. 2017), ``n_steps`` points of Gauss-Legendre."""
    given = case("integrated_gradients", model, x, target, baselines, feature_mask)
    explainer = _captum("IntegratedGradients", given)
    return _mean_over_baselines(given, lambda b: explainer.attribute(_leaf(given.x), b, given.target, n_steps=n_steps))


def gradient_shap(
    model: Any,
    x: Any,
    *,
    target: Any = None,
    baselines: Any = None,
    feature_mask: Any = None,
    n_samples: int = 5,
    noise: float = 0.0,
    seed: int = 0,
) -> Tensor:
    """GradientSHAP (Lundberg and Lee 2017): gradients at random points between the rows and the baselines."""
    given = case("gradient_shap", model, x, target, baselines, feature_mask)
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


def smoothgrad(
    model: Any,
    x: Any,
    *,
    target: Any = None,
    baselines: Any = None,
    feature_mask: Any = None,
    n_samples: int = 5,
    noise: float = 1.0,
    seed: int = 0,
) -> Tensor:
    """SmoothGrad (Smilkov et al. 2017) as the paper uses it: mean absolute gradients at noisy rows, times the input."""
    given = case("smoothgrad", model, x, target, None, feature_mask)
    attr = needs("captum.attr", "captum")
    explainer = attr.NoiseTunnel(attr.Saliency(given.model))
    with drawing(seed, given.x), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        slopes = explainer.attribute(_leaf(given.x), nt_samples=n_samples, stdevs=noise, target=given.target)
    return (slopes * given.x).detach()
