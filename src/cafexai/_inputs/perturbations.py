"""Perturbed rows: the noise of the data, and removed features."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .._core.tolerance import all_finite

MOST = 1000  # rows of data that are looked at, evenly taken


@dataclass(frozen=True)
class DataNoise:
    """Noise of the size of the data, for ``Refine``.

    Integers, and columns with no more than two different values, are categories. Every row gets the same draws, each followed
    by its mirror image and larger than the last. Every category is replaced, by that of another row, at least once.

    Args:
        data: Rows, (rows, ...).
        groups: Integers shaped like one row: categories of one group are replaced together.
        std: The noise on numbers, in standard deviations: one size, or the first and the last.
        flip: The share of draws in which a category is replaced.

    Raises:
        ValueError: The data have fewer than two rows or are not finite, or the sizes are not allowed.

    Example:
        >>> import torch
        >>> from cafexai import CAFE, DataNoise, Refine
        >>> cafe = CAFE(torch.nn.Linear(2, 1))
        >>> e = cafe.refine(cafe.explain(torch.ones(3, 2)), Refine(10, perturb=DataNoise(torch.randn(50, 2))))
        >>> e.refined.shape
        torch.Size([3, 2])
    """

    data: Tensor
    groups: Tensor | None = None
    std: float | tuple[float, float] = (1.0, 3.0)
    flip: float = 0.2

    def __post_init__(self) -> None:
        if not isinstance(self.data, Tensor) or self.data.ndim < 1 or len(self.data) < 2 or not all_finite(self.data):
            what = f"of shape {tuple(self.data.shape)}" if isinstance(self.data, Tensor) else f"a {type(self.data).__name__}"
            raise ValueError(f"DataNoise(data): data is a tensor with at least two rows of finite numbers; this is {what}.")
        sizes = self.std if isinstance(self.std, tuple) else (self.std,)
        numbers = all(isinstance(size, (int, float)) and 0 <= size < math.inf for size in sizes)
        if not numbers or len(sizes) > 2 or not sizes:
            raise ValueError(f"DataNoise(..., std={self.std!r}): give one size, or the smallest and the largest.")

    def versions(self, x: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Perturbed copies of every row.

        Args:
            x: The rows.
            samples: Copies per row.
            generator: Draws the noise.

        Returns:
            (rows, samples, *row).

        Raises:
            ValueError: The rows are not shaped like those of the data.
        """
        if x.shape[1:] != self.data.shape[1:]:
            raise ValueError(
                f"refine(...): rows of shape {tuple(x.shape[1:])} for a background with rows of shape "
                f"{tuple(self.data.shape[1:])}; the noise is taken element by element."
            )
        some = self.data[:: -(-len(self.data) // MOST)].to(x)
        data, rows = some.reshape(len(some), -1), x.reshape(len(x), 1, -1)
        width, device = data.shape[1], x.device
        groups = torch.arange(width, device=device) if self.groups is None else self.groups.flatten().to(device)
        _, groups = groups.unique(return_inverse=True)
        count = int(groups.max()) + 1
        flips = torch.rand(samples, count, generator=generator, device=device).argsort(0) < max(1, round(self.flip * samples))
        others = torch.randint(len(data), (samples, count), generator=generator, device=device)[:, groups]
        replaced = torch.where(flips[:, groups], data.gather(0, others), rows)
        if not x.is_floating_point():
            return replaced.view(len(x), samples, *x.shape[1:])
        category = ((data == data.amin(0)) | (data == data.amax(0))).all(0)
        half = torch.randn(-(-samples // 2), width, dtype=x.dtype, generator=generator, device=device)
        half = half * self._sizes(len(half)).to(half)[:, None] * data.std(0)
        disturbed = rows + torch.stack([half, -half], 1).flatten(0, 1)[:samples]
        return torch.where(category, replaced, disturbed).view(len(x), samples, *x.shape[1:])

    def _sizes(self, count: int) -> Tensor:
        """How many standard deviations, draw after draw."""
        first, last = self.std if isinstance(self.std, tuple) else (self.std, self.std)
        return torch.linspace(first, last, count) if count > 1 else torch.tensor([(first + last) / 2])


@dataclass(frozen=True)
class Masks:
    """Replace features, for words and pictures, which no noise fits: ``Refine(20, perturb=Masks(...))``.

    Args:
        value: The replacement: a number, or a tensor shaped like a row.
        groups: Integers shaped like a row: elements of one group are replaced together. Those with a negative number stay.
        share: The share of draws in which a feature is replaced.

    Raises:
        ValueError: The share is not between 0 and 1.

    Example:
        >>> import torch
        >>> from cafexai import CAFE, Masks, Refine
        >>> cafe = CAFE(torch.nn.Linear(2, 1))
        >>> e = cafe.refine(cafe.explain(torch.ones(3, 2)), Refine(10, perturb=Masks()))
        >>> e.refined.shape
        torch.Size([3, 2])
    """

    value: Tensor | float = 0.0
    groups: Tensor | None = None
    share: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"Masks(..., share={self.share!r}): give a share of the draws between 0 and 1.")

    def __call__(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """(samples, *row), copies of one row, perturbed."""
        if not isinstance(rows, Tensor) or (self.groups is not None and self.groups.shape != rows.shape[1:]):
            what = f"rows of shape {tuple(rows.shape[1:])}" if isinstance(rows, Tensor) else "several inputs"
            raise ValueError(f"Masks(..., groups): groups are integers shaped like a row of one input; these are {what}.")
        places = torch.arange(rows[0].numel()).view(rows.shape[1:]) if self.groups is None else self.groups
        names, index = places.to(rows.device).unique(return_inverse=True)
        order = torch.rand(len(rows), len(names), generator=generator, device=rows.device).argsort(0)
        away = (order < max(1, round(self.share * len(rows)))) & (names >= 0)
        return torch.where(away[:, index], torch.as_tensor(self.value, device=rows.device).to(rows.dtype), rows)
