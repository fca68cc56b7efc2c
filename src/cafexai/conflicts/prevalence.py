"""How common conflicts are inside a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from .._inputs.prepare import is_frame
from .find_units import LocalLayer, local_layers

INACTIVE = {"relu": 0.0, "gelu": -0.4}  # a unit is inactive below this pre-activation
SMALL = 1e-5  # inputs below this count as none


@dataclass(frozen=True)
class Prevalence:
    """The share of (row, unit) that are inactive although positive and negative inputs arrive.

    Args:
        overall: The share over all units.
        by_layer: The share for every layer.
        units: How many (row, unit) pairs were counted.

    Example:
        >>> import torch
        >>> from cafexai import conflicts
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        >>> 0 <= conflicts.prevalence(net, torch.randn(5, 3)).overall <= 1
        True
    """

    overall: float
    by_layer: Mapping[str, float]
    units: int

    def __str__(self) -> str:
        lines = [f"{layer}: {share:.1%}" for layer, share in self.by_layer.items()]
        return "\n".join([f"conflicts in {self.overall:.1%} of {self.units} units and rows", *lines])


def prevalence(model: Any, data: Any) -> Prevalence:
    """Conflict prevalence as in the paper's real-data experiments, in one pass over rows (tensor, array, frame) or batches.

    A unit is in conflict on a row if its pre-activation lies below the threshold of its activation (ReLU 0, GELU -0.4)
    while the sums of its positive and of its negative inputs, bias included, are both at least 1e-5.

    Args:
        model: The model, a module.
        data: The rows, or batches of rows.

    Returns:
        The shares.

    Raises:
        ValueError: The model has no layer with such units, or there are no rows.

    Example:
        >>> from cafexai import conflicts
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        >>> conflicts.prevalence(net, torch.rand(5, 3)).units
        20
    """
    found: dict[str, list[int]] = {}
    for batch in [data] if isinstance(data, (Tensor, np.ndarray)) or is_frame(data) else _batches(data):
        for layer in _layers(model, batch):
            if layer.activation not in INACTIVE:
                continue
            positive, negative = _sides(layer.inputs, layer.weight, layer.bias)
            value = positive - negative
            conflict = (value < INACTIVE[layer.activation]) & (positive >= SMALL) & (negative >= SMALL)
            entry = found.setdefault(layer.name, [0, 0])
            entry[0] += int(conflict.sum())
            entry[1] += conflict.numel()
    if not found:
        raise ValueError("prevalence(model, data): the model has no linear or convolutional layer followed by ReLU or GELU.")
    inside, units = (sum(entry[k] for entry in found.values()) for k in (0, 1))
    return Prevalence(inside / units, {name: hits / count for name, (hits, count) in found.items()}, units)


def _batches(data: Any) -> Iterable[Any]:
    if not isinstance(data, Iterable) or isinstance(data, (str, bytes)):
        raise ValueError(
            f"prevalence(model, {type(data).__name__}): give rows as a tensor, an array or a data frame, or batches of these."
        )
    return data


def _layers(model: Any, batch: Any) -> list[LocalLayer]:
    """The layers for one batch; what the model does not take is told as a wrong batch."""
    try:
        return local_layers(model, batch, call="prevalence")
    except TypeError as error:
        what = f"a {type(batch).__name__} of {len(batch)}" if isinstance(batch, (tuple, list)) else f"a {type(batch).__name__}"
        raise ValueError(
            f"prevalence(model, data): the model does not take a batch, {what} ({error}). If a loader gives labels too, pass "
            "(x for x, y in loader)."
        ) from error


def _sides(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of the positive and of the negative w x of each unit, with the signs of the activations. (rows, units)."""
    total = x.abs() @ weight.abs().T + bias.abs()
    net = x @ weight.T + bias
    return ((total + net) / 2).clamp_min(0), ((total - net) / 2).clamp_min(0)
