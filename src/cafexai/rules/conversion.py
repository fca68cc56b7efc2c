"""Changes of dtype, device and memory layout: no score changes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._core.provenance import origin_of
from .._core.tensors import Coded
from .._core.value import Scores
from ..errors import UnsupportedOperation
from .registry import functions_named, rule


def as_dtype(x: Any, dtype: torch.dtype) -> Any:
    """The value in another dtype; scores are carried in float32 at least."""
    if isinstance(x, Coded):
        return x.leaf(lambda ids: ids.to(torch.promote_types(dtype, torch.float32)))
    if not dtype.is_floating_point:
        if origin_of(x) is not None and dtype is not torch.bool:
            return Coded.of_value(x, dtype)
        x.run.cuts.append(x)
        return x.freeze(f"to({dtype})", lambda value: value.to(dtype))
    x.run.note_dtype(dtype)
    working = torch.promote_types(dtype, x.template.dtype)  # the engine does not lose digits where the model does
    result = (
        x.copy() if x.template.dtype == working else x.reshape(lambda v: v.to(working) if v.is_floating_point() else v, True)
    )
    result.nominal = dtype
    return result


def _as_device(x: Any, device: Any) -> Any:
    if isinstance(x, Coded):
        return x
    if torch.device(device) == x.template.device:
        return x
    return x.reshape(lambda v: v.to(device), True)


@rule("to", in_place=False, kinds=["identity", "cast", "offset"])
def to(x: Any, *args: Any, **options: Any) -> Any:
    if not isinstance(x, (Scores, Coded)):
        other = args[0]
        return x.to(other.template) if isinstance(other, Scores) else x.to(*args, **options)
    for part in (*args, options.get("dtype"), options.get("device"), options.get("other")):
        if isinstance(part, (Tensor, Scores)):
            source = part.template if isinstance(part, Scores) else part
            x = _as_device(
                as_dtype(x, part.nominal or source.dtype if isinstance(part, Scores) else source.dtype), source.device
            )
        elif isinstance(part, torch.dtype):
            x = as_dtype(x, part)
        elif isinstance(part, (str, torch.device)):
            x = _as_device(x, part)
    return x


for _name, _dtype in (
    ("float", torch.float32),
    ("double", torch.float64),
    ("half", torch.float16),
    ("bfloat16", torch.bfloat16),
    ("long", torch.int64),
    ("int", torch.int32),
    ("short", torch.int16),
    ("char", torch.int8),
    ("byte", torch.uint8),
    ("bool", torch.bool),
):
    for _function in functions_named(_name):
        if getattr(_function, "__objclass__", None) is not None:  # the methods, not the dtypes of the same name
            _kinds = ["identity", "floating"] if _dtype.is_floating_point else ["offset"] * (_name in ("long", "int"))
            rule(_function, kinds=_kinds)(lambda x, *args, dtype=_dtype, **options: as_dtype(x, dtype))


rule("type_as", in_place=False, kinds=["identity", "cast"])(to)


@rule("type", in_place=False, kinds=["identity", "cast"])
def type_(x: Scores, dtype: Any = None, **options: Any) -> Any:
    if not isinstance(dtype, torch.dtype):
        raise UnsupportedOperation("only type(dtype) is followed; use .to(dtype)")
    return as_dtype(x, dtype)


@rule("cpu", in_place=False, kinds=["identity"])
def cpu(x: Scores, **options: Any) -> Any:
    return _as_device(x, "cpu")


@rule("cuda", in_place=False, kinds=["identity"])
def cuda(x: Scores, device: Any = None, **options: Any) -> Any:
    return _as_device(x, "cuda" if device is None else device)


@rule("contiguous", in_place=False, kinds=["identity", "move"])
def contiguous(x: Scores, **options: Any) -> Any:
    return x if x.template.is_contiguous(**options) else x.reshape(lambda v: v.contiguous(**options), True)


@rule("clone", in_place=False, kinds=["move"])
def clone(x: Scores, **options: Any) -> Any:
    return x.reshape(lambda v: v.clone(**options), True)


@rule("requires_grad_", "retain_grad", in_place=False, kinds=["identity"])
def unchanged(x: Scores, *args: Any, **options: Any) -> Any:
    return x


def _dropout(x: Scores, p: float = 0.5, training: bool = True) -> Any:
    if training and p > 0:
        raise ValueError("explain(...): dropout is active, so every pass would give another output. Call model.eval() first.")
    return x


rule(*"dropout alpha_dropout feature_dropout feature_alpha_dropout dropout1d dropout2d dropout3d".split(), kinds=["identity"])(
    _dropout
)
