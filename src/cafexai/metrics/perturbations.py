"""Ways to perturb rows, for metrics that watch how the output follows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._core.tolerance import all_finite
from .._inputs.groups import is_index

Perturb = Callable[[Tensor, torch.Generator], Tensor]  # rows and a source of chance -> perturbed rows


@dataclass(frozen=True)
class TabularPerturbation:
    """Gaussian noise on continuous columns; each categorical block is now and then replaced by that of another row.

    Args:
        data: Rows to take categories from.
        blocks: The columns of each categorical feature, ``[[5, 6], [7]]``; all others are continuous.
        std: The noise, in the units of the columns, times ``scale`` if that is given.
        flip: How likely a block is replaced.
        scale: One number per column.

    Raises:
        ValueError: The data are not a table of finite numbers, or a column is in several blocks.

    Example:
        >>> noise = TabularPerturbation(torch.rand(10, 3))
        >>> noise(torch.zeros(2, 3), torch.Generator().manual_seed(0)).shape
        torch.Size([2, 3])
    """

    data: Tensor
    blocks: Sequence[Sequence[int]] = ()
    std: float = 0.5
    flip: float = 0.1
    scale: Tensor | None = None

    @classmethod
    def small(cls, data: Tensor, blocks: Sequence[Sequence[int]] = (), **options: Any) -> TabularPerturbation:
        """The paper's smaller perturbation: noise of 0.5, one block in ten replaced.

        Args:
            data: Rows to take categories from.
            blocks: The columns of each categorical feature.
            **options: Further fields, such as ``scale``.

        Returns:
            The perturbation.
        """
        return cls(data, blocks, 0.5, 0.1, **options)

    @classmethod
    def large(cls, data: Tensor, blocks: Sequence[Sequence[int]] = (), **options: Any) -> TabularPerturbation:
        """The paper's larger perturbation: noise of 0.75, one block in five replaced.

        Args:
            data: Rows to take categories from.
            blocks: The columns of each categorical feature.
            **options: Further fields, such as ``scale``.

        Returns:
            The perturbation.
        """
        return cls(data, blocks, 0.75, 0.2, **options)

    def __post_init__(self) -> None:
        width = self.data.shape[-1]
        columns = [column for block in self.blocks for column in block]
        outside = any(not is_index(column) or not 0 <= column < width for column in columns)
        if self.data.ndim != 2 or len(set(columns)) < len(columns) or outside or not all_finite(self.data):
            raise ValueError(
                f"TabularPerturbation(data, blocks={list(self.blocks)}): data is a table (rows, columns) of finite numbers, "
                f"and every column stands in at most one block, by its index; these data have shape {tuple(self.data.shape)}."
            )

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Perturbed rows, shaped like x."""
        if x.ndim != 2 or x.shape[1] != self.data.shape[1]:
            raise ValueError(
                f"TabularPerturbation: rows of shape {tuple(x.shape)} for data of shape {tuple(self.data.shape)}; other inputs "
                "need a perturbation of their own, such as PatchPerturbation for images."
            )
        columns = [column for block in self.blocks for column in block]
        noise = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device) * self.std
        noise = noise if self.scale is None else noise * torch.as_tensor(self.scale).to(x)
        noise[:, columns] = 0
        disturbed = x + noise
        for block in map(list, self.blocks):
            flips = torch.rand(len(x), generator=generator, device=x.device) < self.flip
            other = torch.randint(len(self.data), (len(x),), generator=generator, device=x.device)
            replaced = self.data.to(x)[other][:, block]
            disturbed[:, block] = torch.where(flips[:, None], replaced, disturbed[:, block])
        return disturbed

    def scaled(self, scale: Tensor) -> TabularPerturbation:
        """The same with noise in units of ``scale``.

        Args:
            scale: One number per column.

        Returns:
            The perturbation with that scale.
        """
        return dataclasses.replace(self, scale=scale)


@dataclass(frozen=True)
class PatchPerturbation:
    """Fill square patches of images (rows, channels, height, width) with a number, or with that plus noise.

    Args:
        size: The side of a patch.
        patches: How many there are in each image; they may overlap.
        fill: The number.
        noise: Standard deviation of the noise.

    Example:
        >>> PatchPerturbation(2)(torch.ones(1, 1, 4, 4), torch.Generator().manual_seed(0)).sum()
        tensor(12.)
    """

    size: int = 4
    patches: int = 1
    fill: float = 0.0
    noise: float = 0.0

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Perturbed images, shaped like x."""
        if x.ndim != 4 or min(x.shape[2:]) < self.size:
            raise ValueError(
                f"PatchPerturbation(size={self.size}): images are (rows, channels, height, width) and at least that large; "
                f"these have shape {tuple(x.shape)}."
            )
        covered = torch.zeros(len(x), *x.shape[2:], dtype=torch.bool, device=x.device)
        for _ in range(self.patches):
            inside = []
            for dim in (2, 3):
                place = torch.arange(x.shape[dim], device=x.device)
                start = torch.randint(x.shape[dim] - self.size + 1, (len(x), 1), generator=generator, device=x.device)
                inside.append((place >= start) & (place < start + self.size))
            covered |= inside[0][:, :, None] & inside[1][:, None, :]
        fill = torch.full_like(x, self.fill)
        if self.noise:
            fill = fill + self.noise * torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
        return torch.where(covered[:, None], fill, x)
