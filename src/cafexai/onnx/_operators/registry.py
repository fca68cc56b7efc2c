"""The table of operators: what each calls of torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from ...errors import ModelProblem
from .._graph import Node

Operator = Callable[..., Any]  # the node, and what it takes -> what it gives
TABLE: dict[tuple[str, str], Operator] = {}  # by domain and name
ROLES: dict[tuple[str, str], tuple[str, ...]] = {}  # what constants among the inputs are called
MAIN: set[tuple[str, str]] = set()  # layers and activation functions: these bear the name of the module they come from
MOST: ContextVar[int] = ContextVar("most", default=2**31)  # elements that a single operator may make


class TooLarge(ModelProblem):
    """A node would make a value that is larger than anything of use."""


class FormNotKnown(Exception):
    """An operator in a form that has no counterpart in torch."""


def operator(*names: str, domain: str = "", roles: Sequence[str] = (), main: bool = False) -> Callable[[Operator], Operator]:
    """Put a function into the table."""

    def put(function: Operator) -> Operator:
        for name in names:
            TABLE[domain, name] = function
            if roles:
                ROLES[domain, name] = tuple(roles)
            if main:
                MAIN.add((domain, name))
        return function

    return put


def function_of(node: Node) -> Operator:
    """What an operator calls. (A forward that named the table itself would have it watched for changes, in every pass.)"""
    return TABLE[node.domain, node.op]


def plain(function: Any, *names: str, domain: str = "", main: bool = False) -> None:
    """Operators that are a function of torch as it stands."""
    operator(*names, domain=domain, main=main)(lambda node, *values: function(*values))


def integers(value: Any) -> list[int]:
    """Numbers that say a shape or places."""
    return [int(one) for one in (value.tolist() if isinstance(value, Tensor) else value)]


def axes_of(node: Node, given: Any, ndim: int) -> tuple[int, ...] | None:
    """Dimensions, an attribute in old versions and an input in new ones; None for all of them."""
    chosen = node.get("axes") if given is None else integers(given.reshape(-1))
    return None if chosen is None or len(chosen) == 0 else tuple(axis % max(ndim, 1) for axis in chosen)


def room(node: Node, sizes: Sequence[int]) -> list[int]:
    """The sizes, if a value of them fits anywhere."""
    if any(size < 0 for size in sizes) or math.prod(sizes) > MOST.get():
        raise TooLarge(f"node {node.name or node.op!r} ({node.kind}): it would make a value of the sizes {list(sizes)}.")
    return list(sizes)


def as_number(value: Any) -> Any:
    """A constant of one element as a number; all else as it is."""
    return value.item() if type(value) in (Tensor, torch.nn.Parameter) and value.numel() == 1 else value
