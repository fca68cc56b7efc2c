"""Operators of two or more values, kinds of numbers, comparisons."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from .._graph import Node
from .._read import DTYPES
from .registry import as_number, operator, plain

for _name, _function in {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Greater": torch.gt, "GreaterOrEqual": torch.ge, "Less": torch.lt,
    "LessOrEqual": torch.le, "Equal": torch.eq, "And": torch.logical_and, "Or": torch.logical_or, "Xor": torch.logical_xor,
}.items():  # fmt: skip
    plain(_function, _name)


@operator("Div")
def div(node: Node, a: Tensor, b: Tensor) -> Tensor:
    if a.is_floating_point() or b.is_floating_point():
        return torch.div(a, b)
    return torch.div(a, b, rounding_mode="trunc")


@operator("Pow")
def power(node: Node, base: Tensor, exponent: Tensor) -> Tensor:
    number = as_number(exponent)
    if not isinstance(number, Tensor) and number == int(number):
        number = int(number)
    result = torch.pow(base, number)
    return result if result.dtype == base.dtype else result.to(base.dtype)


@operator("Mod")
def mod(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return torch.fmod(a, b) if node.get("fmod", 0) else torch.remainder(a, b)


@operator("Sum")
def sum_all(node: Node, *values: Tensor) -> Tensor:
    return functools.reduce(torch.add, values)


@operator("Mean")
def mean(node: Node, *values: Tensor) -> Tensor:
    return functools.reduce(torch.add, values) / len(values)


@operator("Max")
def largest(node: Node, *values: Tensor) -> Tensor:
    return functools.reduce(torch.maximum, values)


@operator("Min")
def smallest(node: Node, *values: Tensor) -> Tensor:
    return functools.reduce(torch.minimum, values)


@operator("Where")
def where(node: Node, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(condition, a, b)


@operator("Cast")
def cast(node: Node, x: Tensor) -> Tensor:
    return x.to(DTYPES[node.get("to")])


@operator("CastLike")
def cast_like(node: Node, x: Tensor, like: Any) -> Tensor:
    return x.to(like.dtype)


@operator("CumSum")
def cumsum(node: Node, x: Tensor, axis: Tensor) -> Tensor:
    dim = int(axis)
    x = x.flip(dim) if node.get("reverse", 0) else x
    result = torch.cumsum(x, dim)
    result = result - x if node.get("exclusive", 0) else result
    return result.flip(dim) if node.get("reverse", 0) else result
