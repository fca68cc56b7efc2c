"""Calls on integer codes: what keeps them codes, what makes numbers of them, and what takes them as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._core.tensors import Coded
from .._core.value import Scores
from .._torch import tree_leaves, tree_map_only
from ..errors import UnsupportedOperation
from .registry import Rule


def makes_numbers(rule: Rule | None, args: Any, kwargs: Any) -> bool:
    """The call makes numbers out of codes."""
    if rule is None:
        return False
    if "lookup" in rule.kinds:
        return True
    if not isinstance(args[0], Coded):
        return False
    if "cast" in rule.kinds:
        for part in (*args[1:], *kwargs.values()):
            dtype = part if isinstance(part, torch.dtype) else part.dtype if isinstance(part, Tensor) else None
            if dtype is not None:
                return dtype.is_floating_point
    return "floating" in rule.kinds


def look_up(table: Tensor, index: Any) -> Scores | Tensor:
    """table[codes]: an embedding without its function; codes looked up in a table of integers are codes again."""
    if not isinstance(index, Coded):
        raise UnsupportedOperation("a table is indexed by codes together with other indices; use F.embedding")
    if table.is_floating_point():
        return index.leaf(lambda ids: table[ids])
    found = table[index.plain()]
    if not _integers(table):
        index.run.note_frozen("__getitem__ by codes", "choice")
        return found
    places = index.places.view(*index.shape, *(1,) * (table.ndim - 1))
    return index.with_codes(found, places, None if index.reference is None else table[index.reference])


def follow(function: Callable[..., Any], rule: Rule | None, args: Any, kwargs: Any) -> Any:
    """A call on codes alone: moves and offsets keep them codes, numbers made of them are scored, all else is frozen."""
    kinds = frozenset() if rule is None else rule.kinds
    if "index" in kinds and not isinstance(args[0], Coded):
        if "subscript" in kinds:
            return look_up(args[0].detach(), args[1])
        if "move" in kinds:
            raise UnsupportedOperation("codes choose among the slices of a table; look them up by table[codes] or F.embedding")
    args = _choosing(rule, args)
    leaves = tree_leaves((args, kwargs))
    parts = [part for part in leaves if isinstance(part, Coded)]
    if not parts:
        return function(*args, **kwargs)
    first, name = parts[0], rule.name if rule is not None else getattr(function, "__name__", str(function))
    if rule is None and name.endswith("_") and not name.endswith("__"):
        raise UnsupportedOperation("integer codes are changed in place in a way that is not followed; use torch.where")
    if "write" in kinds:
        return _put_codes(function, args, kwargs, parts)

    def call(pick: Callable[[Any], Any]) -> Any:
        chosen = [_map_codes(part, pick) for part in args]
        if rule is not None and rule.in_place:
            chosen[0] = chosen[0].clone()
        return function(*chosen, **{key: _map_codes(part, pick) for key, part in kwargs.items()})

    result = call(lambda part: part.plain() if isinstance(part, Coded) else part)
    moves = rule is not None and (rule.view or not kinds.isdisjoint(("move", "padding", "index")))
    if isinstance(result, Tensor) and result.is_floating_point() and result.shape == first.shape and not moves:
        _only_one(parts, name)
        return first.leaf(lambda ids: call(lambda part: ids if isinstance(part, Coded) else part))
    if not moves and "offset" not in kinds:
        if "shaped" not in kinds:
            first.run.note_frozen(f"{name} of codes", "choice")
        return result
    if not moves:
        _only_one(parts, name)
    _of_one_input(parts)
    reference = None
    if any(part.reference is not None for part in parts):
        reference = call(lambda part: part.reference if isinstance(part, Coded) else part)
    places: Any = call(_place) if moves else first.places
    if moves and ("padding" in kinds or any(isinstance(part, Tensor) and not isinstance(part, Coded) for part in leaves)):
        places = _without_constants(places, call(lambda part: part.places + 1 if isinstance(part, Coded) else _place(part)))
    if isinstance(result, Tensor):
        return _make_codes(first, result, places, reference, rule)
    many = zip(result, places, reference or [None] * len(result), strict=True)
    return type(result)(_make_codes(first, *parts, rule) for parts in many)


def _without_constants(places: Any, elsewhere: Any) -> Any:
    """What stays the same whatever the places of the codes are is no code."""
    if isinstance(places, Tensor):
        return torch.where(places == elsewhere, -1, places)
    return type(places)(_without_constants(*pair) for pair in zip(places, elsewhere, strict=True))


def _make_codes(like: Coded, result: Tensor, places: Tensor, reference: Tensor | None, rule: Rule | None) -> Tensor:
    """Codes that were moved; a constant that took its shape from codes, as positions do by ``expand_as``, is none."""
    shape_alone = rule is not None and rule.view and places.numel() > 0 and int(places.max()) < 0
    if not _integers(result) or (shape_alone and not bool((like.places < 0).any())):
        return result
    return like.with_codes(result, places, reference)


def _choosing(rule: Rule | None, args: Any) -> Any:
    """Codes that say which others are taken, or where something is put, are constants."""
    if rule is None or "index" not in rule.kinds or ("write" not in rule.kinds and not isinstance(args[0], Coded)):
        return args
    last = len(args) - 1 if "write" in rule.kinds else len(args)  # what is put is the last argument

    def plain(part: Coded) -> Tensor:
        part.run.note_frozen(f"{rule.name} by codes", "index")
        return part.plain()

    return tuple(tree_map_only(Coded, plain, part) if 0 < place < last else part for place, part in enumerate(args))


def _put_codes(function: Callable[..., Any], args: Any, kwargs: Any, parts: list[Coded]) -> Coded:
    """Codes, or constants among codes, put into places of the first argument: a new tensor in its stead."""
    if any(isinstance(part, Tensor) for part in kwargs.values()):
        raise UnsupportedOperation("codes are put into a tensor by arguments with names; give them in their order")
    target, *where, source = args
    if not _integers(target):
        raise UnsupportedOperation("codes are put into a tensor of other numbers; make numbers of them first: codes.float()")
    _of_one_input(parts)

    def call(into: Tensor, new: Any) -> Tensor:
        into = into.clone()
        result = function(into, *where, new, **kwargs)
        return into if result is None else result

    def at_baseline(part: Any) -> Any:
        return part if not isinstance(part, Coded) else part.plain() if part.reference is None else part.reference

    values = call(_values(target), _values(source))
    places = call(_place(target).long(), _place(source).long() if isinstance(source, Tensor) else -1)
    known = any(part.reference is not None for part in parts)
    return parts[0].with_codes(values, places, call(at_baseline(target), at_baseline(source)) if known else None)


def _values(part: Any) -> Any:
    return part.plain() if isinstance(part, Coded) else part


def _of_one_input(parts: list[Coded]) -> None:
    if len({part.source for part in parts}) > 1:
        raise UnsupportedOperation("codes of different inputs are joined; look them up one by one, or pass them as one input")


def _only_one(parts: list[Coded], name: str) -> None:
    if len(parts) > 1:
        raise UnsupportedOperation(f"{name} combines several codes into one, which then belongs to no single feature")


def _place(part: Any) -> Any:
    if isinstance(part, Coded):
        return part.places
    return torch.full_like(part, -1) if isinstance(part, Tensor) and _integers(part) else part


def _integers(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and tensor.dtype != torch.bool


def _map_codes(part: Any, pick: Callable[[Any], Any]) -> Any:
    if isinstance(part, (list, tuple)) and any(isinstance(item, Coded) for item in part):
        return type(part)(pick(item) for item in part)
    return pick(part) if isinstance(part, Coded) else part
