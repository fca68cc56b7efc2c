"""What the trace needs to know of a call: its arguments, the dtypes of its result, and where it came from."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_any

from .scores import Scores
from .tensors import Scored, plain


def meets(args: Any, kwargs: Any, kind: Any) -> bool:
    """Some argument is of this kind."""
    for value in args:
        if isinstance(value, kind):
            return True
        if isinstance(value, (list, tuple)) and any(
            isinstance(v, kind) or (isinstance(v, (list, tuple)) and tree_any(lambda leaf: isinstance(leaf, kind), v))
            for v in value
        ):
            return True
    return bool(kwargs) and tree_any(lambda leaf: isinstance(leaf, kind), kwargs)


def map_states(result: Any, wrap: Callable[[Scores], Any]) -> Any:
    """The result with its scored values wrapped, in the same structure."""
    if isinstance(result, Scores):
        return wrap(result)
    if isinstance(result, (tuple, list)):
        items = [map_states(item, wrap) for item in result]
        return type(result)(items)
    return result


def share(wrapped: Any, base: Scored, func: Callable[..., Any], args: Any, kwargs: Any) -> None:
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


def dtypes(args: Any, kwargs: Any) -> tuple[torch.dtype, torch.dtype]:
    """The dtype that the model sees on the result, and the one that scores are carried in.

    The second is that of the scored arguments or of the embedding, float32 at least.
    """
    nominal: torch.dtype | None = None
    carried: torch.dtype | None = None
    other: torch.dtype | None = None
    for value in _tensors((args, kwargs)):
        if isinstance(value, Scored):
            nominal = _wider(nominal, value.dtype)
            carried = _wider(carried, value._state.template.dtype)
        elif value.is_floating_point():
            other = _wider(other, value.dtype)
            if value.ndim:
                nominal = _wider(nominal, value.dtype)
    return nominal or torch.get_default_dtype(), _wider(carried or other, torch.float32)


def _wider(one: torch.dtype | None, two: torch.dtype) -> torch.dtype:
    return two if one is None or one == two else torch.promote_types(one, two)


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple, dict)):
            yield from _tensors(value)


def shapes(args: Any) -> str:
    """The arguments as an error names them."""
    return ", ".join(str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__ for value in args)


def call_site() -> str:
    """File and line of the caller outside of torch and this library."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("torch", "cafexai")):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def usual_settings() -> bool:
    """Nothing is switched that the engine would have to switch back."""
    return (
        torch.is_grad_enabled()
        and not torch._C._is_any_autocast_enabled()
        and torch._C._autograd._top_saved_tensors_default_hooks(False) is None
    )


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
