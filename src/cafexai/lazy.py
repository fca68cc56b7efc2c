"""A scored value that is computed only when somebody asks for its scores.

Attention scores (query times key) and what masks and scales do to them feed a softmax, which takes the value alone:
their scores are never needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .scores import Run, Scores

if TYPE_CHECKING:
    Base = Scores
else:
    Base = object


class Pending(Base):
    """The value is known, reference, delta and total follow from ``compute`` on first use."""

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
    if not all(isinstance(part, Pending) and part.pending for part in parts if isinstance(part, Scores)):
        return None
    value = fn([part.value if isinstance(part, Scores) else part for part in parts])
    if not isinstance(value, Tensor):
        return None

    def compute() -> Any:
        full = [part.full() if isinstance(part, Pending) else part for part in parts]
        return carrier.join(run, fn, full, aligned)

    return lazy(carrier, run, value, compute)
