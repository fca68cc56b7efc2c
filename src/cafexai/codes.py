"""Category codes and token ids as features: they are explained at the embedding that looks them up.

A code has no size, so its score is what the change of its embedding does, against the embedding of a reference code, or
against zeros; the scores of all elements of the embedding are summed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .registry import Rule, UnsupportedOperation
from .rows import settle
from .scores import Leaf, Run, Scores

MOVES = set("clone contiguous cat concat concatenate stack hstack vstack flip roll repeat tile index_select".split())
ARITHMETIC = set(
    "add sub subtract rsub __rsub__ mul multiply clamp clip clamp_min clamp_max remainder floor_divide masked_fill where to "
    "torch.Tensor.long torch.Tensor.int".split()
)
INDEXING = set(
    "gather index_select take take_along_dim __getitem__ __setitem__ index_add index_copy index_fill scatter".split()
)


class Coded(Tensor):
    """Integer codes of the input; each knows its place there and its reference code, through moves and offsets."""

    run: Run
    source: int
    width: int  # features per row
    places: Tensor  # the flat place in the input, -1 for constants that were joined to it
    reference: Tensor | None
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def of_input(run: Run, codes: Tensor, reference: Tensor | None, source: int) -> Coded:
        """The codes as the model gets them."""
        places = torch.arange(codes.numel(), device=codes.device).view(codes.shape)
        like = Coded.__new__(Coded)
        like.run, like.source, like.width = run, source, codes[0].numel()
        return like.changed(codes, places, reference)

    def changed(self, codes: Tensor, places: Tensor, reference: Tensor | None) -> Coded:
        """Other codes of the same input."""
        new = codes.detach().as_subclass(Coded)
        new.run, new.source, new.width = self.run, self.source, self.width
        new.places, new.reference = places.expand(codes.shape), reference
        return new

    def plain(self) -> Tensor:
        """The codes as a plain tensor."""
        return self.as_subclass(Tensor)

    def leaf(self, embed: Callable[[Tensor], Tensor]) -> Scores:
        """The embedded codes as a scored value in which explanations end."""
        value = self.run.wide(embed(self.plain()))
        reference = None if self.reference is None else self.run.wide(embed(self.reference))
        beyond = (1,) * (value.ndim - self.places.ndim)
        own = (self.places >= 0).view(*self.places.shape, *beyond)
        constant = None
        if not bool(own.all()):
            constant = value.masked_fill(own, 0)
            value, reference = value * own, None if reference is None else reference * own
        scores = self.run.carrier.of_input(self.run, value, reference)
        if self.run.features is not None:
            scores.belongs(self.source, (self.places.clamp_min(0) % self.width).view(*self.places.shape, *beyond))
        if self.run.batch > 1:
            index = torch.where(self.places >= 0, self.places // self.width + 1, 0)
            scores.rows = settle(index.view(*index.shape, *beyond).expand(value.shape), self.run.batch)
        if not self.run.closed:
            self.run.leaves.append(Leaf(scores, self.source, self.places))
        return scores if constant is None else scores.add_constant(constant)


def looked_up(table: Tensor, index: Any) -> Scores:
    """table[codes]: an embedding without its function."""
    if not isinstance(index, Coded):
        raise UnsupportedOperation("a table is indexed by codes together with other indices; use F.embedding")
    return index.leaf(lambda ids: table[ids])


def follow(function: Callable[..., Any], rule: Rule | None, args: Any, kwargs: Any) -> Any:
    """A call on codes alone: moves and offsets keep them codes, numbers made of them are scored, all else is frozen."""
    parts = [part for part in _flat((args, kwargs)) if isinstance(part, Coded)]
    first, name = parts[0], rule.name if rule is not None else getattr(function, "__name__", str(function))
    if (rule is not None and rule.in_place) or (name.endswith("_") and not name.endswith("__")):
        raise UnsupportedOperation("integer codes are changed in place, or written into another tensor; use torch.where")

    def call(pick: Callable[[Any], Any]) -> Any:
        return function(*(_mapped(part, pick) for part in args), **{key: _mapped(part, pick) for key, part in kwargs.items()})

    result = call(lambda part: part.plain() if isinstance(part, Coded) else part)
    moves = rule is not None and (rule.view or name in MOVES)
    if isinstance(result, Tensor) and result.is_floating_point() and result.shape == first.shape and not moves:
        _only_one(parts, name)
        return first.leaf(lambda ids: call(lambda part: ids if isinstance(part, Coded) else part))
    if not moves and name not in ARITHMETIC:
        if not (rule is not None and rule.name == "metadata"):
            first.run.note_frozen(f"{name} of codes")
        return result
    if not moves:
        _only_one(parts, name)
    if len({part.source for part in parts}) > 1:
        raise UnsupportedOperation("codes of different inputs are joined; look them up one by one, or pass them as one input")
    reference = None
    if any(part.reference is not None for part in parts):
        reference = call(lambda part: part.reference if isinstance(part, Coded) else part)
    places: Any = call(_place) if moves else first.places
    if isinstance(result, Tensor):
        return first.changed(result, places, reference) if _integers(result) else result
    many = zip(result, places, reference or [None] * len(result), strict=True)
    return type(result)(first.changed(*parts) for parts in many)


def _only_one(parts: list[Coded], name: str) -> None:
    if len(parts) > 1:
        raise UnsupportedOperation(f"{name} combines several codes into one, which then belongs to no single feature")


def _place(part: Any) -> Any:
    if isinstance(part, Coded):
        return part.places
    return torch.full_like(part, -1) if isinstance(part, Tensor) and _integers(part) else part


def _integers(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and tensor.dtype != torch.bool


def _mapped(part: Any, pick: Callable[[Any], Any]) -> Any:
    if isinstance(part, (list, tuple)) and any(isinstance(item, Coded) for item in part):
        return type(part)(pick(item) for item in part)
    return pick(part) if isinstance(part, Coded) else part


def _flat(parts: Any) -> Any:
    if isinstance(parts, dict):
        parts = tuple(parts.values())
    if isinstance(parts, (list, tuple)):
        for part in parts:
            yield from _flat(part)
    else:
        yield parts
