"""Operators of ai.onnx.ml, as converters of scikit-learn write them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .._graph import Node
from .registry import FormNotKnown, operator

ML = "ai.onnx.ml"


@operator("Scaler", domain=ML)
def scaler(node: Node, x: Tensor) -> Tensor:
    offset, scale = (torch.tensor(node.get(name), dtype=x.dtype, device=x.device) for name in ("offset", "scale"))
    return (x - offset) * scale


@operator("ZipMap", domain=ML)
def zip_map(node: Node, x: Tensor) -> Tensor:
    """Names beside numbers: the numbers."""
    return x


@operator("LinearRegressor", domain=ML, main=True)
def linear_regressor(node: Node, x: Tensor) -> Tensor:
    return _finish(node, _linear(node, x, node.get("targets", 1)))


@operator("LinearClassifier", domain=ML, main=True)
def linear_classifier(node: Node, x: Tensor) -> tuple[Tensor, Tensor]:
    """The class, which has no scores, and what it is chosen by."""
    count = len(node.get("classlabels_ints") or node.get("classlabels_strings") or node.get("intercepts"))
    scores = _linear(node, x, max(1, len(node.get("coefficients")) // x.shape[-1]))
    if scores.shape[-1] == 1 and count == 2:
        scores = torch.cat([-scores, scores], -1)
    return scores.argmax(-1) if node.outputs[0] else scores, _finish(node, scores)


def _linear(node: Node, x: Tensor, outputs: int) -> Tensor:
    weight = torch.tensor(node.get("coefficients"), dtype=x.dtype, device=x.device).view(outputs, -1)
    intercepts = node.get("intercepts")
    return F.linear(x, weight, None if intercepts is None else torch.tensor(intercepts, dtype=x.dtype, device=x.device))


def _finish(node: Node, scores: Tensor) -> Tensor:
    how = node.get("post_transform", "NONE")
    if how == "NONE":
        return scores
    if how == "SOFTMAX":
        return torch.softmax(scores, -1)
    if how == "LOGISTIC":
        return torch.sigmoid(scores)
    raise FormNotKnown(f"{node.op} with post_transform {how}")
