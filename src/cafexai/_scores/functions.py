"""Functions of values: elementwise ones with their settings, so that equal ones are one object, and maps of one to one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor

Function = Callable[[Tensor], Tensor]


class Pointwise:
    """A function of torch with plain numbers as its further arguments."""

    def __init__(self, function: Callable[..., Tensor], args: tuple[Any, ...], options: tuple[tuple[str, Any], ...]) -> None:
        self.function = function
        self.args = args
        self.options = dict(options)

    def __call__(self, value: Tensor) -> Tensor:
        return self.function(value, *self.args, **self.options)


_made = functools.lru_cache(maxsize=1024, typed=True)(Pointwise)


def pointwise(function: Callable[..., Tensor], args: tuple[Any, ...], options: dict[str, Any]) -> Function:
    """The function with these settings; the same object for the same settings, unless they hold tensors."""
    if not args and not options:
        return function
    if all(isinstance(part, (int, float, str, bool, type(None))) for part in (*args, *options.values())):
        return _made(function, args, tuple(sorted(options.items())))
    return lambda value: function(value, *args, **options)


def is_plain(phi: Function) -> bool:
    """The function is torch's alone: it holds no tensor and gives the same for each element, wherever that stands."""
    if isinstance(phi, Pointwise):
        phi = phi.function
    plain = isinstance(phi, (BuiltinFunctionType, FunctionType)) and getattr(phi, "__closure__", None) is None
    return plain and str(getattr(phi, "__module__", "")).startswith("torch")


def over_rows(fn: Function, reference: Tensor) -> Tensor:
    """fn, which treats all rows alike, of a reference; computed once if that is one row for all."""
    if reference.ndim and reference.shape[0] > 1 and reference.stride(0) == 0:
        return fn(reference[:1]).expand(reference.shape[0], *(-1,) * (reference.ndim - 1))
    return fn(reference)


def plus(value: Tensor, bias: Tensor | None) -> Tensor:
    """A constant added."""
    return value if bias is None else value + bias


def affine(value: Tensor, *factors_and_bias: Any) -> Tensor:
    """Scaled by one or more factors, with a constant added."""
    *factors, bias = factors_and_bias
    for factor in factors[:-1]:
        value = value * factor
    return value * factors[-1] if bias is None else torch.addcmul(bias, value, factors[-1])


ONE_TO_ONE = (plus, affine, torch.mul, torch.div)  # linear maps that do not sum over elements
