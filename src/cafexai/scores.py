"""The scored value: a value of the model that carries its own explanation, and the few things one can do with it.

Every value a of the explained forward pass is held against its reference r, the value of the bias-free model at the
reference input, with positive and negative influence such that, after every operation,

    a = r + positive - negative    and    positive, negative >= 0.

Rules state what an operation is, in the words of this module: a move of elements, a linear map, a constant added, a
sum, an elementwise function, a selection of the largest, a product, a frozen value. How influence is carried along is
the business of a carrier, a subclass of ``Scores``; no rule knows which one runs.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from .ledger import Ledger
from .rows import UNKNOWN, Rows, averaged, merged, moved
from .weighted import Deltas, Magnitudes

S = TypeVar("S", bound="Scores")


class Run:
    """What all scored values of one explained forward pass share."""

    def __init__(
        self,
        batch: int,
        sensitivity: Callable[[str], float],
        norm_mean: str = "bias",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.batch = batch
        self.sensitivity = sensitivity  # the conflict sensitivity constant c of a module, by its path
        self.norm_mean = norm_mean  # what the mean inside a normalisation is: "bias" (the paper) or "linear"
        self.dtype = dtype  # scores are carried in this at least
        self.coarsest = torch.float64  # the shortest floating point type that the model has computed in
        self.carrier: type[Scores]  # set by the pass
        self.biases_in_reference = False  # the reference is the model itself at the reference input, biases included
        self.features: Any = None  # for carriers that keep features apart: which elements belong together
        self.closed = False  # the explanation begins at a layer that was met: no further leaves
        self.units: list[Any] = []  # for carriers that look back: where contributions met
        self.leaves: list[Leaf] = []  # the explained inputs, in the order in which they were met
        self.back: Callable[..., Any] | None = None  # from the output to the leaves, where it is known without torch's graph
        self.path = ""  # the module that is running
        self.ledger = Ledger(batch)
        self.magnitudes = Magnitudes()
        self.deltas: Deltas | None = None  # what several passes over the same rows have in common
        self.operations: dict[str, int] = {}  # rule -> number of calls
        self.frozen: dict[tuple[str, str], int] = {}  # (operation, module path) -> number of calls

    def release(self) -> None:
        """Let go of what the way back needs: leaves know their run, so that it would wait for the garbage collector."""
        self.leaves.clear()
        self.back = None

    def wide(self, x: Tensor) -> Tensor:
        """An input in the precision that scores are carried in."""
        return x.to(torch.promote_types(x.dtype, self.dtype))

    @property
    def c(self) -> float:
        """The conflict sensitivity constant where the pass is now."""
        return self.sensitivity(self.path)

    def constants(self, given: Sequence[Any], nothing: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """What constants of the model add to the scores, and what they add to the reference."""
        return (nothing, given) if self.biases_in_reference else (given, nothing)

    def to_scores(self, constant: Tensor) -> Tensor:
        """What a constant that is joined to scored values brings to the scores."""
        return torch.zeros_like(constant) if self.biases_in_reference else constant

    def to_reference(self, constant: Tensor) -> Tensor:
        """What it brings to the reference."""
        return constant if self.biases_in_reference else torch.zeros_like(constant)

    def note_operation(self, name: str) -> None:
        """Count a call."""
        self.operations[name] = self.operations.get(name, 0) + 1

    def note_dtype(self, dtype: torch.dtype) -> None:
        """Remember how exactly the model itself computes."""
        if dtype is not self.coarsest and torch.finfo(dtype).eps > torch.finfo(self.coarsest).eps:
            self.coarsest = dtype

    def note_frozen(self, operation: str) -> None:
        """Remember that a value was taken as a constant here."""
        key = (operation, self.path)
        self.frozen[key] = self.frozen.get(key, 0) + 1


@dataclass(frozen=True)
class Leaf:
    """A scored value that stands for an input: the input itself, or the embedding of its codes."""

    scores: Any
    source: int  # which of the inputs
    places: Tensor | None = None  # for codes: the place in the input of each element (of the leading dimensions)


class Scores(abc.ABC):
    """A value with its explanation. ``reference`` is None while it is zero everywhere."""

    run: Run
    reference: Tensor | None
    delta: Tensor  # value - reference
    rows: Rows
    nominal: torch.dtype | None = None  # the dtype the model sees, where it differs from that of the arguments
    slack = 1.0  # how much more rounding than usual the sums of this carrier have
    logits: Scores | None = None  # the argument of a sigmoid or softmax that made this value

    # ---- what each carrier implements once -------------------------------------------------------------------------
    @classmethod
    @abc.abstractmethod
    def join(cls: type[S], run: Run, fn: Callable[[Sequence[Tensor]], Any], parts: Sequence[Any], aligned: bool = False) -> Any:
        """Move elements: ``fn`` takes the tensors of all parts. Plain tensors among the parts are biases.

        ``aligned`` says that dimension 0 of all parts stays dimension 0, row by row.
        """

    @abc.abstractmethod
    def linear(
        self: S, fn: Callable[..., Tensor], *constants: Any, bias: Any = None, bias_dims: int = 0, aligned: bool = False
    ) -> S:
        """A map linear in its first argument, ``fn(value, *constants)`` or ``fn(value, *constants, bias)``.

        It must be monotone in the value when all constants are non-negative. A bias is a tensor or,
        if it is as large as the value, a function that makes it. ``bias_dims`` dimensions of the result follow those of
        the bias. ``aligned`` says that dimension 0 of the value stays dimension 0, row by row.
        """

    @abc.abstractmethod
    def add(self: S, other: S, alpha: float = 1) -> S:
        """self + alpha * other."""

    @abc.abstractmethod
    def elementwise(self: S, phi: Callable[[Tensor], Tensor], keeps_zero: bool = False, routing: bool = False) -> S:
        """The activation rule of the paper (Definitions of peak and linear score flows and of score multipliers).

        ``routing`` as for products: the root of a variance often only divides.
        """

    @abc.abstractmethod
    def mix(self: S, weights: Tensor, dims: tuple[int, ...], reference: Tensor | None) -> S:
        """A weighted mean over dims with constant weights, the reference of the result being given."""

    @abc.abstractmethod
    def product(self: S, other: S, fn: Callable[[Tensor, Tensor], Tensor], routing: bool = False) -> S:
        """A bilinear map of two scored values, its change split exactly in halves.

        fn(a, b) - fn(r, s) = fn(a - r, (b + s) / 2) + fn((a + r) / 2, b - s), the brackets being frozen. ``routing``
        says that the result may only decide where others flow (a softmax follows), so that its scores can wait.
        """

    # ---- what follows from these -----------------------------------------------------------------------------------
    @property
    def value(self) -> Tensor:
        """The value itself, detached."""
        delta = self.delta.detach()
        return delta if self.reference is None else self.reference + delta

    @property
    def influence(self) -> Tensor | None:
        """The size of all positive and negative influence, where the carrier has it at hand."""
        return None

    @property
    def pending(self) -> bool:
        """The scores are not computed yet."""
        return False

    @property
    def template(self) -> Tensor:
        """A tensor with the shape, dtype and device of the scores."""
        return self.delta

    @property
    def shape(self) -> torch.Size:
        """The shape of the value."""
        return self.template.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions of the value."""
        return self.template.ndim

    def reshape(self, fn: Callable[[Tensor], Any], aligned: bool = False) -> Any:
        """Move elements of this value alone; a function with several results gives a tuple."""
        result = self.join(self.run, lambda parts: fn(parts[0]), [self], aligned)
        if self.logits is not None:
            remembered = self.logits.reshape(fn)
            pairs = [(result, remembered)] if isinstance(result, Scores) else zip(result, remembered, strict=True)
            for part, logits in pairs:
                part.logits = logits
        return result

    def add_constant(self: S, constant: Tensor, alpha: float = 1) -> S:
        """self + alpha * constant: the constant is a bias."""
        return self.linear(plus, bias=constant * alpha, aligned=constant.ndim <= self.ndim)

    def scale(self: S, factor: Any) -> S:
        """self * factor, a constant."""
        aligned = not isinstance(factor, Tensor) or factor.ndim <= self.ndim
        return self.linear(torch.mul, factor, aligned=aligned)

    def largest(self: S, dims: tuple[int, ...], keepdim: bool = False, valid: Tensor | None = None) -> S:
        """The maximum over dims: the paper's interpolation between the winners at the input and at the reference.

        With winner i at the input and j at the reference, tau = (r_j - r_i) / ((r_j - r_i) + (a_i - a_j)); the result
        takes tau of element j and 1 - tau of element i. Ties share equally; where ``valid`` is False nothing wins.
        """
        dims = tuple(sorted(dim % self.ndim for dim in dims))
        weights, top = _winners(self.value, dims, valid)
        reference = None
        if self.reference is not None:
            at_reference, reference = _winners(self.reference, dims, valid)
            won = _masked(self.reference, valid)
            reference_gap = reference - (weights * won).sum(dims, keepdim=True)
            value_gap = top - (at_reference * _masked(self.value, valid)).sum(dims, keepdim=True)
            gap = reference_gap + value_gap
            tau = torch.where(gap > 0, reference_gap / gap, torch.zeros_like(gap))
            weights = torch.lerp(weights, at_reference, tau)
        result = self.mix(weights, dims, reference)
        if keepdim:
            return result
        return result.reshape(lambda v: v.squeeze(dims))

    def freeze(self, operation: str, fn: Callable[[Tensor], Any]) -> Any:
        """A plain constant computed from the value; remembered in the list of what was frozen."""
        self.run.note_frozen(operation)
        return fn(self.value)

    @classmethod
    @abc.abstractmethod
    def of_input(cls: type[S], run: Run, x: Tensor, reference: Tensor | None) -> S:
        """The input layer rule: positive = max(x - r, 0), negative = max(r - x, 0)."""

    def belongs(self, source: int, places: Tensor) -> None:  # noqa: B027  (only some carriers ask)
        """Say which feature of which input each element is, by its place in a row."""

    @abc.abstractmethod
    def copy(self: S) -> S:
        """The same value as an object of its own."""

    @abc.abstractmethod
    def worst_sign(self) -> float:
        """The most negative score, relative to the largest: 0 if the law holds."""

    # ---- rows ------------------------------------------------------------------------------------------------------
    def _rows_moved(self, fn: Callable[..., Any], parts: Sequence[Any], count: int, aligned: bool) -> list[Rows]:
        scored = [p for p in parts if isinstance(p, Scores)]
        if self.run.batch == 1 or (aligned and all(p.rows is None for p in scored)):
            return [None] * count
        known = [(p.rows, p.delta) if isinstance(p, Scores) else (UNKNOWN, p) for p in parts]
        return moved(fn, known, self.run.batch)

    def _rows_linear(
        self, fn: Callable[..., Tensor], constants: tuple[Any, ...], bias: Any, aligned: bool, out: Tensor
    ) -> Rows:
        batch = self.run.batch
        if batch == 1:
            return None
        if aligned:
            if self.rows is None and out.ndim and out.shape[0] == batch:
                return None
            if isinstance(self.rows, Tensor) and self.rows.ndim == out.ndim and self.rows.shape[0] == out.shape[0]:
                if self.rows.shape[0] == self.rows.numel():
                    return self.rows
        ones = [_ones_like(c) for c in constants]
        if bias is None:
            return averaged(lambda v: fn(v, *ones), self.rows, self.delta, batch)
        nothing = torch.zeros_like(bias)
        return averaged(lambda v: fn(v, *ones, nothing), self.rows, self.delta, batch)

    def _rows_merged(self, other: Scores) -> Rows:
        if self.run.batch == 1:
            return None
        return merged((self.rows, self.delta), (other.rows, other.delta), self.run.batch)

    def _rows_product(self, other: Scores, fn: Callable[[Tensor, Tensor], Tensor], out: Tensor) -> Rows:
        batch = self.run.batch
        if batch == 1:
            return None
        one, two = (torch.ones_like(v.delta) for v in (self, other))
        mine = averaged(lambda v: fn(v, two), self.rows, self.delta, batch)
        yours = averaged(lambda v: fn(one, v), other.rows, other.delta, batch)
        return merged((mine, out), (yours, out), batch)


def plus(value: Tensor, bias: Tensor | None) -> Tensor:
    """A constant added."""
    return value if bias is None else value + bias


def affine(value: Tensor, *factors_and_bias: Any) -> Tensor:
    """Scaled by one or more factors, with a constant added."""
    *factors, bias = factors_and_bias
    for factor in factors[:-1]:
        value = value * factor
    return value * factors[-1] if bias is None else torch.addcmul(bias, value, factors[-1])


ONE_TO_ONE = (plus, affine, torch.mul, torch.div)  # linear maps that do not sum over elements


def _ones_like(constant: Any) -> Any:
    return torch.ones_like(constant) if isinstance(constant, Tensor) else 1


def _masked(value: Tensor, valid: Tensor | None) -> Tensor:
    return value if valid is None else torch.where(valid, value, torch.zeros_like(value))


def _winners(value: Tensor, dims: tuple[int, ...], valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """Equal weights on all elements that attain the maximum, and the maximum."""
    if valid is not None:
        value = value.masked_fill(~valid, -torch.inf)
    top = value.amax(dims, keepdim=True)
    wins = (value == top).to(value.dtype)
    return wins / wins.sum(dims, keepdim=True), top
