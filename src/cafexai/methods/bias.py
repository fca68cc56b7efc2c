"""Bias back-propagation (Wang et al. 2019): the biases of a piecewise-linear network, attributed to its features.

Around a row such a network is g(x) = w x + b. The part w x is gradient times input; b is made up of what every bias brings
to the output (its gradient times its value), and each of these amounts is handed down, unit by unit, to the inputs of the
unit that it stands at. The authors leave the shares open; here they are in proportion to |weight * input|, and equal where
all of these are 0. The two parts together add up to the output.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .._carriers.signed import Multiplied, SignedScores
from .._core.backward import Passed
from .._core.contract import Made, Move
from .._core.math_functions import ONE_TO_ONE, Function, derivative
from .._core.row_index import Rows
from .._core.run import Run, Settings
from ..errors import UnsupportedOperation
from .case import Case, method
from .propagation import propagate

Site = tuple[Tensor, Tensor, Tensor]  # the value that a bias was added to, the bias, the shares of the value


@method(baselines=False, aimed=False)
def bias_backpropagation(case: Case, *, bias_only: bool = False) -> Tensor:
    """Gradient times input plus the attributed biases, or those alone; for piecewise-linear networks, without baseline.

    Args:
        bias_only: Only the attributed biases, without gradient times input.
    """
    return propagate(case, Settings(LocalScores), functools.partial(_distribute_biases, bias_only=bias_only))


def _distribute_biases(passed: Passed, bias_only: bool) -> Tensor:
    """Gradient times input and the shares of the biases, for the rows of one pass."""
    passed.chosen.usable()  # type: ignore[attr-defined]
    _refuse_frozen(passed)
    leaf: Any = passed.run.leaves[0].scores
    sites = leaf.sites
    slopes = torch.autograd.grad(
        passed.chosen.delta.sum(), [leaf.delta, *(value for value, _, _ in sites)], allow_unused=True, materialize_grads=True
    )
    amounts = [(slope * bias * share).sum() for slope, (_, bias, share) in zip(slopes[1:], sites, strict=True)]
    of_biases = torch.zeros_like(leaf.delta)
    if amounts:
        (of_biases,) = torch.autograd.grad(torch.stack(amounts).sum(), leaf.share, allow_unused=True, materialize_grads=True)
    return of_biases if bias_only else leaf.delta.detach() * slopes[0] + of_biases


class LocalScores(SignedScores):
    """The value with the slope of the network, and ``share``, a mean over the inputs by which amounts are handed down."""

    has_ledger = False  # biases are remembered with the shares of the value that they were added to

    def __init__(
        self,
        run: Run,
        reference: Tensor | None,
        delta: Tensor,
        rows: Rows,
        share: Tensor | None = None,
        sites: list[Site] | None = None,
    ) -> None:
        super().__init__(run, None, delta, rows)
        self.share = torch.ones_like(delta).requires_grad_() if share is None else share
        self.sites: list[Site] = [] if sites is None else sites
        self.smooth = False  # made by a function that is not piecewise linear: only its logits may be used

    def usable(self) -> LocalScores:
        """The value itself, if it may be used."""
        if self.smooth:
            raise UnsupportedOperation("it uses a value that is not piecewise linear; bias_backpropagation needs that")
        return self

    def _local(self, made: Made, share: Tensor) -> LocalScores:
        return LocalScores(self.run, *made, share, self.sites)

    def _make_copy(self) -> LocalScores:
        return self._local((None, self.delta, self.rows), self.share)

    @classmethod
    def _carry_join(
        cls, run: Run, fn: Move, parts: Sequence[Any], deltas: list[Tensor], references: list[Any], rows: list[Rows]
    ) -> list[Any]:
        scored = [part.usable() for part in parts if not isinstance(part, Tensor)]
        if any(bool(part.any()) for part in parts if isinstance(part, Tensor)):
            raise UnsupportedOperation("constants are joined to a value: these biases stand at no unit that has inputs")
        moved = fn(*[torch.zeros_like(part) if isinstance(part, Tensor) else part.share for part in parts])
        shares = [moved] if isinstance(moved, Tensor) else moved
        made = zip(references, deltas, rows, strict=True)
        return [scored[0]._local(one, share) for one, share in zip(made, shares, strict=True)]

    def _carry_map(
        self, fn: Callable[..., Tensor], constants: tuple[Any, ...], bias: tuple[Any, ...], made: Made, amount: Tensor | None
    ) -> LocalScores:
        self.usable()
        nothing, delta = (None,) * len(bias), made[1]
        if fn in ONE_TO_ONE:
            share = self.share.expand(delta.shape)
        else:
            size = self.delta.detach().abs()
            weights = tuple(abs(constant) for constant in constants)
            share = _mean(lambda v: fn(v, *weights, *nothing), size, self.share)
            idle = fn(size, *weights, *nothing) == 0
            if bool(idle.any()):
                ones = tuple(torch.ones_like(c) if isinstance(c, Tensor) else c for c in constants)
                equal = _mean(lambda v: fn(v, *ones, *nothing), torch.ones_like(size), self.share)
                share = torch.where(idle, equal, share)
        if amount is not None:
            self._site(delta, amount, share)
        return self._local(made, share)

    def _site(self, value: Tensor, bias: Tensor, share: Tensor) -> None:
        """Remember a bias; an infinite one, as in a mask, brings nothing to the output."""
        self.sites.append((value, bias.where(bias.isfinite(), 0), share))

    def _carry_sum(self, other: Any, alpha: float, made: Made) -> LocalScores:
        mine, yours = (value.usable().delta.detach().abs() for value in (self, other))
        yours = yours * abs(alpha)
        both = mine + yours
        share = torch.where(both > 0, mine / both.clamp_min(torch.finfo(both.dtype).tiny), 0.5)
        return self._local(made, self.share * share + other.share * (1 - share))

    def _carry_function(self, phi: Function, keeps_zero: bool) -> LocalScores:
        value = self.usable().delta.detach()
        result, slope = phi(value), derivative(phi, value)
        if not _piecewise_linear(phi, value):
            last = self._local((None, result, self.rows), self.share)
            last.smooth = True
            return last
        delta = Multiplied.apply(result, self.delta, slope)
        self._site(delta, result - slope * value, self.share)
        return self._local((None, delta, self.rows), self.share)

    def _carry_mix(self, weights: Tensor, dims: tuple[int, ...], made: Made) -> LocalScores:
        return self._local(made, (self.usable().share * weights).sum(dims, keepdim=True))

    def product(self, other: Any, fn: Callable[[Tensor, Tensor], Tensor], routing: bool = False, aligned: bool = False) -> Any:
        raise UnsupportedOperation("a product of two values is not piecewise linear; bias_backpropagation needs that")


def _mean(add_up: Callable[[Tensor], Tensor], size: Tensor, share: Tensor) -> Tensor:
    whole = add_up(size)
    return add_up(size * share) / torch.where(whole == 0, torch.ones_like(whole), whole)


def _piecewise_linear(phi: Callable[[Tensor], Tensor], like: Tensor) -> bool:
    """On grids of 33 points, wide and narrow, few second differences of phi are not 0."""
    for width in (4.0, 0.4, 0.04):
        grid = torch.linspace(-width, width, 33, dtype=torch.float64).tolist()
        values = torch.stack([phi(torch.full_like(like, point)).double() for point in grid])
        rounding = 64 * torch.finfo(like.dtype).eps * values.abs().amax(0)
        bends = (values[2:] - 2 * values[1:-1] + values[:-2]).abs() > rounding + 1e-6 * width
        if bool((bends.sum(0) > 8).any()):
            return False
    return True


def _refuse_frozen(passed: Passed) -> None:
    """Routing inside the network makes it other than piecewise linear; one softmax, at its end, was left out."""
    kinds = ("routing", "softmax", "choice")
    counts: dict[str, int] = {}
    for key, number in passed.run.frozen.items():
        if key.kind in kinds:
            counts[key.operation] = counts.get(key.operation, 0) + number
    if passed.final == "softmax":
        last = next(key.operation for key in passed.run.frozen if key.kind == "softmax")
        counts[last] -= 1
    left = sorted(operation for operation, number in counts.items() if number)
    if left:
        raise UnsupportedOperation(
            f"bias_backpropagation(...): the model has {', '.join(left)}, which is not piecewise linear."
        )
