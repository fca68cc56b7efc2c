"""Where in the model a pass is: its modules are followed by two global hooks, none of them on the model."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks

from . import registry
from .scores import Run
from .tensors import Scored, plain


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
        kind: Any = type(module)
        whole = inputs[0] if registry.is_elementwise(kind) and inputs and isinstance(inputs[0], Scored) else None
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
