"""Packages that need torchvision can be imported: without a build of it that fits torch, its operators are declared here."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch


def _has_operators() -> bool:
    """Whether torchvision brings operators of its own, which must not be declared twice."""
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return False
    try:
        torch.ops.load_library(str(Path(found.origin).with_name("_C.so")))
    except OSError:  # made for CUDA, which is not here, or for another torch
        return False
    return True


if not _has_operators():
    _library = torch.library.Library("torchvision", "DEF")  # lives as long as this is referred to
    for _name in ("nms", "qnms"):
        _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
