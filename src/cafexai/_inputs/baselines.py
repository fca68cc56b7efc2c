"""What rows are compared with: baselines in any form, as one reference for each input, or several to average over."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._scores.numbers import all_finite
from .given import Inputs, checked, frame_to_numpy, is_frame, takes_raw, to_tensor

Reference = Tensor | None  # None stands for zeros


def references(baselines: Any, inputs: Inputs, background: Any, model: Any) -> list[tuple[Reference, ...]]:
    """The reference inputs: one entry, or several to average over; None stands for zeros."""
    if callable(baselines) and not isinstance(baselines, (Tensor, nn.Module)):
        baselines = baselines(inputs.tensors if inputs.is_tuple else inputs.tensors[0])
    parts = _one_each(baselines, inputs)
    stacks = [
        _stack(_by_name(part, inputs.names, model), x, background, place, model, inputs.names)
        for place, (part, x) in enumerate(zip(parts, inputs.tensors, strict=True))
    ]
    count = max(len(stack) for stack in stacks)
    if any(len(stack) not in (1, count) for stack in stacks):
        raise ValueError(
            f"explain(..., baselines=...): the inputs have stacks of {[len(s) for s in stacks]} baselines; give equally many."
        )
    return [tuple(stack[i % len(stack)] for stack in stacks) for i in range(count)]


def _by_name(part: Any, names: tuple[str, ...] | None, model: Any) -> Any:
    """A baseline with column names, in the order of the inputs; a pipeline transforms it as it does the rows."""
    if part is None or isinstance(part, Tensor):
        return part
    if hasattr(part, "to_frame") and hasattr(part, "index"):  # a series of one number per column
        part = part.to_frame().T
    if not is_frame(part):
        return part
    if takes_raw(model):
        return model.from_raw(part, None)[0]
    columns = tuple(map(str, part.columns))
    if names is not None and columns != names:
        if sorted(columns) != sorted(names):
            raise ValueError(
                f"explain(..., baselines=frame): its columns {list(columns)} are not those of the input, {list(names)}."
            )
        part = part[[part.columns[columns.index(name)] for name in names]]
    return frame_to_numpy(part)


def _one_each(baselines: Any, inputs: Inputs) -> tuple[Any, ...]:
    if isinstance(baselines, list) and baselines and all(isinstance(part, (int, float)) for part in baselines):
        baselines = np.array(baselines, dtype=np.float64)  # one row of numbers
    if isinstance(baselines, (tuple, list)):
        if len(baselines) != len(inputs.tensors):
            raise ValueError(
                f"explain(..., baselines=...): {len(baselines)} baselines for {len(inputs.tensors)} input(s); give one each."
            )
        return tuple(baselines)
    if len(inputs.tensors) > 1 and isinstance(baselines, (Tensor, np.ndarray)):
        raise ValueError("explain(..., baselines=tensor): there are several inputs; give a tuple with one baseline for each.")
    return (baselines,) * len(inputs.tensors)


def _stack(part: Any, x: Tensor, background: Any, place: int, model: Any, names: tuple[str, ...] | None) -> list[Reference]:
    if part is None:
        return [None]
    if isinstance(part, str):
        part = _statistic(part, background, place, model, names)
    if isinstance(part, (int, float)) and not isinstance(part, bool):
        if part == 0 and x.is_floating_point():
            return [None]
        if not x.is_floating_point() and not isinstance(part, int):
            raise ValueError(f"explain(..., baselines={part}): the baseline of an integer input is an integer code, or None.")
        part = torch.full((1,) * x.ndim, part, dtype=x.dtype)
    if isinstance(part, np.ndarray):
        part = torch.tensor(part)
    if not isinstance(part, Tensor):
        raise ValueError(
            f"explain(..., baselines=...): a {type(part).__name__} is no baseline. Give None (zeros), a number, a tensor "
            'shaped like the input or like one row, a callable, or "mean", "median", "mode" of CAFE(..., background=data).'
        )
    if not x.is_floating_point() and part.is_floating_point():
        raise ValueError("explain(..., baselines=...): the baseline of an integer input is an integer code, or None.")
    part = part.detach().to(x)
    if not all_finite(part):
        raise ValueError("explain(..., baselines=...): the baseline holds NaN or infinite values.")
    if part.ndim == x.ndim - 1 and part.shape == x.shape[1:]:
        part = part[None]
    many = part if part.ndim == x.ndim + 1 else part[None]
    fits = many.ndim == x.ndim + 1 and all(a in (1, b) for a, b in zip(many.shape[1:], x.shape, strict=True))
    if not fits:
        raise ValueError(
            f"explain(..., baselines=...): a baseline of shape {tuple(part.shape)} does not fit the input of shape "
            f"{tuple(x.shape)}. Give that shape, (1, {', '.join(map(str, x.shape[1:]))}), or a stack "
            "of such with one more dimension in front."
        )
    return [one.expand(x.shape) for one in many]


def _statistic(name: str, background: Any, place: int, model: Any, names: tuple[str, ...] | None) -> Tensor:
    if name not in ("mean", "median", "mode"):
        raise ValueError(f'explain(..., baselines={name!r}): the words are "mean", "median" and "mode".')
    if background is None:
        raise ValueError(f"explain(..., baselines={name!r}): of which data? Give them: CAFE(model, background=x_train).")
    data = background[place] if isinstance(background, (tuple, list)) else background
    if takes_raw(model):
        data, names = model.from_raw(data, None)[0], None
    data = _by_name(data, names, None)
    data = checked(to_tensor(data, model, place), place, 1)
    if name == "mean":
        if not data.is_floating_point():
            raise ValueError('explain(..., baselines="mean"): codes have no mean; use "mode", a code, or None.')
        return data.mean(0, keepdim=True)
    return (data.median(0) if name == "median" else data.mode(0)).values[None]
