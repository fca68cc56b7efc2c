"""Packages that need torchvision can be imported: without a build of it for the CPU, its operators are declared here."""

from __future__ import annotations

import torch

_library = torch.library.Library("torchvision", "DEF")  # lives as long as this is referred to
for _name in ("nms", "qnms"):
    _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
