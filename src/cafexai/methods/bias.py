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

from ..batches import Task, carry_out
from ..explain import CAFE, with_gradients
from ..inputs import Inputs
from ..registry import UnsupportedOperation
from ..request import Passed, Request
from ..rows import Rows
from ..rules.constants import COMPARED
from ..scores import ONE_TO_ONE, Run
from .case import case
from .deeplift import derivative
from .signed import Multiplied, SignedScores

Site = tuple[Tensor, Tensor, Tensor]  # the value that a bias was added to, the bias, the shares of the value


@with_gradients
def bias_backpropagation(
    model: Any,
    x: Any,
    *,
    target: Any = None,
    baselines: Any = None,
    feature_mask: Any = None,
    bias_only: bool = False,
) -> Tensor:
    """Gradient times input plus the attributed biases, or those alone; for piecewise-linear networks, without baseline."""
    given = case("bias_backpropagation", model, x, None, feature_mask)
    explainer = CAFE(given.model)
    request = Request(target, carrier=LocalScores, total=len(given.x))
    task = Task(explainer.subject, Inputs((given.x,), False, None), [(None,)], (), request)
    return torch.cat([chunk[0][0] for chunk in carry_out(task, functools.partial(_handed_down, bias_only=bias_only))])


def _handed_down(passed: Passed, bias_only: bool) -> Tensor:
    """Gradient times input and the shares of the biases, for the rows of one pass."""
    passed.chosen.usable()
    _refuse_frozen(passed)
    leaf: LocalScores = passed.run.leaves[0].scores
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

    biases_in_reference = False

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

    def _local(self, delta: Tensor, rows: Rows, share: Tensor) -> LocalScores:
        return LocalScores(self.run, None, delta, rows, share, self.sites)

    def copy(self) -> LocalScores:
        copy = self._local(self.delta, self.rows, self.share)
        copy.logits = self.logits
        return copy

    @classmethod
    def join(cls, run: Run, fn: Callable[[Sequence[Tensor]], Any], parts: Sequence[Any], aligned: bool = False) -> Any:
        scored = [part.usable() for part in parts if isinstance(part, LocalScores)]
        if any(bool(part.any()) for part in parts if not isinstance(part, LocalScores)):
            raise UnsupportedOperation("constants are joined to a value: these biases stand at no unit that has inputs")
        deltas = fn([p.delta if isinstance(p, LocalScores) else p for p in parts])
        shares = fn([p.share if isinstance(p, LocalScores) else torch.zeros_like(p) for p in parts])
        single = isinstance(deltas, Tensor)
        many = [(deltas, shares)] if single else list(zip(deltas, shares, strict=True))
        rows = scored[0]._rows_moved(fn, parts, len(many), aligned)
        results = [scored[0]._local(delta, row, share) for (delta, share), row in zip(many, rows, strict=True)]
        return results[0] if single else tuple(results)

    def linear(
        self, fn: Callable[..., Tensor], *constants: Any, bias: Any = None, bias_dims: int = 0, aligned: bool = False
    ) -> LocalScores:
        self.usable()
        bias = bias() if callable(bias) else bias
        last, nothing = ((), ()) if bias is None else ((bias,), (None,))
        delta = fn(self.delta, *constants, *last)
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
        if bias is not None:
            self._site(delta, bias.to(delta.dtype).reshape((*bias.shape, *(1,) * bias_dims)), share)
        return self._local(delta, self._rows_linear(fn, constants, bias, aligned, delta), share)

    def _site(self, value: Tensor, bias: Tensor, share: Tensor) -> None:
        """Remember a bias; an infinite one, as in a mask, brings nothing to the output."""
        self.sites.append((value, bias.where(bias.isfinite(), 0), share))

    def add(self, other: Any, alpha: float = 1) -> LocalScores:
        mine, yours = (value.usable().delta.detach().abs() for value in (self, other))
        yours = yours * abs(alpha)
        both = mine + yours
        share = torch.where(both > 0, mine / both.clamp_min(torch.finfo(both.dtype).tiny), 0.5)
        delta = torch.add(self.delta, other.delta, alpha=alpha)
        return self._local(delta, self._rows_merged(other), self.share * share + other.share * (1 - share))

    def elementwise(self, phi: Callable[[Tensor], Tensor], keeps_zero: bool = False, routing: bool = False) -> LocalScores:
        value = self.usable().delta.detach()
        result, slope = phi(value), derivative(phi, value)
        if not _piecewise_linear(phi, value):
            last = self._local(result, self.rows, self.share)
            last.smooth = True
            return last
        delta = Multiplied.apply(result, self.delta, slope)
        self._site(delta, result - slope * value, self.share)
        return self._local(delta, self.rows, self.share)

    def mix(self, weights: Tensor, dims: tuple[int, ...], reference: Tensor | None) -> LocalScores:
        delta = (self.usable().delta * weights).sum(dims, keepdim=True)
        rows = self._rows_linear(lambda v: v.mean(dims, keepdim=True), (), None, 0 not in dims, delta)
        return self._local(delta, rows, (self.share * weights).sum(dims, keepdim=True))

    def product(self, other: Any, fn: Callable[[Tensor, Tensor], Tensor], routing: bool = False) -> Any:
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
    totals: dict[str, int] = {}
    for (operation, _), number in passed.run.frozen.items():
        if operation not in COMPARED and "index" not in operation:
            totals[operation] = totals.get(operation, 0) + number
    if any("final" in note for note in passed.notes):
        for operation in ("softmax", "log_softmax"):
            if operation in totals:
                totals[operation] -= 1
                break
    left = sorted(operation for operation, number in totals.items() if number)
    if left:
        raise UnsupportedOperation(
            f"bias_backpropagation(...): the model has {', '.join(left)}, which is not piecewise linear."
        )
