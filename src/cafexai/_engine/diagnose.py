"""Plain calls of the model: answers that depend on chance are refused, and errors about the rows said in our words."""

from __future__ import annotations

import functools
import inspect
import re
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .._core.foreign import pass_on
from .._inputs.prepare import check_numbers, model_dtype, to_tensor
from ..errors import CompletenessError, OutputDiffers, UnsupportedOperation
from .faults import is_meant, refuse_own_fault
from .model import Subject, unwrap


def rows_for(call: str, model: Any, x: Any) -> Tensor:
    """Finite rows for a model whose answers depend on nothing but each row."""
    Subject(model).check_settled(call)
    return check_numbers(to_tensor(x, model, "x", call), "x", call)


def answer(call: str, model: Callable[[Tensor], Any], rows: Tensor) -> Any:
    """What the model gives for the rows, its calls being watched."""
    model = unwrap(getattr(model, "_torchdynamo_orig_callable", model))  # compiled calls cannot be seen
    try:
        with torch.no_grad(), Watch(call):
            if rows.ndim == 1:
                model(rows[:1])  # rows of one number can be had one by one, the numbers of a row cannot
            return model(rows)
    except RuntimeError as error:
        refuse_rows(error, call, model, (rows,), lambda: model(rows[:1]))
        raise


class Watch(TorchFunctionMode):
    """Refuses calls in training mode, also inside functions, whose modules cannot be seen."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self.call = call

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = {**_defaults(func), **dict(zip(_defaults(func), args, strict=False)), **kwargs}
        if given.get("training", "dropout_p" in given) and given.get("p", given.get("dropout_p", True)):
            raise ValueError(
                f"{self.call}(...): {func.__name__} is called in training mode, so the output depends on chance or on the "
                "other rows. Call model.eval() first."
            )
        return pass_on(func, args, kwargs)


@functools.cache
def _defaults(func: Callable[..., Any]) -> dict[str, Any]:
    """The arguments of a function that knows a training mode, with their defaults."""
    try:
        parameters = inspect.signature(func).parameters
    except (TypeError, ValueError):  # most of torch does not say
        return {}
    return {name: entry.default for name, entry in parameters.items()} if "training" in parameters else {}


def refuse_rows(error: Exception, call: str, model: Any, tensors: tuple[Tensor, ...], again: Callable[[], Any]) -> None:
    """Say why, if the model itself does not take such rows: ``again`` calls it with the first of them."""
    x = tensors[0]
    flat = len(tensors) == 1 and x.ndim == 1 and x.is_floating_point()
    if isinstance(error, (ValueError, UnsupportedOperation, CompletenessError)) and not flat:
        return
    try:
        again()
    except RuntimeError as own:
        if flat:
            raise ValueError(
                f"{call}(...): the input of shape {tuple(x.shape)} would be {len(x)} rows of one number, which the model does "
                "not take. Dimension 0 is the batch: a single row is x[None]."
            ) from error
        reason, cause = str(own).splitlines()[0], _cause(model, x)
        if cause or re.search("shape|size|dim|type|expected", reason, re.IGNORECASE):
            shapes = ", ".join(f"{tuple(t.shape)} in {t.dtype}" for t in tensors)
            raise ValueError(f"{call}(...): the model does not take inputs of shape {shapes}. {cause}({reason})") from error


def refuse_explained(error: Exception, call: str, again: Callable[[], Any]) -> None:
    """Say so, if the model runs by itself, as ``again`` does, but fails on scored values."""
    if is_meant(error):
        return
    if not type(error).__module__.startswith("torch._dynamo"):  # which fails under any mode that watches calls, ours or not
        try:
            again()
        except Exception as own:  # of the model by itself, or ours in a plain pass
            refuse_own_fault(own, call)
            return
    if "modified by an inplace operation" in str(error):
        raise UnsupportedOperation(
            f"{call}(...): forward() modifies a tensor in place after it was used; the backward pass needs the original. "
            "Let the model go on with a new tensor (factor = factor * 0.9, not factor *= 0.9), or use a copy "
            "(x * factor.clone())."
        ) from error
    refuse_own_fault(error, call)
    place = traceback.extract_tb(error.__traceback__)[-1]
    reason = (str(error).splitlines() or [""])[0][:300]
    raise UnsupportedOperation(
        f"{call}(...): the model runs on plain tensors, but not on scored values: {type(error).__name__}: {reason} "
        f"({place.filename}:{place.lineno}). Scored values are a tensor subclass, which compiled code (torch.compile, "
        "flex_attention, torch.jit, extensions in C++) does not take. Switch that part to plain PyTorch (eager attention, no "
        'compilation), or start after it: cafe.explain_layer(x, "..."). If the model has no such part, please report it.'
    ) from error


def refuse_chance(error: Exception, call: str, drawn: Callable[[int], Tensor]) -> None:
    """Say so, if the model draws random numbers, others where values lie otherwise in memory; ``drawn`` calls it by seed."""
    if not isinstance(error, OutputDiffers):
        return
    first, same, other = map(drawn, (0, 0, 1))
    if torch.equal(first, same) and not torch.equal(first, other):
        raise UnsupportedOperation(
            f"{call}(...): the model draws random numbers in its forward, and not the same ones under explanation (torch fills "
            "tensors in the order in which they lie in memory). Draw them before and pass them in "
            '(additional_forward_args=...), start after them (cafe.explain_layer(x, "...")), or let the model use the mean.'
        ) from error


def _cause(model: Any, x: Tensor) -> str:
    """What is wrong with the rows, if that can be seen, and what to do."""
    if not isinstance(model, nn.Module):
        return ""
    dtype, device = model_dtype(model)
    if x.is_floating_point() and x.dtype != dtype:
        return f"The model is in {dtype}: pass x.to({dtype}), or convert it by model.to({x.dtype}). "
    if x.device != device:
        return f"The model is on {device}: pass x.to({str(device)!r}). "
    first = next(((name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)), None)
    if first is not None and x.ndim == 2 and x.shape[1] != first[1].in_features:
        return f"Its first linear layer, {first[0]!r}, takes {first[1].in_features} columns, not {x.shape[1]}. "
    return ""
