"""What the user hands in, checked and brought into one form before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._scores.numbers import all_finite


@dataclass(frozen=True)
class Inputs:
    """The inputs as a tuple of tensors of equally many rows: numbers in floating point, codes as integers."""

    tensors: tuple[Tensor, ...]
    is_tuple: bool
    names: tuple[str, ...] | None
    tokens: tuple[tuple[str, ...], ...] | None = None
    display: Tensor | None = None  # the values in the units of the user, where the model works in others
    rows: int = field(init=False)  # how many there are

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", self.tensors[0].shape[0])


def takes_raw(model: Any) -> bool:
    """The model comes with a preprocessing step of its own."""
    return hasattr(type(model), "from_raw")  # of the class: modules take long to say what they have not


def prepare(
    inputs: Any, model: Any, feature_names: Sequence[str] | None = None, display: Any = None, tokenizer: Any = None
) -> Inputs:
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
        if not isinstance(value, Tensor) and is_frame(value):
            if len(given) == 1 and names is None:
                names = tuple(map(str, value.columns))
            value = frame_to_numpy(value)
        tensors.append(checked(to_tensor(value, model, place), place, len(given)))
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
    if is_frame(display):
        display = frame_to_numpy(display)
    display = torch.as_tensor(display)
    if len(tensors) > 1 or display.shape != tensors[0].shape:
        raise ValueError(
            f"explain(..., display=...): values to show of shape {tuple(display.shape)} for inputs of shapes "
            f"{[tuple(t.shape) for t in tensors]}. Give one value per feature of a single input."
        )
    return display


def is_frame(value: Any) -> bool:
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def frame_to_numpy(frame: Any) -> np.ndarray:
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


def to_tensor(value: Any, model: Any, place: int) -> Tensor:
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


def checked(x: Tensor, place: int, count: int) -> Tensor:
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
