"""What a user may register a rule for: calls that torch reports to us, and ``torch.autograd.Function``, which it does not."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import handle_torch_function, resolve_name

from .._core.tensors import Coded, Complexed, Scored, Softmaxed
from .._torch import OpOverload

_FOLLOWED = (Scored, Coded, Complexed, Softmaxed)
_REPORTS = ("handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def resolve_target(target: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a call of ``target`` is looked up by; ValueError if no call of it would ever be seen."""
    operator = getattr(target, "_opoverload", None)  # torch.library.custom_op
    if isinstance(operator, OpOverload):
        return operator
    owner = getattr(target, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        if getattr(target, "__name__", "") != "apply":
            raise ValueError(f"rule({owner.__name__}.{target.__name__}): register {owner.__name__}.apply, which models call.")
        report_calls(owner)
        return target
    if isinstance(target, type):
        how = f"{target.__name__}.apply" if issubclass(target, torch.autograd.Function) else "the function that it calls"
        raise ValueError(f"rule({target.__name__}): a class is not called with values. Register {how}.")
    if isinstance(target, types.FunctionType) and not resolve_name(target) and not _reports(target):
        raise ValueError(
            f"rule({target.__qualname__}): torch does not report calls of a Python function, so the rule would never be used. "
            "Register the torch functions that it calls, or make it the forward of a torch.autograd.Function and register "
            "its apply, or a torch.library.custom_op."
        )
    return target


def _reports(function: types.FunctionType) -> bool:
    """It is a function of torch, or calls has_torch_function on its arguments."""
    names = getattr(inspect.unwrap(function), "__code__", function.__code__).co_names
    return function.__module__.partition(".")[0] == "torch" or not set(names).isdisjoint(_REPORTS)


def report_calls(owner: Any) -> None:
    """Have calls of ``owner.apply`` seen wherever a model holds it: what it calls, ``forward``, asks for the rule first."""
    if "_cafexai_reports" in vars(owner):
        return
    own = owner.forward
    with_context = owner.setup_context is torch.autograd.Function.setup_context

    @functools.wraps(own)
    def forward(*args: Any, **kwargs: Any) -> Any:
        values = args[1:] if with_context else args
        if any(isinstance(value, _FOLLOWED) for value in (*values, *kwargs.values())):
            return handle_torch_function(owner.apply, values, *values, **kwargs)
        return own(*args, **kwargs)

    owner.forward = staticmethod(forward)
    owner._cafexai_reports = True
