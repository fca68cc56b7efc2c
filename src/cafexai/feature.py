"""A second carrier: the paths of one feature are netted before they meet those of others (``netting="feature"``).

Every value holds one signed contribution per feature (or group of features), and a last one for all biases:

    k_1 + ... + k_F + k_bias = delta.

A linear map acts on each contribution with its signs. At an elementwise function positive = sum of max(k, 0) and negative =
sum of max(-k, 0); the paper's activation rule (``activation.py``) gives its four multipliers from these, and a positive
contribution is scaled by m++ - m+-, a negative one by m-- - m-+. The edges into the explained output are not netted, so that a
feature keeps a positive and a negative score there: ``total``, of each contribution, is what its edges add up to in size.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .activation import flows
from .lazy import Pending, joined_lazily, lazy
from .pointwise import over_rows
from .rows import Rows
from .scores import ONE_TO_ONE, Run, Scores
from .weighted import weighted

BLOCK = 2**22  # elements that an intermediate result has at most


@dataclass(frozen=True)
class Features:
    """Which contribution every element of the inputs belongs to."""

    index: Tensor  # the feature of every element of a row, input after input
    starts: tuple[int, ...]  # where each input begins in it
    total: int  # features, or groups of them
    count: int  # contributions that are carried, besides that of the biases
    slots: Tensor | None = None  # (rows, features): which of them is whose, where not all features have one

    @staticmethod
    def of(shapes: Sequence[torch.Size], groups: Tensor | None = None) -> Features:
        """Every element by itself, or in the groups that are given."""
        sizes = [shape.numel() for shape in shapes]
        starts = tuple(sum(sizes[:i]) for i in range(len(sizes)))
        index = torch.arange(sum(sizes)) if groups is None else groups
        total = int(index.max()) + 1 if len(index) else 0
        return Features(index, starts, total, total)

    def changed(self, changes: Sequence[Tensor]) -> Features:
        """Only features that differ from their reference in a row: the others contribute nothing to any value of that row.

        ``changes`` says of every element of the inputs whether it differs. One-hot columns, dark pixels and padding are free
        then. Every row numbers its features anew, which is right as long as no value depends on several rows; such models
        are refused (``rows.py``).
        """
        differs = torch.cat([change.flatten(1) for change in changes], 1)
        index = self.index.to(differs.device)
        active = torch.zeros(len(differs), self.total, dtype=torch.int32, device=differs.device)
        active = active.index_add_(1, index, differs.int()).clamp_max_(1)
        most = max(1, int(active.sum(1).max())) if len(active) else 1
        if most > 0.75 * self.total:  # hardly anything to be saved
            return self
        slots = torch.where(active > 0, active.cumsum(1) - 1, most)  # what is not carried stands at the biases, as 0
        return replace(self, count=most, slots=slots)

    def owners(self, source: int, places: Tensor, shape: torch.Size) -> Tensor:
        """The contribution that every element of an input of this shape belongs to, by its place in a row."""
        feature = self.index.to(places.device)[self.starts[source] + places].expand(shape)
        if self.slots is None:
            return feature
        return self.slots.to(places.device).gather(1, feature.reshape(len(feature), -1)).view(shape)

    def spread(self, values: Tensor) -> Tensor:
        """(contributions + 1, rows) as (rows, features)."""
        if self.slots is None:
            return values[:-1].mT
        return torch.cat([values[:-1], torch.zeros_like(values[:1])]).mT.gather(1, self.slots.to(values.device))

    def spread_pairs(self, pairs: Tensor) -> Tensor:
        """(rows, contributions + 1, contributions + 1) as (rows, features + 1, features + 1)."""
        if self.slots is None:
            return pairs
        own = self.slots.to(pairs.device)
        own = torch.cat([torch.where(own == self.count, self.count + 1, own), torch.full_like(own[:, :1], self.count)], 1)
        padded = torch.nn.functional.pad(pairs, (0, 1, 0, 1))
        wide = padded.gather(1, own[:, :, None].expand(-1, -1, padded.shape[2]))
        return wide.gather(2, own[:, None].expand(-1, own.shape[1], -1))


class FeatureScores(Scores):
    """reference, delta and ``shares``, the contributions (features + 1, *shape of the value)."""

    def __init__(
        self, run: Run, reference: Tensor | None, delta: Tensor, shares: Tensor, rows: Rows, total: Callable[[], Tensor] | None
    ) -> None:
        self.run = run
        self.reference = reference
        self.delta = delta
        self.shares = shares
        self.rows = rows
        self._total = total  # holds single tensors, never other values: their histories could be freed otherwise
        self._is_sum = False

    @property
    def total(self) -> Tensor:
        """The size of the edges that made up each contribution, shaped like ``shares``."""
        return self._edges()()

    def _edges(self, of_sums: bool = True) -> Callable[[], Tensor]:
        """How to compute ``total``; a sum that is added to further (a residual stream) counts as one edge."""
        if isinstance(self, Pending):
            edges: Callable[[], Tensor] = self.full()._edges(of_sums)
            return edges
        shares = self.shares
        return shares.abs if self._total is None or (self._is_sum and not of_sums) else self._total

    def _made(self, reference: Tensor | None, delta: Tensor, shares: Tensor, rows: Rows, total: Any = None) -> FeatureScores:
        carrier: Any = self.run.carrier
        made: FeatureScores = carrier(self.run, reference, delta, shares, rows, total)
        return made

    @classmethod
    def of_input(cls, run: Run, x: Tensor, reference: Tensor | None) -> FeatureScores:
        """The change of the input; ``belongs`` says whose it is."""
        delta = (x if reference is None else x - reference).detach()
        return cls(run, reference, delta, delta.new_zeros(0), None, None)

    def belongs(self, source: int, places: Tensor) -> None:
        """Give every element to the feature at its place in a row of an input."""
        features = self.run.features
        owners = features.owners(source, places, self.delta.shape)
        self.shares = self.delta.new_zeros(features.count + 1, *self.delta.shape).scatter_(0, owners[None], self.delta[None])

    def copy(self) -> FeatureScores:
        copy = self._made(self.reference, self.delta, self.shares, self.rows, self._edges())
        copy.logits = self.logits
        return copy

    def worst_sign(self) -> float:
        return 0.0

    @classmethod
    def join(cls, run: Run, fn: Callable[[Sequence[Tensor]], Any], parts: Sequence[Any], aligned: bool = False) -> Any:
        waiting = joined_lazily(FeatureScores, run, fn, parts, aligned)
        if waiting is not None:
            return waiting
        scored = [p for p in parts if isinstance(p, FeatureScores)]
        of_scores = [p if isinstance(p, FeatureScores) else run.to_scores(p) for p in parts]
        deltas = fn([p.delta if isinstance(p, FeatureScores) else p for p in of_scores])
        single = isinstance(deltas, Tensor)
        many = [deltas] if single else list(deltas)
        count = run.features.count
        edges = [p._edges() if isinstance(p, FeatureScores) else functools.partial(_at_bias, p.abs(), count) for p in of_scores]

        def moved(values: Sequence[Tensor]) -> list[Tensor]:
            return _each(lambda *v: fn(v), *values)

        def total(i: int) -> Tensor:
            return moved([edge() for edge in edges])[i]

        references: list[Any] = [None] * len(many)
        if any(p.reference is not None for p in scored) or (run.biases_in_reference and len(scored) < len(parts)):
            start = fn([_reference(p) if isinstance(p, FeatureScores) else run.to_reference(p) for p in parts])
            references = [start] if single else list(start)
        rows = scored[0]._rows_moved(fn, parts, len(many), aligned)
        shares = moved([p.shares if isinstance(p, FeatureScores) else _at_bias(p, count) for p in of_scores])
        results = [
            scored[0]._made(references[i], delta, shares[i], rows[i], functools.partial(total, i))
            for i, delta in enumerate(many)
        ]
        return results[0] if single else tuple(results)

    def linear(
        self, fn: Callable[..., Tensor], *constants: Any, bias: Any = None, bias_dims: int = 0, aligned: bool = False
    ) -> FeatureScores:
        bias = bias() if callable(bias) else bias
        nothing = () if bias is None else (None,)
        last, at_start = self.run.constants(() if bias is None else (bias,), nothing)
        delta = fn(self.delta, *constants, *last)
        reference = None
        if self.reference is not None or (bias is not None and self.run.biases_in_reference):
            at = over_rows if aligned else _whole  # only maps that leave dimension 0 alone may be computed for one row of it
            reference = at(lambda r: fn(r, *constants, *at_start), _reference(self))
        amount = None
        if bias is not None and not self.run.biases_in_reference:
            amount = bias.to(delta.dtype).reshape((*bias.shape, *(1,) * bias_dims))
        if reference is not None and reference.shape != delta.shape:
            shape = torch.broadcast_shapes(reference.shape, delta.shape)
            reference, delta = reference.expand(shape), delta.expand(shape)

        def over_shares(values: Tensor, factors: tuple[Any, ...], constant: Tensor | None) -> Tensor:
            if fn is weighted:
                result = weighted(values, *factors)
            else:
                (result,) = _each(lambda v: fn(v, *factors, *nothing), values)
            if result.shape[1:] != delta.shape:
                result = result.expand(len(result), *delta.shape)
            if constant is None:
                return result
            result = result.clone() if fn in ONE_TO_ONE else result
            result[-1] += constant
            return result

        edges = self._edges() if fn in ONE_TO_ONE else self.shares.abs

        def total() -> Tensor:
            return over_shares(
                edges(), tuple(abs(constant) for constant in constants), None if amount is None else amount.abs()
            )

        rows = self._rows_linear(fn, constants, bias, aligned, delta)
        return self._made(reference, delta, over_shares(self.shares, constants, amount), rows, total)

    def add(self, other: FeatureScores, alpha: float = 1) -> FeatureScores:
        delta = torch.add(self.delta, other.delta, alpha=alpha)
        reference = None
        if self.reference is not None or other.reference is not None:
            reference = torch.add(_reference(self), _reference(other), alpha=alpha)
        mine, yours = (_aligned(values, delta.ndim) for values in (self.shares, other.shares))
        shares = torch.add(mine, yours, alpha=alpha)

        edges = self._edges(of_sums=False), other._edges(of_sums=False)

        def total() -> Tensor:
            one, two = (_aligned(edge(), delta.ndim) for edge in edges)
            return torch.add(one, two, alpha=abs(alpha))

        result = self._made(reference, delta, shares, self._rows_merged(other), total)
        result._is_sum = True
        return result

    def sides(self) -> tuple[Tensor, Tensor]:
        """What all contributions push up, and what they push down."""
        zero = self.shares.new_zeros(self.shares.shape[1:])
        positive = sum((part.clamp_min(0).sum(0) for part in _blocks(self.shares)), zero)
        negative = sum((part.clamp_max(0).sum(0) for part in _blocks(self.shares)), zero).neg()
        return positive, negative

    def elementwise(self, phi: Callable[[Tensor], Tensor], keeps_zero: bool = False, routing: bool = False) -> Any:
        if routing:
            return lazy(FeatureScores, self.run, phi(self.value), lambda: self.elementwise(phi, keeps_zero))
        reference = self.reference
        if reference is None and not keeps_zero:
            reference = self.delta.new_zeros(()).expand(self.delta.shape)
        at_reference = None if reference is None else over_rows(phi, reference)
        delta, (positive, negative) = self.delta.detach(), self.sides()
        change, along, against, _ = flows(delta, positive + negative, reference, at_reference, phi, self.run.c)
        net = along.add_(against).where((positive > 0) & (negative > 0), 0)  # rounding must not make up what cancels
        rising = delta >= 0
        up = (net + change * rising).div_(_or_one(positive))
        down = (net - change * ~rising).div_(_or_one(negative))
        shares = torch.empty_like(self.shares)
        for new, old in zip(_blocks(shares), _blocks(self.shares), strict=True):
            torch.mul(old.clamp_min(0), up, out=new)
            new.addcmul_(old.clamp_max(0), down)
        return self._made(at_reference, change, shares, self.rows)

    def mix(self, weights: Tensor, dims: tuple[int, ...], reference: Tensor | None) -> FeatureScores:
        delta = (self.delta * weights).sum(dims, keepdim=True)
        inner = tuple(dim + 1 for dim in dims)
        rows = self._rows_linear(lambda v: v.mean(dims, keepdim=True), (), None, 0 not in dims, delta)
        shares = (self.shares * weights).sum(inner, keepdim=True)
        edges = self._edges()
        return self._made(reference, delta, shares, rows, lambda: (edges() * weights).sum(inner, keepdim=True))

    def product(self, other: FeatureScores, fn: Callable[[Tensor, Tensor], Tensor], routing: bool = False) -> Any:
        if routing:
            return lazy(FeatureScores, self.run, fn(self.value, other.value), lambda: self.product(other, fn))
        mine, yours = ((_reference(s) + s.value) / 2 for s in (self, other))
        delta = fn(self.delta, yours) + fn(mine, other.delta)
        (left,), (right,) = _each(lambda v: fn(v, yours), self.shares), _each(lambda v: fn(mine, v), other.shares)
        reference = None
        if self.reference is not None and other.reference is not None:
            reference = fn(self.reference, other.reference)

        of_mine, of_yours = self.shares, other.shares

        def total() -> Tensor:
            (one,) = _each(lambda v: fn(v, yours.abs()), of_mine.abs())
            (two,) = _each(lambda v: fn(mine.abs(), v), of_yours.abs())
            return one + two

        return self._made(reference, delta, left + right, self._rows_product(other, fn, delta), total)


def _each(fn: Callable[..., Any], *values: Tensor) -> list[Tensor]:
    """fn of every contribution; one result, or several, each with the contributions in front."""
    at_once = max(1, BLOCK * len(values[0]) // max(1, max(v.numel() for v in values)))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There is a performance drop")
            result = torch.vmap(fn, chunk_size=at_once)(*values)
    except (RuntimeError, ValueError):  # some functions of torch cannot be mapped: one after the other
        results = [fn(*parts) for parts in zip(*values, strict=True)]
        if isinstance(results[0], Tensor):
            return [torch.stack(results)]
        return [torch.stack(parts) for parts in zip(*results, strict=True)]
    return [result] if isinstance(result, Tensor) else list(result)


def _blocks(values: Tensor) -> tuple[Tensor, ...]:
    """Some contributions at a time."""
    return values.split(max(1, BLOCK * len(values) // max(1, values.numel())))


def _aligned(shares: Tensor, ndim: int) -> Tensor:
    """With the dimensions of the value at the end, as broadcasting wants them."""
    return shares.reshape(len(shares), *(1,) * (ndim + 1 - shares.ndim), *shares.shape[1:])


def _whole(fn: Callable[[Tensor], Tensor], reference: Tensor) -> Tensor:
    return fn(reference)


def _at_bias(constant: Tensor, count: int) -> Tensor:
    return torch.cat([constant.new_zeros(count, *constant.shape), constant[None]])


def _or_one(amount: Tensor) -> Tensor:
    """What is 0 has no parts to be scaled."""
    return torch.where(amount == 0, torch.ones_like(amount), amount)


def _reference(scores: FeatureScores) -> Tensor:
    return torch.zeros_like(scores.delta) if scores.reference is None else scores.reference
