"""The explained forward pass: the model's own code runs, every call of torch is looked up in the table of rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_map_only

from . import registry
from .arguments import in_order
from .calls import (
    call_site,
    dtypes,
    engine_settings,
    map_states,
    meets,
    shapes,
    share,
    usual_settings,
)
from .codes import INDEXING, Coded, follow, looked_up
from .law import check_operation
from .registry import Problem, Rule, UnsupportedOperation
from .scores import Run, Scores
from .tensors import Frozen, Scored, is_plain, plain


class Trace(TorchFunctionMode):
    """While active, scored values flow through whatever runs in this thread."""

    def __init__(self, run: Run, carrier: type[Scores], owned: Callable[[], dict[int, str]], check_each: bool = False) -> None:
        super().__init__()
        self.run = run
        run.carrier = carrier
        self.owned = owned  # makes the ids of the model's parameters and buffers, with their names
        self.check_each = check_each
        self.problems: list[Problem] = []
        self._swapped: list[tuple[Tensor, Tensor]] = []

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        usual = bool(args) and type(args[0]) is Scored  # most calls; nothing else need be asked of these
        if not usual and not meets(args, kwargs, (Scored, Frozen, Coded)):
            return func(*args, **kwargs)
        if not args or "input" in kwargs:
            args, kwargs = in_order(func, args, kwargs)
        rule = registry.find(func)
        if rule is not None and rule.name == "metadata":
            return func(*args, **kwargs)
        if usual or meets(args, kwargs, Scored) or (meets(args, kwargs, Coded) and _looks_up(rule, args, kwargs)):
            act = self._apply
        else:
            act = self._of_frozen if meets(args, kwargs, Frozen) else self._of_codes
        if usual_settings():
            return act(func, rule, args, kwargs)
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                self.run.note_dtype(torch.get_autocast_dtype(device))
        with engine_settings():
            return act(func, rule, args, kwargs)

    def _of_frozen(self, func: Callable[..., Any], rule: Rule | None, args: Any, kwargs: Any) -> Any:
        """Constants that remember their logits: a change of shape keeps the memory."""
        value = func(*plain(args), **plain(kwargs))
        if rule is None or not isinstance(args[0], Frozen):
            return args[0] if rule is not None and rule.in_place else value
        if rule.in_place or kwargs.get("inplace"):
            raise UnsupportedOperation("a softmax is changed in place; let the model use the returned value")
        if rule.view:
            logits = rule.apply(args[0].logits, *args[1:], **kwargs)
            if isinstance(value, Tensor):
                return Frozen.of(value, logits)
            return type(value)(Frozen.of(*pair) for pair in zip(value, logits, strict=True))
        same = rule.name in _IDENTITIES or rule.name == "clone"
        return Frozen.of(value, args[0].logits) if same else value

    def _of_codes(self, func: Callable[..., Any], rule: Rule | None, args: Any, kwargs: Any) -> Any:
        """Integers: followed to their embedding, plain for everything else."""
        try:
            if rule is not None and rule.name == "__getitem__" and not isinstance(args[0], Coded):
                result: Any = looked_up(args[0].detach(), args[1])
            else:
                result = follow(func, rule, args, kwargs)
            if not isinstance(result, Scores):
                return result
            self.run.note_operation(rule.name if rule is not None else "codes")
            return Scored(result, result.template.dtype)
        except UnsupportedOperation as error:
            return self._survey(func, str(error), args, kwargs, torch.get_default_dtype())
        except RuntimeError as error:
            name = resolve_name(func) or str(func)
            raise ValueError(
                f"explain(...): {name} does not take integers ({error}). Integer inputs are codes, explained at their "
                "embedding; pass x.float() if these are quantities."
            ) from error

    def _apply(self, func: Callable[..., Any], rule: Rule | None, args: Any, kwargs: Any) -> Any:
        options = kwargs
        in_place = rule is not None and rule.in_place
        if "inplace" in kwargs:
            options = {name: value for name, value in kwargs.items() if name != "inplace"}
            in_place = in_place or bool(kwargs["inplace"])
        states, dtype = self._usual_states(args, options)
        try:
            if rule is None:
                raise UnsupportedOperation("there is no rule for it")
            if states is None:
                states, options = self._all_states(args, options, rule)
            try:
                result = rule.apply(*states, **options)
            except TypeError as error:
                result = _by_position(func, rule, states, options, error)
        except UnsupportedOperation as error:
            return self._survey(func, str(error), args, kwargs, dtype)
        self.run.note_operation(rule.name)
        self.run.note_dtype(dtype)
        if self.check_each:
            check_operation(func, args, kwargs, result, self.run)
        if in_place:
            return self._write(args[0], result, dtype)
        if result is states[0] and isinstance(args[0], Scored):
            return args[0]
        if rule.name in _IDENTITIES and isinstance(args[0], Scored) and _same_outside(args[0], result):
            return args[0]
        if isinstance(result, Scores):
            wrapped: Any = Scored(result, result.nominal or dtype)
        else:
            wrapped = map_states(result, lambda state: Scored(state, state.nominal or dtype))
        if rule.view and isinstance(args[0], Scored):
            share(wrapped, args[0], func, args, kwargs)
        return wrapped

    def _usual_states(self, args: Any, options: Any) -> tuple[list[Any] | None, torch.dtype]:
        """The arguments as rules take them, where all have the working precision and none is nested, and their dtype."""
        dtype = args[0].dtype if isinstance(args[0], Scored) else None
        states: list[Any] = []
        if dtype is self.run.dtype or dtype is torch.float64:
            for value in args:
                kind = type(value)
                if kind is Scored and value.dtype is dtype and value.state.template.dtype is dtype:
                    states.append(value.state)
                elif (kind is Parameter or kind is Tensor) and value.dtype is dtype and not value.is_inference():
                    states.append(value.detach())
                elif is_plain(value):
                    states.append(value)
                else:
                    break
            else:
                if all(map(is_plain, options.values())):
                    return states, dtype
        return None, dtypes(args, options)[0]

    def _all_states(self, args: Any, options: Any, rule: Rule) -> tuple[Any, Any]:
        """The same of any arguments."""
        if options.get("out") is not None:
            raise UnsupportedOperation("writing into out= is not followed; use the returned value")
        options = {name: value for name, value in options.items() if name != "out"}
        compute = torch.promote_types(dtypes(args, options)[1], self.run.dtype)
        codes = not meets(args, options, Scored)
        states = self._states(args, compute, codes, rule)
        if any(isinstance(value, _NOT_PLAIN) for value in options.values()):
            options = self._states(options, compute, codes, rule)
        return states, options

    def _beside(self, codes: Coded, compute: torch.dtype, rule: Rule) -> Any:
        """Codes that meet scored values: they choose among them, or count as numbers."""
        if rule.name in INDEXING:
            self.run.note_frozen(f"{rule.name} by codes")
            return codes.plain()
        return codes.leaf(lambda ids: ids.to(compute))

    def _states(self, values: Any, compute: torch.dtype, codes: bool, rule: Rule) -> Any:
        """The arguments as rules take them: scored values, and constants without gradient in the working precision."""

        def convert(value: Tensor) -> Any:
            if isinstance(value, Scored):
                return value.state
            if value.is_complex():
                raise UnsupportedOperation("complex numbers are not followed")
            if isinstance(value, Coded):
                return value if codes else self._beside(value, compute, rule)
            constant = value.as_subclass(Tensor).detach()
            if constant.is_floating_point() and constant.dtype != compute and not rule.casts:
                constant = constant.to(compute)
            return constant.clone() if constant.is_inference() else constant

        if isinstance(values, tuple):
            if any(isinstance(value, complex) for value in values):
                raise UnsupportedOperation("complex numbers are not followed")
            if not any(isinstance(value, (list, tuple, dict)) for value in values):
                return tuple([convert(value) if isinstance(value, Tensor) else value for value in values])
        return tree_map_only(Tensor, convert, values)

    def _write(self, target: Any, new: Any, dtype: torch.dtype) -> Any:
        """Carry out an operation in place; a plain tensor that receives a scored value becomes one."""
        if isinstance(target, Scored):
            target.write(new)
        elif (name := self.owned().get(id(target))) is not None:
            raise ValueError(
                f"explain(...): the model writes a value that depends on its input into its own {name!r}. "
                "Explaining leaves a model as it is; let forward work on a copy (.clone())."
            )
        elif target._is_view():
            raise UnsupportedOperation(
                "an operation in place writes a scored value into a view of a plain tensor; write into the tensor "
                "itself (y[:, 0] = ...), or build it with torch.cat or torch.stack"
            )
        else:
            stand_in = Scored(new, dtype)
            torch.utils.swap_tensors(target, stand_in)
            self._swapped.append((target, stand_in))
        return target

    def restore(self) -> None:
        """Give back the plain tensors that became scored values on the way."""
        for target, original in reversed(self._swapped):
            torch.utils.swap_tensors(target, original)
        self._swapped.clear()

    def _survey(self, func: Callable[..., Any], reason: str, args: Any, kwargs: Any, dtype: torch.dtype) -> Any:
        """Note a call that cannot be explained and go on with plain numbers, to find all the others as well."""
        problem = Problem(
            resolve_name(func) or getattr(func, "__name__", str(func)), self.run.path, shapes(args), reason, call_site()
        )
        if problem not in self.problems:
            self.problems.append(problem)
        result = func(*plain(args), **plain(kwargs))

        def lift(value: Tensor) -> Any:
            if not value.is_floating_point():
                return value
            return Scored(self.run.carrier.of_input(self.run, self.run.wide(value), None), value.dtype)

        return tree_map_only(Tensor, lift, result)


_NOT_PLAIN = (Tensor, list, tuple, dict)
_CONVERSIONS = (
    "to",
    "torch.Tensor.float",
    "torch.Tensor.double",
    "torch.Tensor.half",
    "torch.Tensor.bfloat16",
    "type",
    "type_as",
)
_IDENTITIES = frozenset((*_CONVERSIONS, "contiguous", "cpu", "cuda", "dropout", "requires_grad_", "positive"))


def _same_outside(x: Scored, result: Any) -> bool:
    """A conversion to what the value already is gives the value itself."""
    return isinstance(result, Scores) and result.nominal == x.dtype and result.template.device == x.device


def _by_position(func: Callable[..., Any], rule: Rule, args: Any, options: Any, error: TypeError) -> Any:
    """Try a call again whose arguments the rule does not know by these names."""
    args, rest = in_order(func, args, options)
    try:
        return rule.apply(*args, **rest)
    except TypeError:
        raise UnsupportedOperation(f"it is called with arguments that are not followed ({error})") from error


_CODE_RULES = ("embedding", "embedding_bag", "one_hot")


def _looks_up(rule: Rule | None, args: Any, kwargs: Any) -> bool:
    """The call makes numbers out of codes."""
    if rule is None:
        return False
    if rule.name in _CODE_RULES:
        return True
    return isinstance(args[0], Coded) and rule.name in _CONVERSIONS and _floating_target(rule.name, args, kwargs)


def _floating_target(name: str, args: Any, kwargs: Any) -> bool:
    if name.startswith("torch.Tensor."):
        return True
    for part in (*args[1:], *kwargs.values()):
        dtype = part if isinstance(part, torch.dtype) else part.dtype if isinstance(part, Tensor) else None
        if dtype is not None:
            return dtype.is_floating_point
    return False
