"""Captum's metrics take the explainer as it is."""

from __future__ import annotations

import torch
from captum.metrics import infidelity, sensitivity_max

import models
from cafexai import CAFE


def test_sensitivity_max_calls_attribute_as_it_is():
    model, x = models.mlp(5, 16, 3), torch.randn(6, 5)
    cafe = CAFE(model)
    score = sensitivity_max(cafe.attribute, x, target=torch.tensor([0, 1, 2, 0, 1, 2]), n_perturb_samples=3)
    assert score.shape == (6,)
    assert (score > 0).all()
    score = sensitivity_max(cafe.attribute, x, baselines=torch.randn(6, 5), target=1)
    assert score.isfinite().all()


def test_infidelity_takes_the_scores():
    model, x = models.mlp(5, 16, 3), torch.randn(6, 5)
    attributions = CAFE(model).attribute(x, target=1)

    def perturb(inputs):
        noise = 0.1 * torch.randn_like(inputs)
        return noise, inputs - noise

    score = infidelity(model, perturb, x, attributions / x, target=1, normalize=True)
    nothing = infidelity(model, perturb, x, torch.zeros_like(x), target=1, normalize=True)
    assert score.shape == (6,)
    assert score.mean() <= nothing.mean() * 1.01


def test_equals_captums_gradient_times_input_at_c_0():
    from captum.attr import InputXGradient

    model, x = models.mlp(5, 16, 16, 3, bias=False), torch.randn(6, 5)
    torch.testing.assert_close(
        CAFE.published(model, 0.0).attribute(x, target=2), InputXGradient(model).attribute(x, target=2).detach()
    )
