"""The ledger of the biases: what every constant in the model added to the explained output, by layer and row.

A bias enters a sum as delta += b, total += |b|. Its share of the output is then read off the gradient at that sum
during the backward pass. It is never taken as "what the features leave over": that would always come out right,
also when a path was lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .rows import MIXED, Rows, spread


def per_row(gradient: Tensor, constant: Tensor, rows: Rows, batch: int) -> Tensor:
    """Sum of gradient * constant over the elements of each row. Shape (batch,)."""
    if rows is None and constant.ndim == 1 and gradient.ndim > 1 and gradient.shape[0] == batch:
        if gradient.shape[-1] == len(constant):  # the bias of a linear layer
            shares = gradient @ constant
            return shares if shares.ndim == 1 else shares.reshape(batch, -1).sum(1)
    constant = constant.view((1,) * (gradient.ndim - constant.ndim) + constant.shape)
    if batch == 1:
        return (gradient * constant).sum().view(1) if constant.numel() > 1 else (gradient.sum() * constant.view(()))[None]
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


class Entry:
    """A constant that was added to a value of these rows, with the path of the module that did it."""

    def __init__(self, ledger: Ledger, constant: Tensor | Callable[[], Tensor], path: str) -> None:
        self.ledger = ledger
        self.path = path
        self.rows: Rows = None
        self.constant = constant
        self._amount: tuple[Tensor, Tensor] | None = None

    @property
    def amount(self) -> tuple[Tensor, Tensor]:
        """A small constant and its absolute value."""
        if self._amount is None:
            assert isinstance(self.constant, Tensor)
            self._amount = self.constant, self.constant.abs()
        return self._amount

    def enter(self, from_delta: Tensor | None, from_total: Tensor | None) -> None:
        """Write down what flows back to delta and total through the constant."""
        for gradient, absolute in ((from_delta, False), (from_total, True)):
            if gradient is None:
                continue
            if callable(self.constant):
                amount = self.constant().abs() if absolute else self.constant()
            else:
                amount = self.amount[absolute]
            share = per_row(gradient, amount, self.rows, self.ledger.batch)
            if not math.isfinite(share.sum().item()):
                share = self._without_infinity(gradient, amount)
            self.ledger.shares.append((self.path, share))

    def _without_infinity(self, gradient: Tensor, amount: Tensor) -> Tensor:
        """The share of a constant with infinite elements, as in a mask; nothing may flow back to these."""
        finite = amount.isfinite()
        share = per_row(gradient, amount.where(finite, 0), self.rows, self.ledger.batch)
        return share.where((gradient == 0).logical_or(finite).all(), torch.nan)


class Ledger:
    """Collects the shares of the biases, one page per backward pass."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.layers: dict[str, tuple[torch.dtype, torch.device]] = {}  # in order, with what its scores are held in
        self.shares: list[tuple[str, Tensor]] = []

    def entry(self, constant: Tensor | Callable[[], Tensor], path: str) -> Entry:
        """A new entry; whoever carries out the backward pass calls its ``enter``."""
        return Entry(self, constant, path)

    def note_layer(self, path: str, like: Tensor) -> None:
        """The layer is listed, also if nothing flows back to it."""
        if path not in self.layers:
            self.layers[path] = like.dtype, like.device

    def watch(
        self, delta: Tensor, total: Tensor | None, constant: Tensor | Callable[[], Tensor], rows: Rows, path: str
    ) -> None:
        """From now on, enter what flows back to ``delta`` and ``total`` through the constant added to them."""
        self.note_layer(path, delta)
        entry = self.entry(constant, path)
        entry.rows = rows
        delta.register_hook(lambda gradient: entry.enter(gradient, None))
        if total is not None:
            total.register_hook(lambda gradient: entry.enter(None, gradient))

    def take(self) -> tuple[dict[str, Tensor], list[Tensor]]:
        """The finished page, one share for each layer, and its entries one by one; a new page is begun."""
        page: dict[str, Tensor] = {}
        for path, share in self.shares:
            page[path] = page[path] + share if path in page else share
        entries = [share for _, share in self.shares]
        self.shares = []
        in_order = {
            path: page[path] if path in page else torch.zeros(self.batch, dtype=dtype, device=device)
            for path, (dtype, device) in self.layers.items()
        }
        return in_order, entries
