"""Which calls do more than give a result: they write into what they are given, hand out its memory, or draw random numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodDescriptorType
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

_HIDDEN = """
    batch_norm instance_norm embedding embedding_bag
    numpy __array__ __dlpack__ storage untyped_storage data_ptr __set__ __setitem__ __delete__
""".split()  # running statistics, norms of weights, memory that others may write to, what is assigned to


@functools.cache
def has_effects(function: Callable[..., Any]) -> bool:
    """Whether it may; of functions that torch itself does not know, nobody can say."""
    if isinstance(function, OpOverload):
        return function._schema.is_mutable or draws(function)
    if isinstance(function, OpOverloadPacket):
        overloads = [getattr(function, name) for name in function.overloads()]
        return any(has_effects(each) for each in overloads if not any(a.is_out for a in each._schema.arguments))
    name = getattr(function, "__name__", "")
    if name.startswith("__"):  # __iadd__ is __add__ in place
        return name in _HIDDEN or (name.startswith("__i") and hasattr(torch.Tensor, f"__{name[3:]}"))
    if name in _HIDDEN or name.endswith("_"):
        return True
    known = getattr(torch.ops.aten, name, None)
    return not isinstance(function, MethodDescriptorType) if known is None else has_effects(known)


@functools.cache
def draws(operation: OpOverload) -> bool:
    """It takes random numbers from a generator."""
    return torch.Tag.nondeterministic_seeded in operation.tags


@functools.cache
def with_generator(operation: OpOverload) -> OpOverload | None:
    """The same operation with an argument for the generator, if there is one."""
    own = {argument.name for argument in operation._schema.arguments}
    if "generator" in own:
        return operation
    packet = operation.overloadpacket
    others = (getattr(packet, name) for name in packet.overloads())
    return next((o for o in others if {argument.name for argument in o._schema.arguments} == own | {"generator"}), None)


@functools.cache
def written(operation: OpOverload) -> tuple[tuple[int, str], ...]:
    """Places and names of the arguments that it writes into; those of running statistics are not declared by torch."""
    return tuple(
        (place, argument.name)
        for place, argument in enumerate(operation._schema.arguments)
        if (argument.alias_info is not None and argument.alias_info.is_write) or argument.name.startswith("running_")
    )
