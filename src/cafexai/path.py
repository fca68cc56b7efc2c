"""The paper's carrier: positive and negative influence are kept apart along every path (``netting="path"``).

Held as delta = positive - negative and total = positive + negative. A linear layer then is two matrix products, and
delta, which an activation sets exactly to phi(a) - phi(r), never is a difference of large numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .activation import activate
from .lazy import joined_lazily, lazy
from .pointwise import over_rows
from .rows import Rows
from .scores import Run, Scores
from .weighted import Weighted, weighted


class PathScores(Scores):
    """reference, delta and total >= |delta|; positive = (total + delta) / 2, negative = (total - delta) / 2."""

    def __init__(self, run: Run, reference: Tensor | None, delta: Tensor, total: Tensor, rows: Rows) -> None:
        self.run = run
        self.reference = reference
        self.delta = delta
        self.total = total
        self.rows = rows

    @classmethod
    def of_input(cls, run: Run, x: Tensor, reference: Tensor | None) -> PathScores:
        """The input layer rule: positive = max(x - r, 0), negative = max(r - x, 0)."""
        delta = (x.detach().clone() if reference is None else x - reference).detach().requires_grad_()
        return cls(run, reference, delta, delta.detach().abs().requires_grad_(), None)

    def copy(self) -> PathScores:
        copy = PathScores(self.run, self.reference, self.delta, self.total, self.rows)
        copy.logits = self.logits
        return copy

    def worst_sign(self) -> float:
        if not self.delta.numel():
            return 0.0
        short = (self.delta.abs() - self.total).max().item()
        return max(short, 0.0) / max(self.total.max().item(), 1e-30)

    @property
    def influence(self) -> Tensor:
        return self.total

    @property
    def parts(self) -> tuple[Tensor, Tensor]:
        """The tensors that carry gradients."""
        return self.delta, self.total

    @classmethod
    def join(cls, run: Run, fn: Callable[[Sequence[Tensor]], Any], parts: Sequence[Any], aligned: bool = False) -> Any:
        waiting = joined_lazily(PathScores, run, fn, parts, aligned)
        if waiting is not None:
            return waiting
        scored = [p for p in parts if isinstance(p, PathScores)]
        deltas = fn([p.delta if isinstance(p, PathScores) else run.to_scores(p) for p in parts])
        totals = fn([p.total if isinstance(p, PathScores) else run.to_scores(p).abs() for p in parts])
        references = None
        if any(p.reference is not None for p in scored) or (run.biases_in_reference and len(scored) < len(parts)):
            references = fn([_reference(p) if isinstance(p, PathScores) else run.to_reference(p) for p in parts])
        single = isinstance(deltas, Tensor)
        many = [deltas] if single else list(deltas)
        rows = scored[0]._rows_moved(fn, parts, len(many), aligned)
        results = [
            PathScores(run, None if references is None else (references if single else references[i]), d, t, rows[i])
            for i, (d, t) in enumerate(zip(many, [totals] if single else totals, strict=True))
        ]
        if len(scored) < len(parts) and not run.biases_in_reference:
            like = many[0].detach()
            kept = [p.shape if isinstance(p, PathScores) else p.clone() for p in parts]  # the model may write to its own later

            @functools.cache
            def constant(place: int) -> Tensor:  # made when it is first needed: it is as large as the result
                joined = fn([like.new_zeros(p) if isinstance(p, torch.Size) else p for p in kept])
                return joined if single else joined[place]

            for place, result in enumerate(results):
                run.ledger.watch(result.delta, result.total, functools.partial(constant, place), result.rows, run.path)
        return results[0] if single else tuple(results)

    def linear(
        self, fn: Callable[..., Tensor], *constants: Any, bias: Any = None, bias_dims: int = 0, aligned: bool = False
    ) -> PathScores:
        if fn is weighted:
            return self._weighted(constants[0], bias, aligned)
        run, made = self.run, bias
        bias = bias() if callable(bias) else bias
        nothing = () if bias is None else (None,)
        last, at_start = run.constants(() if bias is None else (bias,), nothing)
        reference = None
        if self.reference is not None or (bias is not None and run.biases_in_reference):
            reference = fn(_reference(self), *constants, *at_start)
        delta = fn(self.delta, *constants, *last)
        total = fn(self.total, *(None if constant is None else abs(constant) for constant in (*constants, *last)))
        if reference is not None and reference.shape != delta.shape:
            shape = torch.broadcast_shapes(reference.shape, delta.shape)
            reference, delta, total = (v.expand(shape) for v in (reference, delta, total))
        rows = self._rows_linear(fn, constants, bias, aligned, delta)
        if bias is not None and not run.biases_in_reference:
            amount = made if callable(made) else bias.to(delta.dtype).reshape((*bias.shape, *(1,) * bias_dims))
            run.ledger.watch(delta, total, amount, rows, run.path)
        return PathScores(run, reference, delta, total, rows)

    def _weighted(self, weight: Tensor, bias: Tensor | None, aligned: bool) -> PathScores:
        """A linear layer; by far the most frequent linear map, so it has a form of its own.

        Of sequences, scores are made when they are asked for: those of queries and keys never are.
        """
        run, delta = self.run, None
        (bias,), (start,) = run.constants((None if bias is None else bias.to(self.delta.dtype),), (None,))
        if run.deltas is not None:
            delta = run.deltas.next(self.delta.detach(), weight.to(self.delta.dtype), bias)
        elif self.ndim > 2:
            delta = weighted(self.delta.detach(), weight, bias)
        reference = self.reference
        if reference is None and start is not None:
            reference = self.delta.new_zeros(()).expand(self.delta.shape)
        if reference is not None:

            def moved(r: Tensor) -> Tensor:
                return weighted(r, weight, start)

            reference = over_rows(moved, reference) if self.ndim > 1 else moved(reference)
        if bias is not None:
            run.ledger.note_layer(run.path, self.delta)
        if self.ndim > 2 and delta is not None:
            return self._layer(weight, bias, aligned, reference, delta, delta if reference is None else reference + delta)
        return self._through(weight, bias, aligned, reference, delta)

    def _through(
        self, weight: Tensor, bias: Tensor | None, aligned: bool, reference: Tensor | None, known: Tensor | None
    ) -> PathScores:
        """The scores behind a linear layer, whose delta may be known."""
        run = self.run
        entry = None if bias is None else run.ledger.entry(bias, run.path)
        delta, total = Weighted.apply(self.delta, self.total, weight, run.magnitudes, entry, known)
        rows = self._rows_linear(weighted, (weight,), bias, aligned, delta)
        if entry is not None:
            entry.rows = rows
        return PathScores(run, reference, delta, total, rows)

    def _layer(
        self, weight: Tensor, bias: Tensor | None, aligned: bool, reference: Tensor | None, delta: Tensor, value: Tensor
    ) -> Any:
        """The same, made when it is asked for; also for some columns alone."""
        versions = [part._version for part in (weight, bias) if part is not None]

        def compute() -> PathScores:
            if versions != [part._version for part in (weight, bias) if part is not None]:
                raise ValueError("explain(...): the model writes to the weights of a linear layer after using them.")
            return self._through(weight, bias, aligned, reference, delta)

        def columns(part: slice) -> Any:
            rest = [None if tensor is None else tensor[..., part] for tensor in (reference, delta, value)]
            return self._layer(weight[part], None if bias is None else bias[part], aligned, *rest)  # type: ignore[arg-type]

        result = lazy(PathScores, self.run, value, compute)
        result.firm, result.columns = True, columns
        return result

    def add(self, other: PathScores, alpha: float = 1) -> PathScores:
        delta = torch.add(self.delta, other.delta, alpha=alpha)
        total = torch.add(self.total, other.total, alpha=abs(alpha))
        if self.reference is None and other.reference is None:
            reference = None
        else:
            reference = torch.add(_reference(self), _reference(other), alpha=alpha)
        return PathScores(self.run, reference, delta, total, self._rows_merged(other))

    def elementwise(self, phi: Callable[[Tensor], Tensor], keeps_zero: bool = False, routing: bool = False) -> PathScores:
        if routing:
            return lazy(PathScores, self.run, phi(self.value), lambda: self.elementwise(phi, keeps_zero))
        delta, total, reference = activate(self.delta, self.total, self.reference, phi, self.run.c, keeps_zero)
        return PathScores(self.run, reference, delta, total, self.rows)

    def mix(self, weights: Tensor, dims: tuple[int, ...], reference: Tensor | None) -> PathScores:
        delta = (self.delta * weights).sum(dims, keepdim=True)
        total = (self.total * weights).sum(dims, keepdim=True)
        rows = self._rows_linear(lambda v: v.mean(dims, keepdim=True), (), None, 0 not in dims, delta)
        return PathScores(self.run, reference, delta, total, rows)

    def product(self, other: PathScores, fn: Callable[[Tensor, Tensor], Tensor], routing: bool = False) -> PathScores:
        if routing:
            return lazy(PathScores, self.run, fn(self.value, other.value), lambda: self.product(other, fn))
        mine, yours = _midpoint(self), _midpoint(other)
        delta = fn(self.delta, yours) + fn(mine, other.delta)
        total = fn(self.total, yours.abs()) + fn(mine.abs(), other.total)
        reference = None
        if self.reference is not None and other.reference is not None:
            reference = fn(self.reference, other.reference)
        rows = self._rows_product(other, fn, delta)
        return PathScores(self.run, reference, delta, total, rows)


def _reference(scores: PathScores) -> Tensor:
    return torch.zeros_like(scores.delta) if scores.reference is None else scores.reference


def _midpoint(scores: PathScores) -> Tensor:
    return scores.value / 2 if scores.reference is None else scores.reference + scores.delta.detach() / 2
