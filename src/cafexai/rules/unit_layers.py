"""Calls of linear and convolutional layers as linear layers on rows: every unit sees every row."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def units_of(args: Any, kwargs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs (rows, features), weight (units, features) and bias (units,) in float64; of convolutions, one row per place."""
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    parts: dict[str, Any] = dict(zip(names, args, strict=False), **kwargs)
    inputs, weight, bias = (None if parts.get(k) is None else parts[k].detach().double() for k in names[:3])
    assert inputs is not None
    assert weight is not None
    if weight.ndim > 2:
        rows, weight = _patches(inputs, weight, parts, weight.ndim - 2)
    else:
        rows = inputs.reshape(-1, inputs.shape[-1])
    return rows, weight, torch.zeros(len(weight), dtype=torch.float64, device=weight.device) if bias is None else bias


def _patches(inputs: Tensor, weight: Tensor, parts: dict[str, Any], spatial: int) -> tuple[Tensor, Tensor]:
    """A convolution as a linear layer on patches: found by what it does to each element of a patch."""
    if parts.get("groups", 1) != 1 or spatial == 3 or isinstance(parts.get("padding", 0), str):
        raise ValueError("local units of grouped, three-dimensional or padding='same' convolutions are not taken apart")
    if spatial == 1:
        inputs, weight = inputs[:, :, None], weight[:, :, None]

    def both(option: str, default: int) -> tuple[int, int]:
        value = parts.get(option, default)
        value = (value, value) if isinstance(value, int) else tuple(value) * (2 if len(value) == 1 and spatial == 2 else 1)
        return (default, value[0]) if spatial == 1 else (value[0], value[1])

    options = {"stride": both("stride", 1), "padding": both("padding", 0), "dilation": both("dilation", 1)}
    if spatial == 1:
        options["padding"] = (0, options["padding"][1])
    columns = F.unfold(inputs, weight.shape[2:], **options)
    return columns.transpose(1, 2).reshape(-1, columns.shape[1]), weight.flatten(1)
