"""A scored value that is computed only when somebody asks for its scores.

Attention scores (query times key) and what masks and scales do to them feed a softmax, which takes the value alone:
their scores are never needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from .path import PathScores
from .scores import Run, Scores


class LazyScores(PathScores):
    """The value is known, reference, delta and total follow from ``compute`` on first use."""

    def __init__(self, run: Run, value: Tensor, compute: Callable[[], PathScores]) -> None:
        self.run = run
        self._value = value.detach()
        self._compute = compute
        self._path = run.path
        self._full: PathScores | None = None

    def full(self) -> PathScores:
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
    def total(self) -> Tensor:  # type: ignore[override]
        """The total, computed now."""
        return self.full().total

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
        return 0.0 if self.pending else super().worst_sign()

    def copy(self) -> LazyScores:
        return LazyScores(self.run, self._value, self.full)

    def linear(
        self, fn: Callable[..., Tensor], *constants: Any, bias: Any = None, bias_dims: int = 0, aligned: bool = False
    ) -> LazyScores:
        last = () if bias is None else (bias() if callable(bias) else bias,)
        value = fn(self._value, *constants, *last)
        return LazyScores(
            self.run,
            value,
            lambda: self.full().linear(fn, *constants, bias=bias, bias_dims=bias_dims, aligned=aligned),
        )


def joined_lazily(run: Run, fn: Callable[[Sequence[Tensor]], Any], parts: Sequence[Any], aligned: bool) -> LazyScores | None:
    """A move of elements of lazy values and constants stays lazy, if it has one result."""
    value = fn([part.value if isinstance(part, Scores) else part for part in parts])
    if not isinstance(value, Tensor):
        return None

    def compute() -> PathScores:
        full = [part.full() if isinstance(part, LazyScores) else part for part in parts]
        return PathScores.join(run, fn, full, aligned)

    return LazyScores(run, value, compute)
