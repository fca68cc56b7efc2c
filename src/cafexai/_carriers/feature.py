"""A carrier that nets the paths of one feature before they meet those of others (``netting="feature"``).

Every value holds one signed contribution per feature (or group of features), and a last one for all biases:

    k_1 + ... + k_F + k_bias = delta.

A linear map acts on each contribution with its signs. At an elementwise function positive = sum of max(k, 0) and negative =
sum of max(-k, 0); the paper's activation rule (``activation.py``) gives its four multipliers from these, and a positive
contribution is scaled by m++ - m+-, a negative one by m-- - m-+. The edges into the explained output are not netted, so that a
feature keeps a positive and a negative score there: ``edges``, of each contribution, is what its edges add up to in size.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from .._core.activation import at_points, flows
from .._core.backward import Outcome, Passed, halve
from .._core.completeness import check_sum, proportion
from .._core.contract import Made, Move
from .._core.feature_index import Features
from .._core.flow_rule import FlowRule
from .._core.math_functions import ONE_TO_ONE, Function, over_rows
from .._core.row_index import Rows
from .._core.run import Run
from .._core.steps import JointStep, apply_linear
from .._core.tolerance import input_change, widest
from .._core.value import Scores

BLOCK = 2**22  # elements that an intermediate result has at most
ALL_LAYERS = "(all layers)"
Edges = Callable[[], Tensor]  # makes the sizes of edges; holds single tensors, never values: their histories could not be freed


class FeatureState:
    """Of one pass: which elements of the inputs are one feature."""

    def __init__(self) -> None:
        self.features: Features | None = None

    def release(self) -> None:
        """Nothing here is needed for the backward pass alone."""


class FeatureScores(Scores):
    """reference, delta and ``contributions`` (features + 1, *shape of the value)."""

    meaning = "which nets the paths of each feature first"
    by_feature = True
    new_state = FeatureState
    has_ledger = False  # the last contribution is that of the biases

    def __init__(
        self, run: Run, reference: Tensor | None, delta: Tensor, contributions: Tensor, rows: Rows, edges: Edges | None = None
    ) -> None:
        self.run = run
        self.reference = reference
        self.delta = self.template = delta
        self.parts = ()  # nothing flows back
        self.contributions = contributions
        self.rows = rows
        self._edges = edges
        self.is_sum = False  # made by adding two values: a sum that is added to further (a residual stream) counts as one edge

    @property
    def edges(self) -> Tensor:
        """The size of the edges that made up each contribution, shaped like ``contributions``."""
        return self.edges_of()()

    def edges_of(self, sums: bool = True) -> Edges:
        """How to compute ``edges``; with ``sums=False`` a sum is one edge."""
        return self.contributions.abs if self._edges is None or (self.is_sum and not sums) else self._edges

    def _make_result(self, made: Made, contributions: Tensor, edges: Edges | None = None) -> Any:
        reference, delta, rows = made
        carrier: Any = self.run.settings.carrier
        return carrier(self.run, reference, delta, contributions, rows, edges)

    @classmethod
    def of_input(cls, run: Run, x: Tensor, reference: Tensor | None) -> FeatureScores:
        """The change of the input; ``belongs`` says whose it is."""
        delta = input_change(x, reference).detach()
        return cls(run, reference, delta, delta.new_zeros(0), None)

    def belongs(self, source: int, places: Tensor) -> None:
        """Give every element to the feature at its place in a row of an input."""
        if self.run.state.features is None:  # the operations of the model are asked for, no scores
            return
        features = _features(self.run)
        owners = features.owners(source, places, self.delta.shape)
        nothing = self.delta.new_zeros(features.carried + 1, *self.delta.shape)
        self.contributions = nothing.scatter_(0, owners[None], self.delta[None])

    def influence(self) -> Tensor:
        return self.edges.sum(0)

    def _make_copy(self) -> Any:
        copy = self._make_result((self.reference, self.delta, self.rows), self.contributions, self.edges_of())
        copy.is_sum = self.is_sum
        return copy

    @classmethod
    def outcome(cls, passed: Passed, keep: bool = False) -> Outcome:
        net, size, features = passed.chosen.contributions, passed.chosen.edges, _features(passed.run)  # type: ignore[attr-defined]
        up, down = halve(size + net), halve(size - net)
        return Outcome(
            features.at_inputs(net, passed.inputs),
            {ALL_LAYERS: torch.stack([up[-1], down[-1], net[-1]], 1)},
            _lack(passed),
            positive=features.at_inputs(up, passed.inputs),
            negative=features.at_inputs(down, passed.inputs),
            notes=proportion(passed, [net[:-1].mT]),
            cut=[part > 0 for part in features.at_inputs(_find_cut_off(passed), passed.inputs)] if passed.run.cuts else [],
        )

    @classmethod
    def net(cls, passed: Passed) -> Outcome:
        net: Tensor = passed.chosen.contributions  # type: ignore[attr-defined]
        return Outcome(_features(passed.run).at_inputs(net, passed.inputs), {ALL_LAYERS: net[-1]}, _lack(passed))

    @classmethod
    def _carry_join(
        cls, run: Run, fn: Move, parts: Sequence[Any], deltas: list[Tensor], references: list[Any], rows: list[Rows]
    ) -> list[Any]:
        count, of_edges = _features(run).carried, []
        for part in parts:
            of_edges.append(functools.partial(_at_bias, part.abs(), count) if isinstance(part, Tensor) else part.edges_of())

        def edges(i: int) -> Tensor:
            return _each(fn, *(edge() for edge in of_edges))[i]

        shares = _each(fn, *(_at_bias(part, count) if isinstance(part, Tensor) else part.contributions for part in parts))
        carrier: Any = run.settings.carrier
        return [
            carrier(run, references[i], delta, shares[i], rows[i], functools.partial(edges, i))
            for i, delta in enumerate(deltas)
        ]

    def _start_mapped(self, fn: Function, aligned: bool) -> Tensor:
        """Only maps that leave dimension 0 alone may be computed for one row of it."""
        return over_rows(fn, self.start) if aligned else fn(self.start)

    def _carry_map(
        self, fn: Callable[..., Tensor], constants: tuple[Any, ...], bias: tuple[Any, ...], made: Made, amount: Tensor | None
    ) -> Any:
        nothing, shape = (None,) * len(bias), made[1].shape

        def over_each(values: Tensor, factors: tuple[Any, ...], constant: Tensor | None) -> Tensor:
            if fn is apply_linear:
                result = apply_linear(values, *factors)
            else:
                (result,) = _each(lambda v: fn(v, *factors, *nothing), values)
            if result.shape[1:] != shape:
                result = _align(result, len(shape)).expand(-1, *shape)
            if constant is None:
                return result
            result = result.clone() if fn in ONE_TO_ONE else result
            result[-1] += constant
            return result

        before = self.edges_of() if fn in ONE_TO_ONE else self.contributions.abs

        def edges() -> Tensor:
            return over_each(before(), tuple(abs(constant) for constant in constants), None if amount is None else amount.abs())

        return self._make_result(made, over_each(self.contributions, constants, amount), edges)

    def _carry_sum(self, other: Any, alpha: float, made: Made) -> Any:
        ndim = made[1].ndim
        mine, yours = (_align(values, ndim) for values in (self.contributions, other.contributions))
        of_edges = self.edges_of(sums=False), other.edges_of(sums=False)

        def edges() -> Tensor:
            one, two = (_align(edge(), ndim) for edge in of_edges)
            return torch.add(one, two, alpha=abs(alpha))

        result = self._make_result(made, torch.add(mine, yours, alpha=alpha), edges)
        result.is_sum = True
        return result

    def sides(self) -> tuple[Tensor, Tensor]:
        """What all contributions push up, and what they push down."""
        zero = self.contributions.new_zeros(self.contributions.shape[1:])
        positive = sum((part.clamp_min(0).sum(0) for part in _blocks(self.contributions)), zero)
        negative = sum((part.clamp_max(0).sum(0) for part in _blocks(self.contributions)), zero).neg()
        return positive, negative

    def flows(
        self, phi: Function, keeps_zero: bool, rule: FlowRule, sides: tuple[Tensor, Tensor]
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """Reference behind phi, change of phi, and what cancelled influence still changes, k - m of the activation rule."""
        reference, delta = self.reference, self.delta.detach()
        if reference is None and not keeps_zero:
            reference = delta.new_zeros(()).expand(delta.shape)
        behind = None if reference is None else over_rows(phi, reference)
        positive, negative = sides
        total = positive + negative
        points = at_points(delta, total, reference, behind, phi)
        change, along, against, _ = flows(delta, total, points, phi, rule, reference)
        net = along.add_(against).where((positive > 0) & (negative > 0), 0)  # rounding must not make up what cancels
        return behind, change, net

    def _carry_function(self, phi: Function, keeps_zero: bool) -> Any:
        positive, negative = self.sides()
        behind, change, net = self.flows(phi, keeps_zero, self.run.flow_rule, (positive, negative))
        rising = self.delta.detach() >= 0
        up = (net + change * rising).div_(_or_one(positive))
        down = (net - change * ~rising).div_(_or_one(negative))
        contributions = torch.empty_like(self.contributions)
        for new, old in zip(_blocks(contributions), _blocks(self.contributions), strict=True):
            torch.mul(old.clamp_min(0), up, out=new)
            new.addcmul_(old.clamp_max(0), down)
        return self._make_result((behind, change, self.rows), contributions)

    def _carry_mix(self, weights: Tensor, dims: tuple[int, ...], made: Made) -> Any:
        inner, edges = tuple(dim + 1 for dim in dims), self.edges_of()
        contributions = (self.contributions * weights).sum(inner, keepdim=True)
        return self._make_result(made, contributions, lambda: (edges() * weights).sum(inner, keepdim=True))

    def _carry_product(self, other: Any, fn: Callable[..., Tensor], halves: tuple[Tensor, Tensor], made: Made) -> Any:
        mine, yours = halves
        of_mine, of_yours = self.contributions, other.contributions
        (left,), (right,) = _each(lambda v: fn(v, yours), of_mine), _each(lambda v: fn(mine, v), of_yours)

        def edges() -> Tensor:
            (one,) = _each(lambda v: fn(v, yours.abs()), of_mine.abs())
            (two,) = _each(lambda v: fn(mine.abs(), v), of_yours.abs())
            return one + two

        return self._make_result(made, left + right, edges)

    def _carry_step(self, parts: Sequence[Any], step: JointStep, composed: Callable[[], Any], rows: Rows) -> Any:
        reference, change = step.outputs()
        shares = [None if isinstance(part, Tensor) else part.contributions for part in parts]
        contributions = torch.cat([step.push(*some) for some in _some_at_a_time(shares)])
        return self._make_result((reference, change, rows), contributions, lambda: composed().edges)


def _some_at_a_time(values: Sequence[Tensor | None]) -> Iterator[tuple[Tensor | None, ...]]:
    """Some contributions of several values at a time."""
    count, size = next((len(one), one.numel()) for one in values if one is not None)
    at_once = max(1, BLOCK * count // max(1, size))
    for first in range(0, count, at_once):
        yield tuple(None if one is None else one[first : first + at_once] for one in values)


def _features(run: Run) -> Features:
    features: Features | None = run.state.features
    assert features is not None
    return features


def _lack(passed: Passed) -> Tensor:
    """Sum of all contributions minus the change of the output, which is carried by itself. (rows,)"""
    chosen: Any = passed.chosen
    exact = widest(chosen.delta.device)
    goal = chosen.delta.detach().to(exact)
    lack: Tensor = chosen.contributions.sum(0, dtype=exact) - goal
    check_sum(passed, goal, lack, (chosen.contributions.mT,))
    return lack


def _find_cut_off(passed: Passed) -> Tensor:
    """Which features contribute to values that were cut off, as 0 or 1. (features + 1, rows)"""
    batch, found = passed.run.batch, torch.zeros_like(passed.chosen.contributions)  # type: ignore[attr-defined]
    for value in passed.run.cuts:
        shares = value.contributions  # type: ignore[attr-defined]
        by_row = value.rows is None and value.ndim > 0
        shares = shares.reshape(len(shares), batch if by_row else 1, -1)
        found += (shares != 0).any(-1)
    return found


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


def _align(shares: Tensor, ndim: int) -> Tensor:
    """With the dimensions of the value at the end, as broadcasting wants them."""
    return shares.reshape(len(shares), *(1,) * (ndim + 1 - shares.ndim), *shares.shape[1:])


def _at_bias(constant: Tensor, count: int) -> Tensor:
    return torch.cat([constant.new_zeros(count, *constant.shape), constant[None]])


def _or_one(amount: Tensor) -> Tensor:
    """What is 0 has no parts to be scaled."""
    return torch.where(amount == 0, torch.ones_like(amount), amount)
