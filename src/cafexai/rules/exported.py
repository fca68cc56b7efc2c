"""Calls that only exported programs make (torch.export); all others share their names with torch."""

from __future__ import annotations

from typing import Any

import torch

from .._core.value import Scores
from .linear import interpolate
from .registry import Rule, add
from .shape import moving

aten = torch.ops.aten

for _name in ("slice", "alias", "_unsafe_view", "index", "lift_fresh_copy"):
    _packet = getattr(aten, _name)
    add(_packet, Rule(f"aten.{_name}", moving(_packet), view=True))


for _name, _asked in (("sym_size", lambda x, dim: x.shape[dim]), ("sym_numel", lambda x: x.template.numel())):
    add(getattr(aten, _name), Rule(f"aten.{_name}", _asked, kinds=frozenset({"shaped"})))  # of programs with dynamic shapes


add(aten._assert_tensor_metadata, Rule("aten._assert_tensor_metadata", lambda *args, **options: None))


def upsample_nearest(x: Scores, size: Any, scales: Any = None, *more: Any) -> Any:
    return interpolate(x, size, scales)


def upsample_linear(x: Scores, size: Any, align_corners: bool, scales: Any = None, *more: Any) -> Any:
    mode = {3: "linear", 4: "bilinear", 5: "trilinear"}[x.ndim]
    return interpolate(x, size, scales, mode, align_corners)


def upsample_cubic(x: Scores, size: Any, align_corners: bool, scales: Any = None, *more: Any) -> Any:
    return interpolate(x, size, scales, "bicubic", align_corners)


add(aten.upsample_bicubic2d, Rule("aten.upsample_bicubic2d", upsample_cubic))
for _name in ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"):
    add(getattr(aten, _name), Rule(f"aten.{_name}", upsample_nearest))
for _name in ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"):
    add(getattr(aten, _name), Rule(f"aten.{_name}", upsample_linear))
