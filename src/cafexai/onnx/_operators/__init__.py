"""Operators of ONNX as calls of torch, one file per family."""

from . import arithmetic, choosing, elementwise, images, learned, linear, norms, recurrent, reductions, shape
from .registry import MAIN, ROLES, TABLE

__all__ = [
    "MAIN", "ROLES", "TABLE", "arithmetic", "choosing", "elementwise", "images", "learned", "linear", "norms", "recurrent",
    "reductions", "shape",
]  # fmt: skip
