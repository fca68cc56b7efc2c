"""The methods that are compared, all from the same model, input and target."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import Tensor, nn

from cafexai import CAFE
from workloads import Case

BASE = "forward + backward"
DEEPLIFT = "DeepLIFT (Captum)"
COMPILED = ", compiled"
SIDE_LINES = ("IG, 50 steps (Captum)", "DeepExplainer (SHAP)")  # tens of times slower: their last digit matters less
Way = Callable[[], object]


def training_step(model: nn.Module, x: Tensor, target: Tensor) -> None:
    """What one step of training costs: gradients of the parameters and of the input."""
    model.zero_grad()
    leaf = x.clone().requires_grad_()
    model(leaf)[torch.arange(len(x)), target].sum().backward()


def input_gradient(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """The gradient of the input alone."""
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(model(leaf)[torch.arange(len(x)), target].sum(), leaf)[0]


def with_compiling(mode: str, way: Way) -> Way:
    """The way with fused kernels switched on or off."""

    def run() -> object:
        os.environ["CAFEXAI_COMPILE"] = mode
        return way()

    return run


def ours(model: nn.Module, x: Tensor, target: Tensor, compiled: bool) -> dict[str, Way]:
    """Our two methods, the check of the law included."""
    cafe = CAFE(model)
    ways: dict[str, Way] = {
        "attribute": lambda: cafe.attribute(x, target=target),
        "explain": lambda: cafe.explain(x, target=target),
    }
    plain = {name: with_compiling("never", way) for name, way in ways.items()}
    fused = {name + COMPILED: with_compiling("always", way) for name, way in ways.items()}
    return {**plain, **fused} if compiled else plain


def theirs(model: nn.Module, x: Tensor, target: Tensor) -> dict[str, Way]:
    """The methods of Captum and SHAP; DeepLIFT is timed also where its numbers are wrong.

    SHAP goes through all rows and classes one by one: not on images and texts, where that takes many minutes. Integrated
    gradients are 50 gradients, and left out where these take minutes.
    """
    from captum.attr import DeepLift, InputXGradient, IntegratedGradients
    from shap import DeepExplainer

    background = torch.zeros_like(x[:1])
    whole = 50 * len(x) <= 50_000
    ways: dict[str, Way] = {
        "gradient x input (Captum)": lambda: InputXGradient(model).attribute(x, target=target),
        DEEPLIFT: lambda: DeepLift(model).attribute(x, target=target),
    }
    if x[0].numel() < 50_000:
        ways["IG, 50 steps (Captum)"] = lambda: IntegratedGradients(model).attribute(
            x, target=target, n_steps=50, internal_batch_size=None if whole and x[0].numel() < 1000 else len(x)
        )
    if x[0].numel() < 1000:
        ways["DeepExplainer (SHAP)"] = lambda: DeepExplainer(model, background).shap_values(x)
    return ways


def all_ways(case: Case, compiled: bool) -> dict[str, Way]:
    """Everything that is compared on one case."""
    model, x, target = case.make()
    return {
        BASE: lambda: training_step(model, x, target),
        "input gradient": lambda: input_gradient(model, x, target),
        **theirs(model, x, target),
        **ours(model, x, target, compiled),
    }
