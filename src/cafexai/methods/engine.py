"""Methods that run on our engine: CAFE itself, DeepLIFT and LRP, on the model as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..explain import CAFE
from ..scores import Scores
from .case import one_tensor
from .deeplift import RelevanceScores, RescaleScores, RevealCancelScores


def cafe(
    model: Any,
    x: Any,
    *,
    target: Any = None,
    baselines: Any = None,
    feature_mask: Any = None,
    c: float | Mapping[str, float] = 0.5,
    netting: str = "path",
) -> Tensor:
    """The combined scores of CAFE; ``CAFE(model).explain`` has them apart, with the biases."""
    return CAFE(model, c, netting).attribute(one_tensor("cafe", model, x), baselines, target)


def _carried(name: str, carrier: type[Scores], model: Any, x: Any, target: Any, baselines: Any) -> Tensor:
    explainer = CAFE(model)
    explainer.carrier = carrier
    return explainer.attribute(one_tensor(name, model, x), baselines, target)


def deeplift_rescale(model: Any, x: Any, *, target: Any = None, baselines: Any = None, feature_mask: Any = None) -> Tensor:
    """DeepLIFT, Rescale rule, for any elementwise function, functional or reused."""
    return _carried("deeplift_rescale", RescaleScores, model, x, target, baselines)


def deeplift_revealcancel(model: Any, x: Any, *, target: Any = None, baselines: Any = None, feature_mask: Any = None) -> Tensor:
    """DeepLIFT, RevealCancel rule: what cancels is shared out by the mean over both orders."""
    return _carried("deeplift_revealcancel", RevealCancelScores, model, x, target, baselines)


def lrp(model: Any, x: Any, *, target: Any = None, baselines: Any = None, feature_mask: Any = None) -> Tensor:
    """LRP-0; it knows no baseline. Biases keep their part of the relevance."""
    return _carried("lrp", RelevanceScores, model, x, target, None)
