"""The explained forward pass: the model's own code runs, every call of torch is looked up in the table of rules."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode, resolve_name

from .._core.foreign import pass_on
from .._core.run import Run
from .._core.tensors import PLAIN, Coded, Complexed, Scored, Softmaxed, is_plain, plain, share
from .._core.value import Scores
from .._torch import any_autocast, saves_tensors_as_usual, tree_any, tree_map_only
from ..errors import Problem, UnsupportedOperation
from ..rules import complex as of_complex
from ..rules import integer_codes as of_codes
from ..rules.effects import Effect, effect_of_call
from ..rules.registry import TABLE, Rule, find
from .call_info import call_site, dtypes, in_order, shapes
from .check import check_operation
from .inplace import StandIns
from .state_guard import FOLLOWED, StateGuard

_LISTS = {tuple, list, torch.Size}
_CONSTANTS = {Parameter, Tensor, Softmaxed}


class Trace(TorchFunctionMode):
    """While active, scored values flow through whatever runs in this thread."""

    def __init__(self, run: Run, owned: Callable[[], dict[int, str]], guard: StateGuard, check_each: bool = False) -> None:
        super().__init__()
        self.run = run
        self.stand_ins = StandIns(owned)
        self.guard = guard
        self.check_each = check_each
        self.problems: list[Problem] = []

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        usual = bool(args) and type(args[0]) is Scored  # most calls; nothing else need be asked of these
        if not usual:
            effect = effect_of_call(func, kwargs)
            if effect is Effect.FIRST:
                self.guard.save((*args, *kwargs.values())[:1])
            elif effect is Effect.ANY and not self.guard.watching:
                return self._watch_call(func, types, args, kwargs)
            if not _meets(args, kwargs, FOLLOWED):
                return pass_on(func, args, kwargs)
        if not args or "input" in kwargs:
            args, kwargs = in_order(func, args, kwargs)
        rule = TABLE.get(func) or find(func)
        if rule is not None:
            if "metadata" in rule.kinds:
                return pass_on(func, args, kwargs)
            if "draws" in rule.kinds and not self.guard.watching:
                return self._watch_call(func, types, args, kwargs)
        if not usual and _meets(args, kwargs, Complexed):
            act = self._of_complex
        elif (
            usual
            or _meets(args, kwargs, Scored)
            or (_meets(args, kwargs, Coded) and of_codes.makes_numbers(rule, args, kwargs))
        ):
            act = self._apply
        else:
            act = self._of_softmax if _meets(args, kwargs, Softmaxed) else self._of_codes
        if usual_settings():
            return act(func, rule, args, kwargs)
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                self.run.note_dtype(torch.get_autocast_dtype(device))
        with engine_settings():
            return act(func, rule, args, kwargs)

    def _watch_call(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        """A call of which it is not known what it writes into, or that draws random numbers."""
        self.guard.needed = True
        self.guard.save(args[:1])
        with self.guard:
            return pass_on(self.__torch_function__, (func, types, args, kwargs), {})

    def _of_softmax(self, func: Callable[..., Any], rule: Rule | None, args: Any, kwargs: Any) -> Any:
        """Constants that remember their logits: a change of shape keeps the memory."""
        written = rule is not None and bool(rule.in_place or kwargs.get("inplace"))
        before = plain(args[0]).clone() if written and isinstance(args[0], Softmaxed) else None
        value = pass_on(func, plain(args), plain(kwargs))
        if rule is None or not isinstance(args[0], Softmaxed):
            return args[0] if rule is not None and rule.in_place else value
        if before is not None and torch.equal(before, value):  # dropout that is switched off
            return args[0]
        if written:
            raise UnsupportedOperation(
                "explain(...): a softmax is changed in place, so that its logits no longer belong to it. Instead: let the "
                "model go on with a new value (weights = weights * mask, not weights *= mask), or start after it: "
                "cafe.explain_layer(x, layer)."
            )
        if "identity" in rule.kinds:
            return Softmaxed.of(value, args[0].logits)
        if not rule.view and "move" not in rule.kinds:
            return value
        logits = rule.apply(args[0].logits, *args[1:], **kwargs)
        if isinstance(value, Tensor):
            return Softmaxed.of(value, logits)
        return type(value)(Softmaxed.of(*pair) for pair in zip(value, logits, strict=True))

    def _of_complex(self, func: Callable[..., Any], rule: Rule | None, args: Any, kwargs: Any) -> Any:
        """Pairs of values: what is done to the parts is followed in turn."""
        try:
            with self:
                result = of_complex.follow(func, args, kwargs)
        except UnsupportedOperation as error:
            return self._survey(func, str(error), args, kwargs, torch.get_default_dtype())
        if rule is not None and rule.in_place and isinstance(args[0], Complexed):
            args[0].first, args[0].second = result.first, result.second
            return args[0]
        if rule is not None and rule.in_place:
            self.stand_ins.exchange(args[0], result)
            return args[0]
        return result

    def _of_codes(self, func: Callable[..., Any], rule: Rule | None, args: Any, kwargs: Any) -> Any:
        """Integers: followed to their embedding, plain for everything else."""
        try:
            result = of_codes.follow(func, rule, args, kwargs)
            if rule is not None and rule.in_place:
                return self._write_codes(args[0], result)
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
        options, run = kwargs, self.run
        in_place = rule is not None and rule.in_place
        if "inplace" in kwargs or "out" in kwargs:
            options = {
                name: value for name, value in kwargs.items() if name != "inplace" and (name != "out" or value is not None)
            }
            in_place = in_place or bool(kwargs.get("inplace"))
        states, options, dtype = self._usual_states(args, options)
        if (rule is None or states is None) and of_complex.takes(func, args):
            return self._of_complex(func, rule, args, kwargs)
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
        run.operations[rule.name] = run.operations.get(rule.name, 0) + 1
        if dtype is not run.coarsest:
            run.note_dtype(dtype)
        if self.check_each:
            check_operation(func, args, kwargs, result, run)
        if in_place:
            return self._write(args[0], result, dtype)
        first = args[0]
        if type(first) is not Scored:
            return _wrap(result, dtype)
        if result is states[0]:
            return first
        if "identity" in rule.kinds and isinstance(result, Scores):  # a conversion to what the value already is
            if result.nominal == first.dtype and result.template.device == first.device:
                return first
        wrapped = Scored(result, result.nominal or dtype) if isinstance(result, Scores) else _wrap(result, dtype)
        if rule.view:
            share(wrapped, first, func, args, kwargs)
        return wrapped

    def _usual_states(self, args: Any, options: Any) -> tuple[list[Any] | None, Any, torch.dtype]:
        """Arguments and options as rules take them, where all have the working precision and none is nested; their dtype."""
        dtype = args[0].dtype if args and type(args[0]) is Scored else None  # nearly always the first
        if dtype is None:
            dtype = next((value.dtype for value in _flat(args) if type(value) is Scored), None)
        states: list[Any] = []
        if dtype is not None and (dtype is self.run.settings.dtype or dtype is torch.float64):
            for value in args:
                kind = type(value)
                if kind is Scored or kind in _CONSTANTS:
                    state = self._usual_state(value, dtype)
                    if state is None:
                        break
                    states.append(state)
                elif kind in PLAIN or (kind in _LISTS and PLAIN.issuperset(map(type, value))):
                    states.append([*value] if kind is list else value)  # the model may change a list before its values are made
                elif kind is list or kind is tuple:
                    parts = [self._usual_state(part, dtype) for part in value]
                    if any(part is None for part in parts):
                        break
                    states.append(parts if kind is list else tuple(parts))
                else:
                    break
            else:
                if not options or all(map(is_plain, options.values())):
                    return states, options, dtype
                usual = self._usual_options(options, dtype)
                if usual is not None:
                    return states, usual, dtype
        return None, options, dtypes(args, options)[0]

    def _usual_state(self, value: Any, dtype: torch.dtype) -> Any:
        """A scored value, or a constant without gradient; None if there is more to do than to take it."""
        kind = type(value)
        if kind is Scored:
            state = value._state if value.version == value.memory.version else value.state
            known = value.dtype is dtype and state.template.dtype is dtype and state.run is self.run
            return state if known else None
        if kind not in _CONSTANTS or value.is_inference() or (value.dtype is not dtype and value.is_floating_point()):
            return None
        return self.guard.apart((value if kind is not Softmaxed else value.as_subclass(Tensor)).detach())

    def _usual_options(self, options: dict[str, Any], dtype: torch.dtype) -> dict[str, Any] | None:
        """The weights and biases of norms are given by name."""
        if "out" in options:
            return None
        usual = {}
        for name, value in options.items():
            state = value if is_plain(value) else self._usual_state(value, dtype)
            if state is None and value is not None:
                return None
            usual[name] = state
        return usual

    def _all_states(self, args: Any, options: Any, rule: Rule) -> tuple[Any, Any]:
        """Arguments of any kind as rules take them."""
        if options.get("out") is not None:
            raise UnsupportedOperation("writing into out= is not followed; use the returned value")
        options = {name: value for name, value in options.items() if name != "out"}
        compute = torch.promote_types(dtypes(args, options)[1], self.run.settings.dtype)
        codes = not _meets(args, options, Scored)
        states = self._states(args, compute, codes, rule)
        if any(isinstance(value, (Tensor, list, tuple, dict)) for value in options.values()):
            options = self._states(options, compute, codes, rule)
        return states, options

    def _states(self, values: Any, compute: torch.dtype, codes: bool, rule: Rule) -> Any:
        """Scored values, and constants without gradient in the working precision."""

        def convert(value: Tensor) -> Any:
            if isinstance(value, Scored):
                if value.state.run is not self.run:
                    raise ValueError(
                        "explain(...): forward() stored a tensor from a previous explain() call and reuses it. Clear it, "
                        "and do not store activations outside the module."
                    )
                return value.state
            if isinstance(value, Coded):
                return value if codes else self._beside(value, compute, rule)
            constant = self.guard.apart(value.as_subclass(Tensor).detach())
            if constant.is_floating_point() and constant.dtype != compute and not rule.casts:
                constant = constant.to(compute)
            return constant.clone() if constant.is_inference() else constant

        if isinstance(values, tuple):
            if not any(isinstance(value, (list, tuple, dict)) for value in values):
                return tuple([convert(value) if isinstance(value, Tensor) else value for value in values])
        return tree_map_only(Tensor, convert, values)

    def _beside(self, codes: Coded, compute: torch.dtype, rule: Rule) -> Any:
        """Codes that meet scored values: they choose among them, or count as numbers."""
        if "index" in rule.kinds:
            self.run.note_frozen(f"{rule.name} by codes", "index")
            return codes.plain()
        return codes.leaf(lambda ids: ids.to(compute))

    def _write(self, target: Any, new: Any, dtype: torch.dtype) -> Any:
        """Carry out an operation in place; a plain tensor that receives a scored value becomes one."""
        if isinstance(target, Scored) and isinstance(new, Scores):
            target.write(new)
        elif isinstance(target, Scored):  # a softmax, spelled out in place, is a constant from here on
            if target.view_of_root is not None:
                raise UnsupportedOperation("a view is overwritten by a constant in place; let the model use the returned value")
            torch.utils.swap_tensors(target, new)
        elif target._is_view():
            self.stand_ins.exchange_view(self.run, target, new, dtype)
        else:
            self.stand_ins.exchange(target, Scored(new, dtype))
        return target

    def _write_codes(self, target: Any, new: Any) -> Any:
        """The same for codes."""
        self.guard.needed = True
        if isinstance(new, Scores):
            return self._write(target, new, new.template.dtype)
        if isinstance(target, Coded):
            target.write(new)
        elif isinstance(new, Coded):
            self.stand_ins.exchange(target, new)
        return target

    def restore(self) -> None:
        """Give back the plain tensors that became scored values on the way."""
        self.stand_ins.give_back()

    def _survey(self, func: Callable[..., Any], reason: str, args: Any, kwargs: Any, dtype: torch.dtype) -> Any:
        """Note a call that cannot be explained and go on with plain numbers, to find all the others as well."""
        name = resolve_name(func) or getattr(func, "__name__", str(func))
        problem = Problem(name, self.run.path, shapes(args), reason, call_site())
        if problem not in self.problems:
            self.problems.append(problem)
        self.guard.save(args[:1])
        with self.guard:
            result = pass_on(func, plain(args), plain(kwargs))

        def lift(value: Tensor) -> Any:
            if not value.is_floating_point():
                return value
            return Scored(self.run.settings.carrier.of_input(self.run, self.run.wide(value), None), value.dtype)

        return tree_map_only(Tensor, lift, result)


def _flat(args: Any) -> Iterator[Any]:
    """The arguments, and what is in lists among them."""
    for value in args:
        if type(value) is list or type(value) is tuple:
            yield from value
        else:
            yield value


def _meets(args: Any, kwargs: Any, kind: Any) -> bool:
    """Some argument is of this kind."""
    for value in args:
        if isinstance(value, kind):
            return True
        if isinstance(value, (list, tuple)):
            for part in value:
                if isinstance(part, kind):
                    return True
                if isinstance(part, (list, tuple)) and tree_any(lambda leaf: isinstance(leaf, kind), part):
                    return True
    for value in kwargs.values():
        if isinstance(value, kind):
            return True
        if isinstance(value, (list, tuple, dict)) and tree_any(lambda leaf: isinstance(leaf, kind), value):
            return True
    return False


def _wrap(result: Any, dtype: torch.dtype) -> Any:
    """The result as the model sees it, in the same structure."""
    if isinstance(result, Scores):
        return Scored(result, result.nominal or dtype)
    if isinstance(result, (tuple, list)):
        return type(result)([_wrap(item, dtype) for item in result])
    return result


def _by_position(func: Callable[..., Any], rule: Rule, args: Any, options: Any, error: TypeError) -> Any:
    """Try a call again whose arguments the rule does not know by these names."""
    args, rest = in_order(func, args, options)
    try:
        return rule.apply(*args, **rest)
    except TypeError:
        raise UnsupportedOperation(f"it is called with arguments that are not followed ({error})") from error


def usual_settings() -> bool:
    """Nothing is switched that the engine would have to switch back."""
    return torch.is_grad_enabled() and not any_autocast() and saves_tensors_as_usual()


@contextlib.contextmanager
def engine_settings() -> Iterator[None]:
    """Gradients on, autocast and checkpointing off, whatever the model has switched meanwhile."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor))
        yield
