"""What the trace needs to know of a call: its arguments, the dtypes of its result, and where it came from."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from .._core.tensors import Scored


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


def dtypes(args: Any, kwargs: Any) -> tuple[torch.dtype, torch.dtype]:
    """The dtype that the model sees on the result, and the one that scores are carried in.

    The second is that of the scored arguments or of the embedding, float32 at least.
    """
    nominal: torch.dtype | None = None
    carried: torch.dtype | None = None
    other: torch.dtype | None = None
    for value in _tensors((args, kwargs)):
        if isinstance(value, Scored):
            nominal = _wider(nominal, value.dtype)
            carried = _wider(carried, value._state.template.dtype)
        elif value.is_floating_point():
            other = _wider(other, value.dtype)
            if value.ndim:
                nominal = _wider(nominal, value.dtype)
    return nominal or torch.get_default_dtype(), _wider(carried or other, torch.float32)


def _wider(one: torch.dtype | None, two: torch.dtype) -> torch.dtype:
    return two if one is None or one == two else torch.promote_types(one, two)


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple, dict)):
            yield from _tensors(value)


def shapes(args: Any) -> str:
    """The arguments as an error names them."""
    return ", ".join(str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__ for value in args)


def call_site() -> str:
    """File and line of the caller outside of torch and this library."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("torch", "cafexai")):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
