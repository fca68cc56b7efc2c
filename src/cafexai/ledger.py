"""The ledger of the biases: what every constant in the model added to the explained output, by layer and row.

A bias enters a sum as delta += b, total += |b|. Its share of the output is then read off the gradient at that sum
during the backward pass. It is never taken as "what the features leave over": that would always come out right,
also when a path was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .rows import MIXED, Rows, spread


def per_row(gradient: Tensor, constant: Tensor, rows: Rows, batch: int) -> Tensor:
    """Sum of gradient * constant over the elements of each row. Shape (batch,)."""
    constant = constant.view((1,) * (gradient.ndim - constant.ndim) + constant.shape)
    if batch == 1:
        return (gradient * constant).sum().view(1)
    if rows is MIXED:
        raise ValueError(
            "explain(...): a bias is added to a value that joins several rows of the batch (such as a mean over the "
            "batch), so it belongs to no single row. Explain one row at a time: batch_size=1."
        )
    if rows is not None:
        index = spread(rows, gradient.shape, batch, gradient.device).flatten().long() - 1
        if bool((index < 0).any()):
            raise ValueError(
                "explain(...): a bias is added to elements whose row of the batch is unknown, because the model mixes "
                "constants and rows in one dimension. Explain one row at a time: batch_size=1."
            )
        return gradient.new_zeros(batch).index_add_(0, index, (gradient * constant).flatten())
    same = [dim for dim in range(1, gradient.ndim) if constant.shape[dim] == 1]
    if same:
        gradient = gradient.sum(same, keepdim=True)
    if constant.shape[0] == 1:
        return gradient.reshape(batch, -1) @ constant.flatten()
    return (gradient * constant).reshape(batch, -1).sum(1)


class Ledger:
    """Collects the shares of the biases, one page per backward pass."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.page: dict[str, Tensor] = {}
        self.size = torch.zeros(())  # sum of the entries without their signs, the scale of rounding

    def watch(
        self, delta: Tensor, total: Tensor | None, constant: Tensor | Callable[[], Tensor], rows: Rows, path: str
    ) -> None:
        """From now on, enter what flows back to ``delta`` and ``total`` through the constant added to them."""
        self.page.setdefault(path, delta.new_zeros(self.batch))

        def enter(absolute: bool) -> Any:
            def hook(gradient: Tensor) -> None:
                amount = constant() if callable(constant) else constant
                amount = amount.abs() if absolute else amount
                share = per_row(gradient, amount, rows, self.batch)
                if not bool(share.isfinite().all()):  # an infinite constant, as in a mask, that nothing flows back to
                    share = per_row(gradient, amount.where(amount.isfinite(), 0), rows, self.batch)
                    share = share.where((gradient == 0).logical_or(amount.isfinite()).all(), torch.nan)
                self.page[path] = self.page[path] + share
                self.size = self.size + share.abs()

            return hook

        delta.register_hook(enter(False))
        if total is not None:
            total.register_hook(enter(True))

    def take(self) -> tuple[dict[str, Tensor], Tensor]:
        """The finished page and its size; a new one is begun, with the same layers."""
        page, size = self.page, self.size
        self.page = {path: torch.zeros_like(share) for path, share in page.items()}
        self.size = torch.zeros(())
        return page, size
