"""Which calls do more than give a result: they write into what they are given, hand out its memory, or draw random numbers."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from types import MethodDescriptorType
from typing import Any

import torch

from .._torch import DRAWS_LIKE, OpOverload, OpOverloadPacket
from .registry import TABLE

# What is assigned to, or handed out for others to write to; running means and dropout.
_OPENED = "__set__ __delete__ __setitem__ numpy __array__ __dlpack__ storage untyped_storage data_ptr".split()
_HARMLESS = "_set_grad_enabled sort".split()  # a switch that others read; of sort torch also declares a form that sorts lists
_HIDDEN = "batch_norm instance_norm multi_head_attention_forward dropout1d dropout2d dropout3d".split()


class Effect(enum.IntEnum):
    """What a call may change."""

    NONE = 0
    FIRST = 1  # its first argument
    ANY = 2


@functools.cache
def effect_of(function: Callable[..., Any]) -> Effect:
    """By the name, and by what torch declares; ANY for functions that neither torch nor a rule knows."""
    if isinstance(function, OpOverload):
        return Effect.ANY if function._schema.is_mutable or draws(function) else Effect.NONE
    if isinstance(function, OpOverloadPacket):
        overloads = [getattr(function, name) for name in function.overloads()]
        return max(effect_of(each) for each in overloads if not any(a.is_out for a in each._schema.arguments))
    name = getattr(function, "__name__", "")
    if name in _OPENED or (name.startswith("__i") and hasattr(torch.Tensor, f"__{name[3:]}")):  # __iadd__ is __add__ in place
        return Effect.FIRST
    known = None if name.startswith("__") else getattr(torch.ops.aten, name, None)
    if name.endswith("_") and not name.endswith("__"):
        return (
            Effect.FIRST if known is not None and not any(draws(getattr(known, o)) for o in known.overloads()) else Effect.ANY
        )
    if name in _HARMLESS:
        return Effect.NONE
    if name in _HIDDEN:
        return Effect.ANY
    if known is not None:
        return effect_of(known)
    harmless = name.startswith("__") or isinstance(function, MethodDescriptorType) or function in TABLE
    return Effect.NONE if harmless else Effect.ANY


def effect_of_call(function: Callable[..., Any], options: dict[str, Any]) -> Effect:
    """The same with these options: where the result goes, the norm that rows of a table are brought to, dropout at rest."""
    if options and (options.get("out") is not None or options.get("max_norm") is not None):
        return Effect.ANY
    if options.get("dropout_p") == 0:
        return Effect.NONE
    if options.get("training") is False and not options.get("inplace") and "dropout" in getattr(function, "__name__", ""):
        return Effect.NONE  # it hands on what it is given
    return effect_of(function)


@functools.cache
def draws(operation: OpOverload) -> bool:
    """It takes random numbers from a generator."""
    return torch.Tag.nondeterministic_seeded in operation.tags


@functools.cache
def with_generator(operation: OpOverload) -> Callable[..., Any] | None:
    """The same operation with an argument for the generator, if there is one."""
    own = {argument.name for argument in operation._schema.arguments}
    if "generator" in own:
        return operation
    packet = operation.overloadpacket
    others = (getattr(packet, name) for name in packet.overloads())
    found = (o for o in others if {argument.name for argument in o._schema.arguments} == own | {"generator"})
    return next(found, None) or DRAWS_LIKE.get(operation)


@functools.cache
def written(operation: OpOverload) -> tuple[tuple[int, str], ...]:
    """Places and names of the arguments that it writes into; those of running statistics are not declared by torch."""
    return tuple(
        (place, argument.name)
        for place, argument in enumerate(operation._schema.arguments)
        if (argument.alias_info is not None and argument.alias_info.is_write) or argument.name.startswith("running_")
    )
