"""How a value was made, as far as anybody asks for it: one record per value, ``made_by``.

Rules write it, ``rules/recognise.py`` reads it: a softmax that is written out in arithmetic, the root that a norm divides by, a
difference of running sums, a - max(a, b). It is not a graph of all operations, which would keep every value of a pass alive:
most values have no record, and a record names only the value that a recogniser goes back to.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .input_origin import Origin

TERMS, SUM, INVERSE = "terms", "sum", "inverse of a sum"  # of exp(``detail`` * ``of``)
FINAL = "final"  # a sigmoid or the log of a softmax of the logits ``of``; ``detail`` says which
WEIGHTS = "weights"  # a softmax of the logits ``of``
LOG_OF_SUM = "log of a sum"  # of exponentials of the value ``of`` over the dims ``detail``
ROOT = "root"  # the square root of ``of``
SCALE = "scale of a norm"  # one over the square root of ``of``
BOUNDED = "bounded root"  # ``detail``, a function that bounds it, of the root ``of``
ADDED, SUBTRACTED = "added", "subtracted"  # to or from ``of``; ``detail``: the constant that was added, if it is one
RAMP = "ramp"  # of ``of``, behind a sort
LARGER = "larger"  # of the two in ``of``, of which one may be a constant
RUNNING = "running sum"  # ``detail`` says of what, and which of its elements
OF_INPUT = "of an input"  # nothing is known but ``origin``

_EXPONENTIALS = (TERMS, SUM, INVERSE)
_FOLLOWED = (*_EXPONENTIALS, FINAL, WEIGHTS, RUNNING)  # what a value in another dtype still is


@dataclass(frozen=True, slots=True, eq=False)
class MadeBy:
    """The last operation, in the words above."""

    kind: str
    of: Any = None
    detail: Any = None
    origin: Origin | None = None  # where the value was made of an input, element by element
    by: Callable[[Tensor], Tensor] | None = (
        None  # of exponentials: the affine map that made the value of them; None: they are it
    )

    def apply(self, exponentials: Tensor) -> Tensor:
        """What other exponentials would have given."""
        return exponentials if self.by is None else self.by(exponentials)

    def copy(self) -> MadeBy | None:
        """Of the same value as another object."""
        return self if self.kind in _FOLLOWED else of_input(self.origin)

    def move(self, fn: Callable[[Tensor], Any], count: int) -> list[MadeBy] | None:
        """Behind a move of elements, one for each of its ``count`` results; None if nothing of it is left but the origin."""
        if self.kind in (FINAL, WEIGHTS, ROOT, SCALE, BOUNDED):
            logits = self.of.reshape(fn)
            return [MadeBy(self.kind, part, self.detail) for part in (logits if isinstance(logits, tuple) else (logits,))]
        if self.kind == RUNNING:
            return [MadeBy(RUNNING, None, part) for part in self.detail.move(fn)]
        if self.kind == LOG_OF_SUM:
            return [self] * count
        return None

    def through_map(self, fn: Callable[[Tensor], Tensor], one_to_one: bool) -> MadeBy | None:
        """Behind an affine map: exponentials that are scaled stay what they are, others are added up."""
        if self.kind not in _EXPONENTIALS or (self.kind == INVERSE and not one_to_one):
            return None
        return MadeBy(self.kind if one_to_one else SUM, self.of, self.detail, by=lambda v: fn(self.apply(v)))


def join_exponentials(
    records: Sequence[MadeBy | None], fn: Callable[..., Any], parts: Sequence[Any], place: int | None
) -> MadeBy:
    """The record of one result of a move of parts, of which those that are no tensors are such exponentials."""
    first = records[0]
    assert first is not None

    def apply(v: Tensor) -> Any:
        waiting = iter(records)
        moved = fn(*[part if isinstance(part, Tensor) else next(waiting).apply(v) for part in parts])  # type: ignore[union-attr]
        return moved if place is None else moved[place]

    return MadeBy(first.kind, first.of, first.detail, by=apply)


def same_exponentials(records: Sequence[MadeBy | None]) -> bool:
    """Whether all are made of exponentials of one value, in one way."""
    first = records[0]
    if first is None or first.kind not in _EXPONENTIALS:
        return False
    return all(one is not None and (one.kind, one.of, one.detail) == (first.kind, first.of, first.detail) for one in records)


def add_up(one: MadeBy | None, two: MadeBy | None, alpha: float) -> MadeBy | None:
    """The record of one + alpha * two, if that is a sum of exponentials of one value."""
    if one is None or two is None or not {one.kind, two.kind} <= {TERMS, SUM} or (one.of, one.detail) != (two.of, two.detail):
        return None
    return MadeBy(SUM, one.of, one.detail, by=lambda v: torch.add(one.apply(v), two.apply(v), alpha=alpha))


def of_input(origin: Origin | None) -> MadeBy | None:
    """The record of a value of which only the origin is known."""
    return None if origin is None else MadeBy(OF_INPUT, origin=origin)


def origin_of(value: Any) -> Origin | None:
    """Where a value was made of an input, element by element."""
    return None if value.made_by is None else value.made_by.origin


def kind_of(value: Any) -> str | None:
    """The last operation on a value, if it has a record."""
    return None if value.made_by is None else value.made_by.kind


def record(value: Any, kind: str, of: Any = None, detail: Any = None) -> Any:
    """Say how a new value was made; its origin stays."""
    value.made_by = MadeBy(kind, of, detail, origin_of(value))
    return value


def with_origin(made_by: MadeBy | None, origin: Origin | None) -> MadeBy | None:
    """The record with an origin."""
    if made_by is None or made_by.origin is origin:
        return of_input(origin) if made_by is None else made_by
    return dataclasses.replace(made_by, origin=origin)


def final_of(value: Any) -> tuple[Any, str | None]:
    """The logits of a value and what was made of them, a sigmoid or softmax; else the value itself."""
    if kind_of(value) not in (FINAL, WEIGHTS):
        return value, None
    return value.made_by.of, value.made_by.detail
