"""The scored value: a value of the model that carries its own explanation, and the few things one can do with it.

Every value a of the explained forward pass is held against its reference r, the value of the bias-free model at the
reference input, with positive and negative influence such that, after every operation,

    a = r + positive - negative    and    positive, negative >= 0.

Rules state what an operation is, in the words of this module: a move of elements, a linear map, a constant added, a
sum, an elementwise function, a selection of the largest, a product, a frozen value. ``Scores`` does what is the same for all
ways to carry influence (value, reference, rows, constants, laziness); a carrier, a subclass, adds what is its own
(``contract.py``): how influence goes through each of these, and what the scores are in the end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from .contract import Carrier, Move
from .input_origin import Origin
from .joins import at_start, join_constants, join_lazily
from .math_functions import (
    ONE_TO_ONE,
    Function,
    add_references,
    find_masked_out,
    over_rows,
    plus,
    soft_winners,
    winners,
    without_residue,
)
from .provenance import of_input, origin_of, with_origin
from .row_index import MIXED, UNKNOWN, Rows, average_rows, behind_map, behind_product, common_rows, merge_rows, move_rows
from .run import Run
from .steps import JointStep, apply_linear

S = TypeVar("S", bound="Scores")


class Scores(Carrier):
    """What rules say of a value, and what of it is the same for all carriers."""

    @property
    def value(self) -> Tensor:
        """The value itself, detached."""
        delta = self.delta.detach()
        return delta if self.reference is None else self.reference + delta

    @property
    def start(self) -> Tensor:
        """The reference, zeros included."""
        return torch.zeros_like(self.delta) if self.reference is None else self.reference

    @property
    def shape(self) -> torch.Size:
        """The shape of the value."""
        return self.template.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions of the value."""
        return self.template.ndim

    def watch(self, constant: Any, rows: Rows, path: str) -> None:
        """Enter a constant that was added to this new value in the bias ledger, by a gradient hook."""
        self.run.biases.watch(self.parts, constant, rows, path)

    def begin(self: S) -> S:
        """This value as what scores are about, in place of the inputs."""
        return self

    def _later(self: S, value: Tensor, compute: Callable[[], S]) -> S:
        """A value that is known now, with scores that are computed on first use."""
        from .pending import Pending  # each of the two creates the other

        return Pending(self.run, value, compute)  # type: ignore[return-value]

    # ---- what rules say --------------------------------------------------------------------------------------------
    @classmethod
    def join(cls, run: Run, fn: Move, parts: Sequence[Any], aligned: bool = False) -> Any:
        """Move elements: ``fn`` takes one tensor of each part. Plain tensors among the parts are biases.

        ``aligned`` says that dimension 0 of all parts stays dimension 0, row by row.
        """
        scored = [part for part in parts if isinstance(part, Scores)]
        if any(part.pending for part in scored):
            waiting = join_lazily(Scores.join.__func__, run, fn, parts, aligned)  # type: ignore[attr-defined]
            if waiting is not None:
                return waiting
        settings, of_scores = run.settings, parts
        constants = len(scored) < len(parts)
        in_reference = constants and settings.biases_in_reference
        if in_reference:
            of_scores = [part if isinstance(part, Scores) else torch.zeros_like(part) for part in parts]
        moved_deltas = fn(*[part.delta if isinstance(part, Scores) else part for part in of_scores])
        single = isinstance(moved_deltas, Tensor)
        deltas = [moved_deltas] if single else list(moved_deltas)
        references: list[Any] = [None] * len(deltas)
        if in_reference or any(part.reference is not None for part in scored):
            starts = [at_start(part, settings.biases_in_reference) for part in parts]
            try:
                moved_starts = fn(*starts)
            except RuntimeError:  # a view of a reference that is one row for all, and has no memory for each
                moved_starts = fn(*[start.contiguous() for start in starts])
            references = [moved_starts] if single else list(moved_starts)
        rows: list[Any] = [None] * len(deltas)
        if run.batch > 1 and not (aligned and all(part.rows is None for part in scored)):
            rows = move_rows(fn, [(p.rows, p.delta) if isinstance(p, Scores) else (UNKNOWN, p) for p in parts], run.batch)
        results = settings.carrier._carry_join(run, fn, of_scores, deltas, references, rows)
        if constants and not in_reference and settings.carrier.has_ledger:
            amounts = join_constants(fn, parts, deltas[0].detach(), single)
            for place, result in enumerate(results):
                result.watch(functools.partial(amounts, place), result.rows, run.path)
        made_by = scored[0].made_by
        if made_by is not None and made_by.origin is not None:
            origins = [part if isinstance(part, Tensor) else origin_of(part) for part in parts]
            for place, result in enumerate(results):
                result.made_by = of_input(Origin.join(fn, origins, None if single else place))
        return results[0] if single else tuple(results)

    def linear(
        self: S, fn: Callable[..., Tensor], *constants: Any, bias: Any = None, bias_dims: int = 0, aligned: bool = False
    ) -> S:
        """A map linear in its first argument, ``fn(value, *constants)`` or ``fn(value, *constants, bias)``.

        It must be monotone in the value when all constants are non-negative. A bias is a tensor or,
        if it is as large as the value, a function that makes it. ``bias_dims`` dimensions of the result follow those of
        the bias. ``aligned`` says that dimension 0 of the value stays dimension 0, row by row.
        """
        run = self.run
        in_reference = run.settings.biases_in_reference
        making, bias = bias, bias() if callable(bias) else bias
        nothing = () if bias is None else (None,)
        given = () if bias is None else (bias,)
        delta = fn(self.delta, *constants, *(nothing if in_reference else given))
        reference = None
        if self.reference is not None or (in_reference and bias is not None):
            own = (*constants, *(given if in_reference else nothing))
            reference = self._layer_at_start(fn, own, delta)
            if reference is None:
                reference = self._start_mapped(functools.partial(_give, run, fn, own), aligned)
            if reference.shape != delta.shape:
                shape = torch.broadcast_shapes(reference.shape, delta.shape)
                reference, delta = reference.expand(shape), delta.expand(shape)
        rows = None
        if not (run.batch == 1 or (aligned and self.rows is None and delta.ndim and delta.shape[0] == run.batch)):
            rows = behind_map(self, fn, constants, bias, aligned, delta)
        amount = None
        if bias is not None and not in_reference:
            amount = bias.to(delta.dtype).reshape((*bias.shape, *(1,) * bias_dims))
        last = nothing if in_reference else given
        result = self._carry_map(fn, constants, last, (reference, delta, rows), amount)
        origin = None if self.made_by is None else self.made_by.origin
        if origin is not None and fn in ONE_TO_ONE and delta.shape == self.delta.shape:
            result.made_by = of_input(origin.apply(lambda v: fn(v, *constants, *given)))
        if amount is not None and self.has_ledger:
            result.watch(making if callable(making) else amount, rows, run.path)
        return result

    def linear_layer(self: S, weight: Tensor, bias: Tensor | None, aligned: bool) -> S:
        """A linear layer; by far the most frequent linear map, so that carriers may have a form of their own."""
        return self.linear(apply_linear, weight, bias=bias, aligned=aligned)

    def _start_mapped(self, fn: Function, aligned: bool) -> Tensor:
        """The reference behind a linear map; computed once if it is one row for all."""
        if not aligned:
            return fn(self.start)
        return over_rows(fn, self.delta.new_zeros(()).expand(self.delta.shape) if self.reference is None else self.reference)

    def _layer_at_start(self, fn: Callable[..., Tensor], constants: tuple[Any, ...], delta: Tensor) -> Tensor | None:
        """The reference behind a convolution, where a plain run has what it is found from."""
        layers, start = self.run.layers, self.reference
        if layers is None or start is None or not isinstance(fn, tuple):
            return None
        weight, *bias = constants
        return layers.at_reference(fn, fn.units, start, delta, weight, *(bias or [None]))

    def reshape(self, fn: Callable[[Tensor], Any], aligned: bool = False) -> Any:
        """Move elements of this value alone; a function with several results gives a tuple."""
        result = self.join(self.run, fn, [self], aligned)
        if self.made_by is not None:
            parts = (result,) if isinstance(result, Scores) else result
            for part, made_by in zip(parts, self.made_by.move(fn, len(parts)) or (), strict=False):
                part.made_by = with_origin(made_by, origin_of(part))
        return result

    def copy(self: S) -> S:
        """This value as an object of its own."""
        copy = self._make_copy()
        copy.made_by = None if self.made_by is None else self.made_by.copy()
        return copy

    def add(self: S, other: S, alpha: float = 1) -> S:
        """self + alpha * other."""
        delta = torch.add(self.delta, other.delta, alpha=alpha)
        reference = None
        if self.reference is not None or other.reference is not None:
            reference = add_references(self.start, other.start, alpha)
        rows = None if self.run.batch == 1 else merge_rows((self.rows, self.delta), (other.rows, other.delta), self.run.batch)
        return self._carry_sum(other, alpha, (reference, delta, rows))

    def add_constant(self: S, constant: Tensor, alpha: float = 1) -> S:
        """self + alpha * constant: the constant is a bias."""
        return self.linear(plus, bias=constant * alpha, aligned=constant.ndim <= self.ndim)

    def scale(self: S, factor: Any) -> S:
        """self * factor, a constant."""
        aligned = not isinstance(factor, Tensor) or factor.ndim <= self.ndim
        return self.linear(torch.mul, factor, aligned=aligned)

    def elementwise(self: S, phi: Function, keeps_zero: bool = False, routing: bool = False) -> S:
        """The activation rule of the paper (Definitions of peak and linear score flows and of score multipliers).

        ``routing`` as for products: the root of a variance often only divides.
        """
        result: S
        if routing:
            result = self._later(phi(self.value), lambda: self._carry_function(phi, keeps_zero))
        else:
            result = self._carry_function(phi, keeps_zero)
        if self.made_by is not None and self.made_by.origin is not None:
            result.made_by = of_input(self.made_by.origin.apply(phi))
        return result

    def product(self: S, other: S, fn: Callable[[Tensor, Tensor], Tensor], routing: bool = False, aligned: bool = False) -> S:
        """A bilinear map of two scored values, its change split exactly in halves.

        fn(a, b) - fn(r, s) = fn(a - r, (b + s) / 2) + fn((a + r) / 2, b - s), the brackets being frozen. ``routing``
        says that the result may only decide where others flow (a softmax follows), so that its scores can wait. ``aligned``
        says that dimension 0 of both values stays dimension 0, row by row.
        """
        if routing:
            return self._later(fn(self.value, other.value), lambda: self.product(other, fn, aligned=aligned))
        mine, yours = self._halfway(), other._halfway()
        delta = fn(self.delta, yours) + fn(mine, other.delta)
        reference = None
        if self.reference is not None and other.reference is not None:
            reference = fn(self.reference, other.reference)
        rows = behind_product(self, other, fn, delta, aligned)
        return self._carry_product(other, fn, (mine, yours), (reference, delta, rows))

    def quotient(self: S, other: S, value: Tensor) -> S:
        """self / other, its change split exactly in halves; ``value`` is that of other with all its digits.

        With n = a / b and m = r / s, a - r = (n - m) (b + s) / 2 + (n + m) / 2 (b - s), solved for n - m. 0 / 0 at the
        reference is 0; where only s is 0, the model has no value at the reference, and other is frozen.
        """
        nowhere = (other.start == 0) & (self.start != 0)
        middle = torch.where(nowhere, value, (value + other.start) / 2)
        start = torch.where(self.start == 0, 0, self.start / torch.where(nowhere, value, other.start))
        against = torch.where(nowhere, 0, (self.value / value + start) / (-2 * middle))
        delta = self.delta / middle + against * other.delta
        rows = behind_product(self, other, torch.mul, delta)
        return self._carry_product(other, torch.mul, (against, 1 / middle), (start, delta, rows))

    def _halfway(self) -> Tensor:
        """Between reference and value."""
        return (self.start + self.value) / 2

    def mix(self: S, weights: Tensor, dims: tuple[int, ...], reference: Tensor | None) -> S:
        """A weighted mean over dims with constant weights, the reference of the result being given."""
        parts = self.delta * weights
        delta = parts.sum(dims, keepdim=True)
        if reference is not None:
            delta = without_residue(delta, parts.detach().abs().sum(dims, keepdim=True), reference)
        rows = behind_map(self, lambda v: v.mean(dims, keepdim=True), (), None, 0 not in dims, delta)
        return self._carry_mix(weights, dims, (reference, delta, rows))

    def largest(self: S, dims: tuple[int, ...], keepdim: bool = False, valid: Tensor | None = None) -> S:
        """The maximum over dims (``selection.py``); where ``valid`` is False nothing wins, nor does what a mask has put out."""
        dims = tuple(sorted(dim % self.ndim for dim in dims))
        there: S = self
        value = self.value
        out = find_masked_out(value, dims)
        if out is not None:
            there = self.join(self.run, lambda v: torch.where(out, 0, v), [self])
            value, valid = there.value, ~out if valid is None else valid & ~out
        weights, reference = winners(value, there.reference, dims, valid)
        result = there.mix(weights, dims, reference)
        if keepdim:
            return result
        return result.reshape(lambda v: v.squeeze(dims))

    def soft_largest(self: S, dims: tuple[int, ...], keepdim: bool = False) -> S:
        """The logarithm of the sum of exponentials over dims, a selection with soft weights; computed on first use."""
        dims = tuple(sorted(dim % self.ndim for dim in dims))

        def compute() -> S:
            weights, reference = soft_winners(self.value, self.reference, dims)
            there: S = self
            if not bool((weights > 0).all()):  # a weight of 0 would not silence what is infinite
                there = self.join(self.run, lambda v: torch.where(weights > 0, v, 0), [self])
            result = there.mix(weights, dims, reference)
            return result if keepdim else result.reshape(lambda v: v.squeeze(dims))

        return self._later(self.value.logsumexp(dims, keepdim=keepdim), compute)

    def secant(
        self: S,
        fn: Callable[..., Tensor],
        constants: tuple[Any, ...],
        reference: Tensor | None,
        change: Tensor,
        aligned: bool = False,
    ) -> S:
        """A function whose change from ``reference`` is ``change`` = fn(delta, *constants), a linear map between both ends.

        The change is given, so that it loses no digits; the map only distributes it.
        """
        delta = fn(self.delta, *constants)
        delta = delta + (change - delta).detach()
        rows = behind_map(self, fn, constants, None, aligned, delta)
        return self._carry_map(fn, constants, (), (reference, delta, rows), None)

    def take_step(self: S, parts: Sequence[Any], step: JointStep, composed: Callable[[], Any]) -> Any:
        """This and other parts through one step that keeps few constants; ``composed`` does the same by other operations.

        Plain tensors among the parts are constants. Dimension 0 of all parts, row by row, stays that of the result.
        """
        rows = common_rows([part.rows for part in parts if isinstance(part, Scores)], self.run.batch)
        return composed() if rows is MIXED else self._carry_step(parts, step, composed, rows)

    def rebase(self: S, reference: Tensor) -> S:
        """The same change from another reference: that of a function of which only the change is a linear map."""
        result = self.copy()
        result.reference = reference
        return result

    def freeze(self, operation: str, fn: Callable[[Tensor], Any], kind: str = "choice", over: int | None = None) -> Any:
        """A plain constant computed from the value; remembered in the list of what was frozen, with its kind.

        ``over`` is the dimension along which the constant depends on all elements: perhaps that of the rows.
        """
        self.run.note_frozen(operation, kind)
        if over is not None and self.run.batch > 1 and self.joins_rows(over % max(self.ndim, 1)):
            self.run.note_mixed_rows(operation)
        return fn(self.value)

    def joins_rows(self, dim: int) -> bool:
        """Whether several rows lie along a dimension; what is not computed yet has its rows in front."""
        if self.pending or self.rows is None:
            return dim == 0 and self.ndim > 0 and self.shape[0] == self.run.batch
        return average_rows(lambda v: v.sum(dim, keepdim=True), self.rows, self.delta, self.run.batch) is MIXED


def _give(run: Run, fn: Callable[..., Tensor], constants: tuple[Any, ...], reference: Tensor) -> Tensor:
    """What a linear map gives at a reference; in a session, convolutions, which have a form that can be compared, once."""
    if run.cache is None or not isinstance(fn, tuple):
        return fn(reference, *constants)
    return run.at_reference(repr(fn), lambda r: fn(r, *constants), reference, *constants)
