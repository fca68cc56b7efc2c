"""An explanation with fewer features: its scores summed by place, by name, or averaged over its rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .._inputs.images import channels_last
from ..explanation import Explanation, Refinement, Tensors
from ..explanation.conflict import ConflictInfo

VERTICAL, HORIZONTAL = ("top", "middle", "bottom"), ("left", "middle", "right")


def sum_by_name(explanation: Explanation, places: Tensor, names: Sequence[str]) -> Explanation:
    """Feature i of row r is counted to the name at ``places[r, i]`` (rows, features): positive, negative and net apart."""

    def together(scores: Tensors) -> Tensor:
        flat = explanation.flat(scores)
        return flat.new_zeros(len(flat), len(names)).scatter_add_(1, places.to(flat.device), flat)

    return explanation.replace(
        positive=together(explanation.positive),
        negative=together(explanation.negative),
        combined=together(explanation.combined),
        refinement=_refinement(explanation, together),
        feature_names=tuple(names),
        tokens=None,
        display=None,
        baseline_display=None,
        at_baseline=None,
        categories={},
        conflict_pairs=None,
        settings={**explanation.meta.settings, "grouped": True},
    )


def by_region(explanation: Explanation) -> Explanation:
    """Images in nine regions, from top left to bottom right."""
    mask = region_mask(explanation.parts(explanation.positive)[0].shape[1:])
    return sum_by_name(explanation, mask.flatten().expand(len(explanation), -1), region_names())


def region_mask(shape: Sequence[int]) -> Tensor:
    """The number of the region of every pixel of an image, in the shape of one row."""
    last = channels_last(shape)
    channels, height, width = (shape[2], *shape[:2]) if last else shape
    down, right = (torch.arange(size).mul(3).div(size, rounding_mode="floor") for size in (height, width))
    mask = (3 * down[:, None] + right).expand(channels, height, width)
    return mask.permute(1, 2, 0) if last else mask


def region_names() -> list[str]:
    """What the nine regions are called, from top left to bottom right."""
    return [_region(v, h) for v in VERTICAL for h in HORIZONTAL]


def by_word(explanation: Explanation) -> Explanation:
    """Texts by distinct words, however often and wherever they stand."""
    rows = [explanation.names(row) for row in range(len(explanation))]
    words = {word: place for place, word in enumerate(dict.fromkeys(word for row in rows for word in row))}
    return sum_by_name(explanation, torch.tensor([[words[word] for word in row] for row in rows]), list(words))


def average(explanation: Explanation) -> Explanation:
    """The mean of all rows as one row: it adds up from the mean start to the mean output."""

    def mean(values: Tensors) -> Tensor:
        return explanation.flat(values).double().mean(0, keepdim=True)

    between = explanation.between()
    conflict, left = (part.double().mean(0, keepdim=True) for part in (between.conflict, between.left))
    return explanation[0].replace(
        conflict_info=ConflictInfo(conflict, left, between.kind),
        positive=mean(explanation.positive),
        negative=mean(explanation.negative),
        combined=mean(explanation.combined),
        refinement=_refinement(explanation, mean),
        output=explanation.output.double().mean(0, keepdim=True),
        baseline_output=explanation.baseline_output.double().mean(0, keepdim=True),
        bias_by_layer={layer: scores.double().mean(0, keepdim=True) for layer, scores in explanation.bias_by_layer.items()},
        feature_names=explanation.names(),
        tokens=None,
        display=None,
        baseline_display=None,
        at_baseline=None,
        conflict_pairs=None,
        settings={**explanation.meta.settings, "grouped": True},
    )


def _refinement(explanation: Explanation, change: Callable[[Tensors], Tensor]) -> Refinement | None:
    """The refinement with its correction changed, if there is one."""
    fit = explanation.refinement
    return None if fit is None else dataclasses.replace(fit, correction=change(fit.correction))


def channels_first(images: Tensor) -> Tensor:
    """(rows, channels, height, width)"""
    return images.permute(0, 3, 1, 2) if channels_last(images.shape[1:]) else images


def _region(vertical: str, horizontal: str) -> str:
    return "centre" if vertical == horizontal == "middle" else f"{vertical} {horizontal}"
