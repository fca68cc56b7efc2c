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
    for names, known in _orders(function):
        if set(kwargs) <= known | {"out", "inplace"}:
            placed, rest = list(args), dict(kwargs)
            for name in names[len(args) :]:
                if name not in rest:
                    break
                placed.append(rest.pop(name))
            return tuple(placed), rest
    return args, kwargs


def _orders(function: Callable[..., Any]) -> list[tuple[list[str], set[str]]]:
    """The parameters by position and all their names, for each form of the function."""
    try:
        parameters = inspect.signature(function).parameters.values()
        return [([p.name for p in parameters if p.kind is not p.KEYWORD_ONLY], {p.name for p in parameters})]
    except (TypeError, ValueError):
        pass
    packet = getattr(torch.ops.aten, getattr(function, "__name__", ""), None)
    if packet is None:
        return []
    orders = []
    for overload in packet.overloads():
        arguments = getattr(packet, overload)._schema.arguments
        names = {a: "input" if a.name == "self" else a.name for a in arguments}
        orders.append(([names[a] for a in arguments if not a.kwarg_only], set(names.values())))
    return orders
