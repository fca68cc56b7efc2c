"""The explained forward pass: the model's own code runs, every call of torch is looked up in the table of rules."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_any, tree_map_only

from . import registry
from .arguments import in_order
from .codes import INDEXING, Coded, follow, looked_up
from .law import check_operation
from .registry import Problem, Rule, UnsupportedOperation
from .scores import Run, Scores
from .tensors import Frozen, Scored, plain


class Trace(TorchFunctionMode):
    """While active, scored values flow through whatever runs in this thread."""

    def __init__(self, run: Run, carrier: type[Scores], owned: dict[int, str], check_each: bool = False) -> None:
        super().__init__()
        self.run = run
        run.carrier = carrier
        self.owned = owned  # ids of the model's parameters and buffers, with their names
        self.check_each = check_each
        self.problems: list[Problem] = []
        self._swapped: list[tuple[Tensor, Tensor]] = []

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not _meets(args, kwargs, (Scored, Frozen, Coded)):
            return func(*args, **kwargs)
        if not args or "input" in kwargs:
            args, kwargs = in_order(func, args, kwargs)
        rule = registry.find(func)
        if rule is not None and rule.name == "metadata":
            return func(*args, **kwargs)
        if _meets(args, kwargs, Scored) or (_meets(args, kwargs, Coded) and _looks_up(rule, args, kwargs)):
            act = self._apply
        else:
            act = self._of_frozen if _meets(args, kwargs, Frozen) else self._of_codes
        if _usual_settings():
            return act(func, rule, args, kwargs)
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                self.run.note_dtype(torch.get_autocast_dtype(device))
        with _engine_settings():
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
        return Frozen.of(value, args[0].logits) if rule.name in (*_IDENTITIES, "clone") else value

    def _of_codes(self, func: Callable[..., Any], rule: Rule | None, args: Any, kwargs: Any) -> Any:
        """Integers: followed to their embedding, plain for everything else."""
        if rule is not None and rule.name.startswith("__get") and not isinstance(args[0], Coded):
            return Scored(looked_up(args[0].detach(), args[1]), args[0].dtype)
        try:
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
        in_place = bool(kwargs.get("inplace")) or (rule is not None and rule.in_place)
        options = {key: value for key, value in kwargs.items() if key != "inplace"}
        dtype = _nominal_dtype(args, options)
        compute = torch.promote_types(_compute_dtype(args, options), self.run.dtype)
        try:
            if rule is None:
                raise UnsupportedOperation("there is no rule for it")
            if options.pop("out", None) is not None:
                raise UnsupportedOperation("writing into out= is not followed; use the returned value")
            codes = not _meets(args, options, Scored)
            states, options = (self._states(part, compute, codes, rule) for part in (args, options))
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
        if isinstance(args[0], Scored) and isinstance(result, Scores) and result is states[0]:
            return args[0]
        if rule.name in _IDENTITIES and isinstance(args[0], Scored) and _same_outside(args[0], result):
            return args[0]
        wrapped = _map_states(result, lambda state: Scored(state, state.nominal or dtype))
        if rule.view and isinstance(args[0], Scored):
            _share(wrapped, args[0], func, args, kwargs)
        return wrapped

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

        if isinstance(values, tuple) and any(isinstance(value, complex) for value in values):
            raise UnsupportedOperation("complex numbers are not followed")
        if isinstance(values, tuple) and not any(isinstance(v, (list, tuple, dict)) for v in values):
            return tuple(convert(v) if isinstance(v, Tensor) else v for v in values)
        return tree_map_only(Tensor, convert, values)

    def _write(self, target: Any, new: Any, dtype: torch.dtype) -> Any:
        """Carry out an operation in place; a plain tensor that receives a scored value becomes one."""
        if isinstance(target, Scored):
            target.write(new)
        elif id(target) in self.owned:
            raise ValueError(
                f"explain(...): the model writes a value that depends on its input into its own {self.owned[id(target)]!r}. "
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
            resolve_name(func) or getattr(func, "__name__", str(func)), self.run.path, _shapes(args), reason, _call_site()
        )
        if problem not in self.problems:
            self.problems.append(problem)
        result = func(*plain(args), **plain(kwargs))

        def lift(value: Tensor) -> Any:
            if not value.is_floating_point():
                return value
            return Scored(
                self.run.carrier.of_input(self.run, value.float() if value.itemsize < 4 else value, None), value.dtype
            )

        return tree_map_only(Tensor, lift, result)


_CONVERSIONS = (
    "to",
    "torch.Tensor.float",
    "torch.Tensor.double",
    "torch.Tensor.half",
    "torch.Tensor.bfloat16",
    "type",
    "type_as",
)
_IDENTITIES = (*_CONVERSIONS, "contiguous", "cpu", "cuda", "dropout", "requires_grad_", "positive")


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


def _meets(args: Any, kwargs: Any, kind: Any) -> bool:
    for value in args:
        if isinstance(value, kind):
            return True
        if isinstance(value, (list, tuple)) and any(
            isinstance(v, kind) or (isinstance(v, (list, tuple)) and tree_any(lambda leaf: isinstance(leaf, kind), v))
            for v in value
        ):
            return True
    return bool(kwargs) and tree_any(lambda leaf: isinstance(leaf, kind), kwargs)


def _map_states(result: Any, wrap: Callable[[Scores], Any]) -> Any:
    if isinstance(result, Scores):
        return wrap(result)
    if isinstance(result, (tuple, list)):
        items = [_map_states(item, wrap) for item in result]
        return type(result)(items)
    return result


def _share(wrapped: Any, base: Scored, func: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Results that share memory with the first argument become views of it."""

    def alike(one: Tensor, two: Tensor) -> bool:
        return one.untyped_storage().data_ptr() == two.untyped_storage().data_ptr()

    rest = plain(args[1:])
    results = [wrapped] if isinstance(wrapped, Scored) else list(wrapped)
    for number, item in enumerate(results):
        if isinstance(item, Scored) and alike(item._state.template, base.state.template):
            item.share(base, _view(func, rest, kwargs, None if isinstance(wrapped, Scored) else number))


def _view(func: Callable[..., Any], rest: Any, kwargs: Any, number: int | None) -> Callable[[Tensor], Tensor]:
    def view(value: Tensor) -> Tensor:
        result = func(value, *rest, **kwargs)
        return result if number is None else result[number]

    return view


def _nominal_dtype(args: Any, kwargs: Any) -> torch.dtype:
    """The dtype that the model sees on the result."""
    dtype = None
    for value in _tensors((args, kwargs)):
        if value.is_floating_point() and (isinstance(value, Scored) or value.ndim > 0):
            dtype = value.dtype if dtype is None else torch.promote_types(dtype, value.dtype)
    return dtype or torch.get_default_dtype()


def _compute_dtype(args: Any, kwargs: Any) -> torch.dtype:
    """The dtype that scores are carried in: that of the scored arguments or of the embedding, float32 at least."""
    found = [value._state.template.dtype for value in _tensors((args, kwargs)) if isinstance(value, Scored)]
    found = found or [value.dtype for value in _tensors((args, kwargs)) if value.is_floating_point()]
    return functools.reduce(torch.promote_types, found, torch.float32)


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, dict):
        yield from _tensors(tuple(values.values()))


def _shapes(args: Any) -> str:
    return ", ".join(str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__ for value in args)


def _call_site() -> str:
    """File and line of the caller outside of torch and this library."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("torch", "cafexai")):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _usual_settings() -> bool:
    return (
        torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and not torch.is_autocast_enabled("cuda")
        and torch._C._autograd._top_saved_tensors_default_hooks(False) is None
    )


@contextlib.contextmanager
def _engine_settings() -> Iterator[None]:
    """Gradients on, autocast and checkpointing off, whatever the model has switched meanwhile."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor))
        yield


def _as_one_function(module: nn.Module, x: Scored) -> Scored:
    """The output of a module that is declared elementwise."""
    with torch.inference_mode(False), torch.enable_grad():
        try:
            keeps_zero = not bool(module.forward(torch.zeros_like(x.state.template[:1])).any())
        except RuntimeError:
            keeps_zero = False
        return Scored(x.state.elementwise(module.forward, keeps_zero), x.dtype)


@contextlib.contextmanager
def module_paths(run: Run, names: dict[int, str], after: Callable[[str, Any], Any] | None = None) -> Iterator[None]:
    """Keep ``run.path`` at the innermost running module; ``after`` sees, and may replace, each module's output.

    Uses two global hooks for the time of the pass; nothing is registered on the model.
    """
    thread = threading.get_ident()
    stack: list[tuple[str, Scored | None]] = []

    def enter(module: nn.Module, inputs: Any) -> Any:
        if threading.get_ident() != thread:
            return None
        whole = inputs[0] if registry.is_elementwise(module) and inputs and isinstance(inputs[0], Scored) else None
        stack.append((run.path, whole))
        name = names.get(id(module))
        run.path = f"{run.path}.{type(module).__name__}()".lstrip(".") if name is None else name
        return None if whole is None else plain(inputs)

    def leave(module: nn.Module, inputs: Any, output: Any) -> Any:
        if threading.get_ident() != thread:
            return None
        path = run.path
        previous, whole = stack.pop()
        if whole is not None:
            run.note_operation(type(module).__name__)
            output = _as_one_function(module, whole)
        run.path = previous
        replaced = after(path, output) if after is not None else None
        return output if replaced is None and whole is not None else replaced

    handles = [
        hooks.register_module_forward_pre_hook(enter),
        hooks.register_module_forward_hook(leave, always_call=False),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        run.path = ""
