"""A value that carries one signed change: what DeepLIFT and LRP distribute. They differ in their elementwise functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..lazy import joined_lazily, lazy
from ..rows import Rows
from ..scores import ONE_TO_ONE, Run, Scores


class SignedScores(Scores):
    """reference and delta; ``total``, the magnitudes of what was added up to delta, is computed only where it is asked for."""

    biases_in_reference: ClassVar[bool]  # DeepLIFT compares with the model at the reference, biases included

    def __init__(
        self, run: Run, reference: Tensor | None, delta: Tensor, rows: Rows, total: Callable[[], Tensor] | None = None
    ) -> None:
        self.run = run
        self.reference = reference
        self.delta = delta
        self.rows = rows
        self._total = total
        self._known: Tensor | None = None

    @property
    def total(self) -> Tensor:
        """Positive plus negative part of delta."""
        if self._known is None:
            self._known = self.delta.abs() if self._total is None else self._total()
        return self._known

    @property
    def parts(self) -> tuple[Tensor]:
        """The tensors that carry gradients."""
        return (self.delta,)

    @classmethod
    def of_input(cls, run: Run, x: Tensor, reference: Tensor | None) -> Any:
        """The change of the input."""
        delta = (x.detach().clone() if reference is None else x - reference).detach().requires_grad_()
        return run.carrier(run, reference, delta, None)  # type: ignore[call-arg]

    def _made(self, reference: Tensor | None, delta: Tensor, rows: Rows, total: Callable[[], Tensor] | None) -> Any:
        return self.run.carrier(self.run, reference, delta, rows, total)  # type: ignore[call-arg]

    def copy(self) -> Any:
        copy = self._made(self.reference, self.delta, self.rows, lambda: self.total)
        copy.logits = self.logits
        return copy

    def worst_sign(self) -> float:
        return 0.0

    @classmethod
    def join(cls, run: Run, fn: Callable[[Sequence[Tensor]], Any], parts: Sequence[Any], aligned: bool = False) -> Any:
        waiting = joined_lazily(run.carrier, run, fn, parts, aligned)
        if waiting is not None:
            return waiting
        kept = cls.biases_in_reference
        scored = [p for p in parts if isinstance(p, SignedScores)]
        constants = len(scored) < len(parts)

        single = False

        def of(scores: Callable[[Any], Tensor], constant: Callable[[Tensor], Tensor]) -> Any:
            nonlocal single
            moved = fn([scores(p) if isinstance(p, SignedScores) else constant(p) for p in parts])
            single = isinstance(moved, Tensor)
            return [moved] if single else list(moved)

        deltas = of(lambda p: p.delta, torch.zeros_like if kept else _same)
        references: list[Any] = [None] * len(deltas)
        if any(p.reference is not None for p in scored) or (kept and constants):
            references = of(_reference, _same if kept else torch.zeros_like)
        rows = scored[0]._rows_moved(fn, parts, len(deltas), aligned)
        results = []
        for i, (reference, delta) in enumerate(zip(references, deltas, strict=True)):

            def total(i: int = i) -> Tensor:
                return of(lambda p: p.total, torch.zeros_like if kept else torch.abs)[i]

            results.append(scored[0]._made(reference, delta, rows[i], total))
        if constants and not kept:
            for result, amount in zip(results, of(lambda p: torch.zeros_like(p.delta), _same), strict=True):
                run.ledger.watch(result.delta, None, amount, result.rows, run.path)
        return results[0] if single else tuple(results)

    def linear(
        self, fn: Callable[..., Tensor], *constants: Any, bias: Any = None, bias_dims: int = 0, aligned: bool = False
    ) -> Any:
        made, bias = bias, bias() if callable(bias) else bias
        kept = self.biases_in_reference
        last = () if bias is None else (bias,)
        nothing = () if bias is None else (None,)
        delta = fn(self.delta, *constants, *(nothing if kept else last))
        reference = None
        if self.reference is not None or (kept and bias is not None):
            reference = fn(_reference(self), *constants, *(last if kept else nothing))
            shape = torch.broadcast_shapes(reference.shape, delta.shape)
            reference, delta = reference.expand(shape), delta.expand(shape)
        rows = self._rows_linear(fn, constants, bias, aligned, delta)
        if bias is not None and not kept:
            amount = made if callable(made) else bias.to(delta.dtype).reshape((*bias.shape, *(1,) * bias_dims))
            self.run.ledger.watch(delta, None, amount, rows, self.run.path)

        def total() -> Tensor:
            """The linear rule nets the change of each input first; scales and shifts pass its two parts on."""
            influence = self.total if fn in ONE_TO_ONE else self.delta.abs()
            return fn(influence, *(abs(constant) for constant in constants), *nothing).expand(delta.shape)

        return self._made(reference, delta, rows, total)

    def add(self, other: Any, alpha: float = 1) -> Any:
        delta = torch.add(self.delta, other.delta, alpha=alpha)
        reference = None
        if self.reference is not None or other.reference is not None:
            reference = torch.add(_reference(self), _reference(other), alpha=alpha)

        def total() -> Tensor:
            return torch.add(self.total, other.total, alpha=abs(alpha))

        return self._made(reference, delta, self._rows_merged(other), total)

    def elementwise(self, phi: Callable[[Tensor], Tensor], keeps_zero: bool = False, routing: bool = False) -> Any:
        if routing:
            return lazy(self.run.carrier, self.run, phi(self.value), lambda: self.elementwise(phi, keeps_zero))
        reference, delta = self._through(phi)
        return self._made(reference, delta, self.rows, None)

    def _through(self, phi: Callable[[Tensor], Tensor]) -> tuple[Tensor | None, Tensor]:
        """Reference and change after phi."""
        raise NotImplementedError

    def mix(self, weights: Tensor, dims: tuple[int, ...], reference: Tensor | None) -> Any:
        delta = (self.delta * weights).sum(dims, keepdim=True)
        rows = self._rows_linear(lambda v: v.mean(dims, keepdim=True), (), None, 0 not in dims, delta)
        return self._made(reference, delta, rows, lambda: (self.total * weights).sum(dims, keepdim=True))

    def product(self, other: Any, fn: Callable[[Tensor, Tensor], Tensor], routing: bool = False) -> Any:
        if routing:
            return lazy(self.run.carrier, self.run, fn(self.value, other.value), lambda: self.product(other, fn))
        mine, yours = ((_reference(s) + s.value) / 2 for s in (self, other))
        delta = fn(self.delta, yours) + fn(mine, other.delta)
        reference = None
        if self.reference is not None and other.reference is not None:
            reference = fn(self.reference, other.reference)

        def total() -> Tensor:
            return fn(self.delta.abs(), yours.abs()) + fn(mine.abs(), other.delta.abs())

        return self._made(reference, delta, self._rows_product(other, fn, delta), total)


class Multiplied(torch.autograd.Function):
    """A result with given multipliers: exact in its value, linear in its arguments."""

    @staticmethod
    def forward(ctx: Any, result: Tensor, *arguments_and_multipliers: Tensor) -> Tensor:
        ctx.save_for_backward(*arguments_and_multipliers[len(arguments_and_multipliers) // 2 :])
        return result.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        multipliers = ctx.saved_tensors
        return (None, *(gradients[0] * m for m in multipliers), *(None for _ in multipliers))


def divided(amount: Tensor, by: Tensor) -> Tensor:
    """amount / by, with 0 where ``by`` is 0."""
    return torch.where(by == 0, torch.zeros_like(amount), amount / torch.where(by == 0, torch.ones_like(by), by))


def _same(constant: Tensor) -> Tensor:
    return constant


def _reference(scores: Any) -> Tensor:
    return torch.zeros_like(scores.delta) if scores.reference is None else scores.reference
