"""Baselines that are rows of the background: rows are explained against each of them, and the scores are averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import at_least

WORD = "background"  # the word for baselines that are rows of the background of the explainer


@dataclass(frozen=True)
class Background:
    """Baselines drawn from data: ``explain(..., baselines=Background(x_train))``.

    The row is explained against each of the ``k`` drawn rows, and the scores are averaged. The price is that of ``k``
    explanations.

    Args:
        rows: The data, in the form of the inputs: a tensor, an array, a data frame, or a tuple for several inputs.
        k: How many rows are drawn, without replacement; all of them if there are fewer.
        seed: Of the draw.

    Raises:
        ValueError: ``k`` is no positive integer.

    Example:
        >>> Background(torch.randn(100, 3), k=20).k
        20
    """

    rows: Any
    k: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        at_least("Background", 1, k=self.k)

    def __repr__(self) -> str:
        first = self.rows[0] if isinstance(self.rows, (tuple, list)) and not isinstance(self.rows[0], str) else self.rows
        count = "" if first is None else f"{len(first)} rows, "
        return f"Background({count}k={self.k}, seed={self.seed})"

    def draw(self, count: int) -> Tensor:
        """Which of ``count`` rows are taken.

        Args:
            count: How many rows there are.

        Returns:
            Their positions, in ascending order.

        Example:
            >>> import torch
            >>> from cafexai import Background
            >>> Background(torch.rand(100, 2), k=10).draw(100).shape
            torch.Size([10])
        """
        return draw_places(count, self.k, self.seed)


def draw_places(count: int, most: int, seed: int) -> Tensor:
    """At most so many of ``count`` places, in ascending order."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:most].sort().values


def draw_rows(data: Any, most: int, seed: int) -> Any:
    """At most so many rows of a tensor, an array or a frame, or of each of several inputs."""
    at_least("draw_rows", 1, most=most)
    first = data[0] if isinstance(data, (tuple, list)) and not isinstance(data[0], str) else data
    places = draw_places(len(first), most, seed)

    def take(part: Any) -> Any:
        if hasattr(part, "iloc"):
            return part.iloc[places.tolist()]
        if isinstance(part, list):
            return [part[place] for place in places.tolist()]
        return part[places] if isinstance(part, Tensor) else part[places.numpy()]

    return tuple(map(take, data)) if first is not data else take(data)
