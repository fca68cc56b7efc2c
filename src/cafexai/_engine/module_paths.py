"""Which module runs: two global hooks for the time of a pass, and modules that are declared elementwise."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks

from .._core.run import Run
from .._core.tensors import Scored, plain
from .._torch import DisableTorchFunction, global_hooks
from ..rules.activation_modules import function_of
from ..rules.registry import is_elementwise


class _Paths(threading.local):
    """The pass that runs in this thread, as the global hooks see it."""

    enter: Callable[[nn.Module, Any], Any] | None = None
    leave: Callable[[nn.Module, Any, Any], Any] | None = None


_paths = _Paths()
_passes: list[object] = []  # those that run now, in all threads
_handles: list[Any] = []
_registering = threading.Lock()


def _before(module: nn.Module, inputs: Any) -> Any:
    return None if _paths.enter is None else _paths.enter(module, inputs)


def _behind(module: nn.Module, inputs: Any, output: Any) -> Any:
    return None if _paths.leave is None else _paths.leave(module, inputs, output)


def hooks_of_others() -> bool:
    """Whether other code has registered global module hooks."""
    return any(hook is not _before and hook is not _behind for hook in global_hooks())


@contextlib.contextmanager
def module_paths(run: Run, names: dict[int, str], after: Callable[[str, Any], Any] | None = None) -> Iterator[None]:
    """Keep ``run.path`` at the innermost running module; ``after`` sees, and may replace, each module's output.

    Uses two global hooks, of all threads together, for the time of the pass; nothing is registered on the model.
    """
    stack: list[tuple[str, Scored | None]] = []

    def enter(module: nn.Module, inputs: Any) -> Any:
        whole = None
        kind: Any = type(module)
        if inputs and type(inputs[0]) is Scored and is_elementwise(kind):
            whole = inputs[0]
        stack.append((run.path, whole))
        name = names.get(id(module))
        run.path = f"{run.path}.{type(module).__name__}()".lstrip(".") if name is None else name
        return None if whole is None else plain(inputs)

    def leave(module: nn.Module, inputs: Any, output: Any) -> Any:
        path = run.path
        previous, whole = stack.pop()
        if whole is not None:
            run.note_operation(type(module).__name__)
            output = _as_one_function(module, whole)
        run.path = previous
        replaced = after(path, output) if after is not None else None
        return output if replaced is None and whole is not None else replaced

    outer = _paths.enter, _paths.leave
    _paths.enter, _paths.leave = enter, leave
    with _registering:
        _passes.append(stack)
        if not _handles:
            _handles.append(hooks.register_module_forward_pre_hook(_before))
            _handles.append(hooks.register_module_forward_hook(_behind, always_call=False))
    try:
        yield
    finally:
        _paths.enter, _paths.leave = outer
        with _registering:
            _passes.pop()
            while _handles and not _passes:
                _handles.pop().remove()
        run.path = ""


def _as_one_function(module: nn.Module, x: Scored) -> Scored:
    """The output of a module that is declared elementwise; what the engine itself does in a hook is not to be followed."""
    with DisableTorchFunction(), torch.inference_mode(False), torch.enable_grad():
        phi = function_of(module)
        try:
            keeps_zero = not bool(phi(torch.zeros_like(x.state.template[:1])).any())
        except RuntimeError:
            keeps_zero = False
        return Scored(x.state.elementwise(phi, keeps_zero), x.dtype)
