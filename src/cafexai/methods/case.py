"""What a method is asked to attribute, in one form for all methods."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..inputs import Inputs, choose_target, prepare, references
from ..subject import Subject, unwrap


@dataclass(frozen=True)
class Case:
    """A model, its rows, one output of each row, and what the rows are compared with."""

    model: Any
    x: Tensor
    index: Tensor  # (rows, dimensions of the output besides the rows)
    sizes: torch.Size  # of the output besides the rows
    baselines: list[Tensor]  # each shaped like x; scores are averaged over them
    groups: Tensor  # the number of the group of each element, shaped like one row; groups count from 0

    @property
    def target(self) -> Any:
        """The output in Captum's form."""
        if not self.sizes:
            return None
        return self.index[:, 0].to(self.x.device) if len(self.sizes) == 1 else [tuple(row) for row in self.index.tolist()]

    def outputs(self, x: Tensor) -> Tensor:
        """The chosen outputs for n versions of every row, (rows, n, *row) to (rows, n)."""
        rows, count = x.shape[:2]
        out = self.model(x.flatten(0, 1))
        if out.shape[0] != rows * count:
            raise ValueError(f"The output of shape {tuple(out.shape)} does not have one entry for each of {rows * count} rows.")
        picks = self.index.to(out.device).repeat_interleave(count, 0).unbind(1) if self.sizes else ()
        places = (torch.arange(rows * count, device=out.device), *picks)
        return out[places].view(rows, count)


def one_tensor(name: str, model: Any, x: Any) -> Tensor:
    """The rows as a tensor of floating point numbers."""
    given = prepare(x, unwrap(model), None)
    if given.is_tuple or not given.tensors[0].is_floating_point():
        raise ValueError(
            f"{name}(model, x): x is one tensor of floating point numbers, shaped (rows, ...). CAFE(model).explain takes "
            "several inputs and integer codes."
        )
    return given.tensors[0]


def case(
    name: str, model: Any, x: Any, target: Any = None, baselines: Any = None, feature_mask: Any = None, background: Any = None
) -> Case:
    """Check the arguments of a method; ``target=None`` is the only output, or else the predicted class."""
    subject = Subject(model, 0.5, "bias")
    subject.ready()
    rows = one_tensor(name, subject.model, x)
    given = Inputs((rows,), False, None)
    with torch.no_grad():
        output = subject.model(rows.clone())
    if not isinstance(output, Tensor) or not output.ndim or output.shape[0] != len(rows):
        what = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"type {type(output).__name__}"
        raise ValueError(f"{name}(model, x): the model's output of {what} is not a tensor with one entry per row of x.")
    _, index = choose_target(output, target, slice(0, len(rows)), len(rows))
    stack = [one for (one,) in references(baselines, given, background, subject.model)]
    filled = [torch.zeros_like(rows) if one is None else one for one in stack]
    return Case(subject.model, rows, index, output.shape[1:], filled, groups(name, feature_mask, given))


def groups(name: str, feature_mask: Any, given: Inputs) -> Tensor:
    """Captum's feature mask as consecutive numbers from 0, shaped like one row."""
    row = given.tensors[0][0]
    if feature_mask is None:
        return torch.arange(row.numel(), device=row.device).view(row.shape)
    mask = torch.as_tensor(feature_mask, device=row.device)
    mask = mask[0] if mask.ndim == row.ndim + 1 and len(mask) == 1 else mask
    if mask.is_floating_point() or mask.shape != row.shape:
        raise ValueError(
            f"{name}(..., feature_mask=...): give integers shaped like one row, {tuple(row.shape)}; equal numbers make a "
            f"group. These are {mask.dtype} of shape {tuple(mask.shape)}."
        )
    return torch.unique(mask, return_inverse=True)[1].view(row.shape)


@contextlib.contextmanager
def drawing(seed: int, x: Tensor) -> Iterator[None]:
    """Random numbers from a seed; those of the caller are left alone. Captum draws from torch and from numpy."""
    state = np.random.get_state()
    devices = [x.device] if x.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            np.random.set_state(state)
