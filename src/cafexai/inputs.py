"""What the user hands in, checked and brought into one form before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .law import all_finite

Reference = Tensor | None


@dataclass(frozen=True)
class Inputs:
    """The inputs as a tuple of tensors of equally many rows: numbers in floating point, codes as integers."""

    tensors: tuple[Tensor, ...]
    is_tuple: bool
    names: tuple[str, ...] | None
    tokens: tuple[tuple[str, ...], ...] | None = None
    display: Tensor | None = None  # the values in the units of the user, where the model works in others

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.tensors[0].shape[0]


def takes_raw(model: Any) -> bool:
    """The model comes with a preprocessing step of its own."""
    return hasattr(type(model), "from_raw")  # of the class: modules take long to say what they have not


def prepare(inputs: Any, model: Any, feature_names: Sequence[str] | None, display: Any = None, tokenizer: Any = None) -> Inputs:
    """Tensors, numpy arrays or data frames, one or several, to tensors."""
    if takes_raw(model) and not isinstance(inputs, (tuple, list)):
        inputs, original, feature_names = model.from_raw(inputs, feature_names)
        display = original if display is None else display
    is_tuple = isinstance(inputs, (tuple, list))
    given = tuple(inputs) if is_tuple else (inputs,)
    if not given:
        raise ValueError("explain(()): there is no input. Pass a tensor, or a tuple of tensors.")
    names = tuple(map(str, feature_names)) if feature_names is not None else None
    tensors = []
    for place, value in enumerate(given):
        if not isinstance(value, Tensor) and _is_frame(value):
            if len(given) == 1 and names is None:
                names = tuple(map(str, value.columns))
            value = _frame_to_numpy(value)
        tensors.append(_checked(_to_tensor(value, model, place), place, len(given)))
    rows = {tensor.shape[0] for tensor in tensors}
    if len(rows) > 1:
        raise ValueError(
            f"explain(...): the inputs have different numbers of rows, {sorted(rows)}. Row i of each belongs together."
        )
    if names is not None and (len(tensors) > 1 or len(names) != tensors[0][0].numel()):
        raise ValueError(
            f"explain(..., feature_names=...): {len(names)} names for {sum(t[0].numel() for t in tensors)} features "
            f"in {len(tensors)} input(s). Give one name per feature of a single input."
        )
    tokens = None if tokenizer is None else _words(tokenizer, tensors)
    return Inputs(tuple(tensors), is_tuple, names, tokens, None if display is None else _displayed(display, tensors))


def _words(tokenizer: Any, tensors: list[Tensor]) -> tuple[tuple[str, ...], ...]:
    if len(tensors) > 1 or tensors[0].is_floating_point() or tensors[0].ndim != 2:
        raise ValueError("explain(..., tokenizer=...): words belong to a single input of token ids, one row of ids per text.")
    return tuple(tuple(map(str, tokenizer.convert_ids_to_tokens(row))) for row in tensors[0].tolist())


def _displayed(display: Any, tensors: list[Tensor]) -> Tensor:
    if _is_frame(display):
        display = _frame_to_numpy(display)
    display = torch.as_tensor(display)
    if len(tensors) > 1 or display.shape != tensors[0].shape:
        raise ValueError(
            f"explain(..., display=...): values to show of shape {tuple(display.shape)} for inputs of shapes "
            f"{[tuple(t.shape) for t in tensors]}. Give one value per feature of a single input."
        )
    return display


def _frame_to_numpy(frame: Any) -> np.ndarray:
    kinds = dict(zip(frame.columns, (str(kind).lower() for kind in frame.dtypes), strict=True))
    odd = [str(name) for name, kind in kinds.items() if not any(word in kind for word in ("int", "float", "bool"))]
    if odd:
        raise ValueError(f"explain(frame): the columns {odd} are not numbers. Encode them as the model was trained.")
    return np.array(frame.to_numpy(), dtype=np.float64)


def model_dtype(model: Any) -> tuple[torch.dtype, torch.device]:
    """Dtype and device of the first floating point parameter or buffer, else torch's defaults."""
    if isinstance(model, nn.Module):
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                return tensor.dtype, tensor.device
    return torch.get_default_dtype(), torch.device("cpu")


def _to_tensor(value: Any, model: Any, place: int) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, np.ndarray):
        if np.issubdtype(value.dtype, np.integer):
            return torch.tensor(value, device=model_dtype(model)[1], dtype=torch.long)
        if not np.issubdtype(value.dtype, np.floating):
            raise ValueError(
                f"explain(...): input {place} is an array of {value.dtype}. Features are floats, or integer codes."
            )
        dtype, device = model_dtype(model)
        return torch.tensor(value, device=device, dtype=dtype)
    raise ValueError(
        f"explain(...): input {place} is a {type(value).__name__}. Pass a tensor, a numpy array or a data frame, "
        "or a tuple of these; other arguments of forward go into additional_forward_args."
    )


def _checked(x: Tensor, place: int, count: int) -> Tensor:
    what = "the input" if count == 1 else f"input {place}"
    if x.dtype == torch.bool or x.is_complex():
        raise ValueError(
            f"explain(...): {what} has dtype {x.dtype}. Features are floating point numbers (x.float() for true and false), "
            "or integer codes that the model looks up in an embedding."
        )
    if x.ndim == 0 or x.shape[0] == 0:
        raise ValueError(f"explain(...): {what} has shape {tuple(x.shape)}: there are no rows. Dimension 0 is the batch.")
    if not all_finite(x):
        bad = ~x.isfinite()
        where = tuple(bad.nonzero()[0].tolist())
        raise ValueError(
            f"explain(...): {what} holds {x[where].item()} at index {where} ({int(bad.sum())} such values in all). "
            "Fill or drop missing values first."
        )
    return x


def references(baselines: Any, inputs: Inputs, background: Any, model: Any) -> list[tuple[Reference, ...]]:
    """The reference inputs: one entry, or several to average over; None stands for zeros."""
    if callable(baselines) and not isinstance(baselines, (Tensor, nn.Module)):
        baselines = baselines(inputs.tensors if inputs.is_tuple else inputs.tensors[0])
    parts = _one_each(baselines, inputs)
    stacks = [
        _stack(_by_name(part, inputs.names, model), x, background, place, model, inputs.names)
        for place, (part, x) in enumerate(zip(parts, inputs.tensors, strict=True))
    ]
    count = max(len(stack) for stack in stacks)
    if any(len(stack) not in (1, count) for stack in stacks):
        raise ValueError(
            f"explain(..., baselines=...): the inputs have stacks of {[len(s) for s in stacks]} baselines; give equally many."
        )
    return [tuple(stack[i % len(stack)] for stack in stacks) for i in range(count)]


def _by_name(part: Any, names: tuple[str, ...] | None, model: Any) -> Any:
    """A baseline with column names, in the order of the inputs; a pipeline transforms it as it does the rows."""
    if part is None or isinstance(part, Tensor):
        return part
    if hasattr(part, "to_frame") and hasattr(part, "index"):  # a series of one number per column
        part = part.to_frame().T
    if not _is_frame(part):
        return part
    if takes_raw(model):
        return model.from_raw(part, None)[0]
    columns = tuple(map(str, part.columns))
    if names is not None and columns != names:
        if sorted(columns) != sorted(names):
            raise ValueError(
                f"explain(..., baselines=frame): its columns {list(columns)} are not those of the input, {list(names)}."
            )
        part = part[[part.columns[columns.index(name)] for name in names]]
    return _frame_to_numpy(part)


def _is_frame(value: Any) -> bool:
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def _one_each(baselines: Any, inputs: Inputs) -> tuple[Any, ...]:
    if isinstance(baselines, list) and baselines and all(isinstance(part, (int, float)) for part in baselines):
        baselines = np.array(baselines, dtype=np.float64)  # one row of numbers
    if isinstance(baselines, (tuple, list)):
        if len(baselines) != len(inputs.tensors):
            raise ValueError(
                f"explain(..., baselines=...): {len(baselines)} baselines for {len(inputs.tensors)} input(s); give one each."
            )
        return tuple(baselines)
    if len(inputs.tensors) > 1 and isinstance(baselines, (Tensor, np.ndarray)):
        raise ValueError("explain(..., baselines=tensor): there are several inputs; give a tuple with one baseline for each.")
    return (baselines,) * len(inputs.tensors)


def _stack(part: Any, x: Tensor, background: Any, place: int, model: Any, names: tuple[str, ...] | None) -> list[Reference]:
    if part is None:
        return [None]
    if isinstance(part, str):
        part = _statistic(part, background, place, model, names)
    if isinstance(part, (int, float)) and not isinstance(part, bool):
        if part == 0 and x.is_floating_point():
            return [None]
        if not x.is_floating_point() and not isinstance(part, int):
            raise ValueError(f"explain(..., baselines={part}): the baseline of an integer input is an integer code, or None.")
        part = torch.full((1,) * x.ndim, part, dtype=x.dtype)
    if isinstance(part, np.ndarray):
        part = torch.tensor(part)
    if not isinstance(part, Tensor):
        raise ValueError(
            f"explain(..., baselines=...): a {type(part).__name__} is no baseline. Give None (zeros), a number, a tensor "
            'shaped like the input or like one row, a callable, or "mean", "median", "mode" of CAFE(..., background=data).'
        )
    if not x.is_floating_point() and part.is_floating_point():
        raise ValueError("explain(..., baselines=...): the baseline of an integer input is an integer code, or None.")
    part = part.detach().to(x)
    if not all_finite(part):
        raise ValueError("explain(..., baselines=...): the baseline holds NaN or infinite values.")
    if part.ndim == x.ndim - 1 and part.shape == x.shape[1:]:
        part = part[None]
    many = part if part.ndim == x.ndim + 1 else part[None]
    fits = many.ndim == x.ndim + 1 and all(a in (1, b) for a, b in zip(many.shape[1:], x.shape, strict=True))
    if not fits:
        raise ValueError(
            f"explain(..., baselines=...): a baseline of shape {tuple(part.shape)} does not fit the input of shape "
            f"{tuple(x.shape)}. Give that shape, (1, {', '.join(map(str, x.shape[1:]))}), or a stack "
            "of such with one more dimension in front."
        )
    return [one.expand(x.shape) for one in many]


def _statistic(name: str, background: Any, place: int, model: Any, names: tuple[str, ...] | None) -> Tensor:
    if name not in ("mean", "median", "mode"):
        raise ValueError(f'explain(..., baselines={name!r}): the words are "mean", "median" and "mode".')
    if background is None:
        raise ValueError(f"explain(..., baselines={name!r}): of which data? Give them: CAFE(model, background=x_train).")
    data = background[place] if isinstance(background, (tuple, list)) else background
    if takes_raw(model):
        data, names = model.from_raw(data, None)[0], None
    data = _by_name(data, names, None)
    data = _checked(_to_tensor(data, model, place), place, 1)
    if name == "mean":
        if not data.is_floating_point():
            raise ValueError('explain(..., baselines="mean"): codes have no mean; use "mode", a code, or None.')
        return data.mean(0, keepdim=True)
    return (data.median(0) if name == "median" else data.mode(0)).values[None]


def choose_target(output: Tensor, target: Any, rows: slice, total: int) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """How to pick one number per row from the output, and the picked index. ``rows``: the rows of this batch."""
    batch = output.shape[0]
    sizes = output.shape[1:]
    if len(sizes) == 1 and (only := _one_integer(target)) is not None and 0 <= only < sizes[0]:
        return lambda v: v[:, only], torch.full((batch, 1), only)
    if target is None:
        if sizes.numel() == 1:
            return lambda v: v.reshape(batch), torch.zeros(batch, len(sizes), dtype=torch.long)
        if len(sizes) != 1:
            raise ValueError(
                f"explain(..., target=None): the output has shape {tuple(output.shape)}, so there is no single "
                "predicted class. "
                f"Give target as a tuple of {len(sizes)} indices."
            )
        index = output.argmax(1, keepdim=True).cpu()
    else:
        index = _target_index(target, rows, total, batch, sizes)
    if not sizes:
        return lambda v: v, index
    if batch == 1:
        place = (slice(None), *index[0].tolist())
        return lambda v: v[place], index
    picks = tuple(index.to(output.device).unbind(1))
    places = (torch.arange(batch, device=output.device), *picks)
    return lambda v: v[places], index


def _one_integer(target: Any) -> int | None:
    """The target of all rows, if it is a single number."""
    if type(target) is int:
        return target
    if type(target) is Tensor and target.ndim < 2 and target.numel() == 1 and target.dtype is torch.long:
        return int(target.item())
    return None


def _target_index(target: Any, rows: slice, total: int, batch: int, sizes: torch.Size) -> Tensor:
    """Targets as (batch, dimensions of the output). An index for all rows, one per row, or tuples of either."""
    count = max(len(sizes), 1)
    if isinstance(target, (np.ndarray, np.integer)):
        target = torch.as_tensor(target)
    if isinstance(target, Tensor):
        if target.is_floating_point() or target.dtype == torch.bool:
            raise ValueError(f"explain(..., target=...): targets are integers, not {target.dtype}.")
        index = target.detach().cpu().long()
    else:
        try:
            index = torch.tensor(target)
            if index.is_floating_point() or index.dtype == torch.bool:
                raise ValueError
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(
                f"explain(..., target={target!r}): give an integer, a list or tensor of one integer per "
                f"row, or tuples of {count}."
            ) from None
    if index.ndim == 0:
        index = index.view(1, 1).expand(batch, 1)
    elif isinstance(target, tuple) or (index.ndim == 1 and index.numel() == 1):
        index = index.view(1, -1).expand(batch, -1)
    else:
        if len(index) != total:
            raise ValueError(f"explain(..., target=...): {len(index)} targets for {total} rows.")
        index = (index if index.ndim > 1 else index[:, None])[rows]
    if index.shape != (batch, count):
        raise ValueError(
            f"explain(..., target=...): targets of shape {tuple(index.shape)} for {batch} rows of an output with {count} "
            f"dimension(s) besides the batch. Give an integer, one per row, or tuples of {count}."
        )
    limits = sizes or (1,)
    low, high = (ends.tolist() for ends in index.aminmax(dim=0))
    if min(low) < 0 or any(most >= n for most, n in zip(high, limits, strict=True)):
        wrong = index[(index < 0) | (index >= torch.tensor(limits))]
        one = (
            ""
            if sizes.numel() > 1
            else (
                " A model with one output has only index 0, the score of the positive class; its negative is that of the other."
            )
        )
        raise ValueError(
            f"explain(..., target=...): index {wrong[0].item()} is out of range for an output of sizes {tuple(sizes)}.{one}"
        )
    return index
