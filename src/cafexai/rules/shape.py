"""Operations that only move elements: the same call on every part of the scored value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._core.tensors import elements_at
from .._core.value import Scores
from ..errors import UnsupportedOperation
from .registry import Rule, add, functions_named, rule

_VIEWS = """
    view reshape flatten ravel transpose t permute movedim moveaxis swapaxes swapdims squeeze unsqueeze expand expand_as
    view_as reshape_as select narrow diagonal unflatten T mT H mH adjoint chunk split tensor_split hsplit vsplit dsplit
    unbind unsafe_chunk unsafe_split split_with_sizes unsafe_split_with_sizes broadcast_to atleast_1d atleast_2d
    atleast_3d unfold __getitem__ real conj resolve_conj resolve_neg
""".split()
_COPIES = """
    flip fliplr flipud roll rot90 repeat tile repeat_interleave gather index_select masked_select take take_along_dim
    tril triu diag diag_embed diagflat pixel_shuffle pixel_unshuffle channel_shuffle narrow_copy
""".split()


def _plain(part: Any) -> Any:
    """A scored value that serves as a pattern of shape, or a frozen index."""
    if isinstance(part, Scores):
        return part.value
    return tuple(_plain(item) for item in part) if isinstance(part, tuple) else part


def move(part: Any, fn: Callable[[Tensor], Any]) -> Any:
    """Elements of a scored or plain value in other places."""
    return part.reshape(fn) if isinstance(part, Scores) else fn(part)


def moving(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(x: Any, *args: Any, **options: Any) -> Any:
        args = tuple(_plain(part) for part in args)
        if not isinstance(x, Scores):
            return function(x, *args, **options)

        def move(v: Tensor) -> Any:
            try:
                return function(v, *args, **options)
            except RuntimeError:  # a view of what lies otherwise in memory than the value of the model
                return function(v.contiguous(), *args, **options)

        return x.reshape(move, _stays(function, args, options, x))

    return apply


_known: dict[Any, bool] = {}  # a move, and the shape and layout of what was moved -> whether dimension 0 stayed the rows
MANY = 4096


def _stays(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], x: Scores) -> bool:
    """Whether each row stays in its place in dimension 0, which for plain arguments depends on nothing but the shape."""
    batch, shape = x.run.batch, x.shape
    if batch == 1 or not shape or shape[0] != batch:
        return False
    words = _words((*args, *options.items()))
    if words is None:
        return False
    key = (function, words, shape)
    if key not in _known:
        if len(_known) >= MANY:
            _known.clear()
        _known[key] = _all_stay(lambda v: function(v, *args, **options), shape)
    return _known[key]


def _words(value: Any) -> Any:
    """Arguments as a key; None if there is more to them than numbers, words and slices."""
    if type(value) in (int, str, bool, type(None), type(Ellipsis), torch.dtype):
        return type(value), value
    if type(value) is slice:
        value = (slice, value.start, value.stop, value.step)
    if value is slice:
        return "slice"
    if isinstance(value, (tuple, list)):  # also torch.Size
        parts = tuple(_words(part) for part in value)
        return None if None in parts else parts
    return None


def _all_stay(move: Callable[[Tensor], Any], shape: torch.Size) -> bool:
    """Move the numbers of the rows."""
    index = torch.arange(shape[0], dtype=torch.int32).view(-1, *(1,) * (len(shape) - 1))
    try:
        moved = move(index.expand(shape))
    except (RuntimeError, NotImplementedError):  # not without memory of its own, or not for integers: asked element by element
        return False
    return all(
        part.ndim > 0
        and part.shape[0] == shape[0]
        and part.numel() > 0
        and bool((part == index.view(-1, *(1,) * (part.ndim - 1))).all())
        for part in ([moved] if isinstance(moved, Tensor) else moved)
    )


_KINDS = {
    "__getitem__": ("index", "subscript"),
    "index_select": ("move", "index"),
    **dict.fromkeys(("flip", "roll", "repeat", "tile"), ("move",)),
    **dict.fromkeys(("gather", "take", "take_along_dim"), ("index",)),
}
for _name in _VIEWS + _COPIES:
    for _function in functions_named(_name):
        _moving = moving(torch.narrow if _name == "narrow_copy" else _function)  # older torch has no derivative of the copy
        add(_function, Rule(_name, _moving, view=_name in _VIEWS, kinds=frozenset(_KINDS.get(_name, ()))))


def _together(function: Callable[..., Tensor]) -> Callable[..., Any]:
    def apply(parts: Any, *args: Any, **options: Any) -> Any:
        first = next(part for part in parts if isinstance(part, Scores))
        constants = [part if isinstance(part, Scores) else part.to(first.template) for part in parts]
        dim = args[0] if args else options.get("dim", options.get("axis", 0))
        aligned = function is torch.cat and dim % max(first.ndim, 1) != 0
        return first.join(first.run, lambda *tensors: function(tensors, *args, **options), constants, aligned)

    return apply


for _name in "cat concat concatenate stack hstack vstack row_stack dstack column_stack".split():
    for _function in functions_named(_name):
        _apply_to_all = _together(torch.cat if _name in ("concat", "concatenate") else _function)
        _kinds = frozenset(() if _name in ("row_stack", "dstack", "column_stack") else ("move",))
        add(_function, Rule(_name, _apply_to_all, kinds=_kinds))


@rule("broadcast_tensors")
def broadcast_tensors(*parts: Any) -> Any:
    shape = torch.broadcast_shapes(*(part.shape for part in parts))
    return tuple(p.reshape(lambda v: v.expand(shape)) if isinstance(p, Scores) else p.expand(shape) for p in parts)


@rule("__reversed__")
def backwards(x: Scores) -> Any:
    return x.reshape(lambda v: v.flip(0))


@rule("as_strided", in_place=False)
def as_strided(x: Scores, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
    """Elements by their places in memory, as the model sees it."""
    index = elements_at(x.template, size, stride, int(x.template.storage_offset()) + (storage_offset or 0))
    if index is None:
        raise UnsupportedOperation("it reaches beyond the memory of the value; take it of the whole value, or use unfold")
    return x.reshape(lambda v: v.flatten()[index])


@rule("block_diag")
def block_diag(*parts: Any) -> Any:
    return _together(lambda tensors: torch.block_diag(*tensors))(parts)


@rule("pad", kinds=["padding"])
def pad(x: Scores, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    aligned = len(pad) // 2 < x.ndim
    result = x.reshape(lambda v: F.pad(v, pad, mode), aligned)
    if mode != "constant" or not value:
        return result
    return result.add_constant(F.pad(torch.zeros_like(x.template), pad, mode, value))


for _n in (1, 2, 3):
    _unpool = getattr(F, f"max_unpool{_n}d")

    def _apply(x: Scores, indices: Tensor, *args: Any, function: Callable[..., Tensor] = _unpool, **options: Any) -> Any:
        return x.reshape(lambda v: function(v, indices, *args, **options), aligned=True)

    add(_unpool, Rule(f"max_unpool{_n}d", _apply))
