"""A scored value that is computed only when somebody asks for its scores.

Attention scores (query times key) and what masks and scales do to them feed a softmax, which takes the value alone:
their scores are never needed. The same holds for queries and keys, which are linear layers, or columns of one that makes the
values as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .scores import Run, Scores

if TYPE_CHECKING:
    Base = Scores
else:
    Base = object


class Pending(Base):
    """The value is known, reference, delta and total follow from ``compute`` on first use."""

    firm = False  # the value is that of a layer, known as a part of its scores: whoever goes on from it wants these
    columns: Callable[[slice], Any] | None = None  # for the output of a linear layer: some of its columns, as a layer

    def __init__(self, run: Run, value: Tensor, compute: Callable[[], Any]) -> None:
        self.run = run
        self._value = value.detach()
        self._compute = compute
        self._path = run.path
        self._full: Any = None

    def full(self) -> Any:
        """The value with its scores, made as if where it first stood."""
        if self._full is None:
            here, self.run.path = self.run.path, self._path
            self._full = self._compute()
            self.run.path = here
        return self._full

    @property
    def reference(self) -> Tensor | None:  # type: ignore[override]
        """The reference, computed now."""
        return self.full().reference

    @property
    def delta(self) -> Tensor:  # type: ignore[override]
        """The change, computed now."""
        return self.full().delta

    @property
    def total(self) -> Tensor:
        """The total, computed now."""
        return self.full().total

    @property
    def shares(self) -> Tensor:
        """The contributions of the features, computed now."""
        return self.full().shares

    @property
    def rows(self) -> Any:  # type: ignore[override]
        """The rows, computed now."""
        return self.full().rows

    @property
    def value(self) -> Tensor:
        """The value, without its scores."""
        return self._value

    @property
    def template(self) -> Tensor:
        """Shape, dtype and device."""
        return self._value

    @property
    def pending(self) -> bool:
        """The scores are not computed yet."""
        return self._full is None

    def worst_sign(self) -> float:
        return 0.0 if self.pending else self.full().worst_sign()

    def copy(self) -> Any:
        return type(self)(self.run, self._value, self.full)

    def linear(
        self, fn: Callable[..., Tensor], *constants: Any, bias: Any = None, bias_dims: int = 0, aligned: bool = False
    ) -> Any:
        if self.firm:
            return self.full().linear(fn, *constants, bias=bias, bias_dims=bias_dims, aligned=aligned)
        last = () if bias is None else (bias() if callable(bias) else bias,)
        value = fn(self._value, *constants, *last)
        return type(self)(
            self.run,
            value,
            lambda: self.full().linear(fn, *constants, bias=bias, bias_dims=bias_dims, aligned=aligned),
        )


@functools.cache
def _class(carrier: type[Scores]) -> Any:
    return type(f"Lazy{carrier.__name__}", (Pending, carrier), {})


def lazy(carrier: type[Scores], run: Run, value: Tensor, compute: Callable[[], Any]) -> Any:
    """A value of a carrier whose scores can wait."""
    return _class(carrier)(run, value, compute)


def joined_lazily(
    carrier: type[Scores], run: Run, fn: Callable[[Sequence[Tensor]], Any], parts: Sequence[Any], aligned: bool
) -> Any:
    """A move of elements of lazy values and constants stays lazy, if it has one result; else None."""
    pending = [part for part in parts if isinstance(part, Pending)]
    if not pending or not all(part in pending and part.pending for part in parts if isinstance(part, Scores)):
        return None
    if len(parts) == 1 and pending[0].columns is not None:
        cut = _columns(pending[0], fn)
        if cut is not None:
            return cut
    value = fn([part.value if isinstance(part, Scores) else part for part in parts])
    if not isinstance(value, Tensor):
        return None

    def compute() -> Any:
        full = [part.full() if isinstance(part, Pending) else part for part in parts]
        return carrier.join(run, fn, full, aligned)

    result = lazy(carrier, run, value, compute)
    result.firm = any(part.firm for part in pending)
    return result


def _columns(layer: Pending, fn: Callable[[Sequence[Tensor]], Any]) -> Any:
    """The result of a move that cuts the output of a linear layer into pieces of its columns; None if it does not."""
    assert layer.columns is not None
    index = torch.arange(layer.shape[-1], device=layer.template.device).expand(layer.shape)
    moved = fn([index])
    parts = []
    for part in [moved] if isinstance(moved, Tensor) else moved:
        same = part.untyped_storage().data_ptr() == index.untyped_storage().data_ptr()
        if not same or part.shape[:-1] != index.shape[:-1] or part.stride() != index.stride() or part.shape == index.shape:
            return None
        parts.append(layer.columns(slice(part.storage_offset(), part.storage_offset() + part.shape[-1])))
        parts[-1]._path = layer._path
    return parts[0] if isinstance(moved, Tensor) else tuple(parts)
