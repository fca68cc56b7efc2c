"""Arguments given by name, brought into the order of the function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch


def in_order(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """As many arguments by position as can be: ``torch.sum(input=x, dim=1)`` becomes ``torch.sum(x, 1)``."""
    for names in _orders(function):
        if set(kwargs) <= set(names) | {"out", "inplace"}:
            placed, rest = list(args), dict(kwargs)
            for name in names[len(args) :]:
                if name not in rest:
                    break
                placed.append(rest.pop(name))
            return tuple(placed), rest
    return args, kwargs


def _orders(function: Callable[..., Any]) -> list[list[str]]:
    """The names of the parameters, for each form of the function."""
    try:
        return [list(inspect.signature(function).parameters)]
    except (TypeError, ValueError):
        pass
    packet = getattr(torch.ops.aten, getattr(function, "__name__", ""), None)
    if packet is None:
        return []
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
    return [["input" if a.name == "self" else a.name for a in schema.arguments] for schema in schemas]
