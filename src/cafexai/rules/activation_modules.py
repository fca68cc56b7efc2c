"""Activations of transformers that are a function of torch, whatever their forward is written with.

The function itself has kernels, a closed slope and blocks; the bound forward of a module has none of these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._core.math_functions import Function, pointwise

_GELU_BY_TANH = pointwise(F.gelu, (), {"approximate": "tanh"})
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {  # the name of the class: which function a module says, or is said, to be
    "GELUActivation": lambda module: module.act,
    "GELUTanh": lambda module: module.act,
    "NewGELUActivation": lambda module: _GELU_BY_TANH,
}
SAME = 1e-14  # how far both may differ in float64, beside the largest value


def function_of(module: nn.Module) -> Function:
    """The function that an elementwise module is: one of torch, if it is known and gives the same; else its forward."""
    kind: Any = type(module)
    known = _FUNCTIONS.get(kind.__qualname__) if kind.__module__ == "transformers.activations" else None
    if known is None or "forward" in vars(module):
        return module.forward
    phi = known(module)
    if isinstance(phi, functools.partial) and not phi.args:
        phi = pointwise(phi.func, (), phi.keywords)
    return phi if _is_same(kind, phi) else module.forward


@functools.cache
def _is_same(kind: Any, phi: Function) -> bool:
    """Whether modules of this kind give what the function gives, at points where it bends."""
    points = torch.linspace(-6, 6, 241, dtype=torch.float64, device="cpu")  # some devices have no float64
    if phi is F.gelu or phi is _GELU_BY_TANH:
        right: Tensor = kind().forward(points)
        return bool((right - phi(points)).abs().max() <= SAME * right.abs().max())
    return False
