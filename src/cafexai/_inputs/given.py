"""What the user hands in, checked and brought into one form before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
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
    columns: tuple[str, ...] | None = None  # the names by which baselines and background are put in order
    rows: int = field(init=False)  # how many there are

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", self.tensors[0].shape[0])


def takes_raw(model: Any) -> bool:
    """The model comes with a preprocessing step of its own."""
    return hasattr(type(model), "from_raw")  # of the class: modules take long to say what they have not


def prepare(
    inputs: Any,
    model: Any,
    feature_names: Sequence[str] | None = None,
    display: Any = None,
    tokenizer: Any = None,
    *,
    columns: tuple[str, ...] | None = None,
    call: str = "explain",
) -> Inputs:
    """Tensors, numpy arrays or data frames, one or several, to tensors.

    ``columns`` are the features that the model was said to have: frames are put in their order. ``feature_names`` are shown.
    """
    is_tuple = isinstance(inputs, (tuple, list))
    given = tuple(inputs) if is_tuple else (inputs,)
    if not given:
        raise ValueError(f"{call}(()): there is no input. Pass a tensor, or a tuple of tensors.")
    told, framed = columns, len(given) == 1 and is_frame(given[0])
    if framed:
        columns = columns_of(given[0], f"{call}(frame)") if told is None else told
        given = (in_order(given[0], columns, f"{call}(frame)"),)
    raw = takes_raw(model) and not is_tuple
    names = columns if feature_names is None and not (raw and framed) else feature_names
    if raw:
        ready, original, names = model.from_raw(dense(given[0], "the input", call), names)
        given, display = (ready,), original if display is None else display
    tensors = []
    for place, value in enumerate(given):
        what = "the input" if len(given) == 1 else f"input {place}"
        value = frame_to_numpy(value, f"{call}(frame)") if is_frame(value) else value
        tensor = to_tensor(value, model, f"input {place}", call)
        tensors.append(checked(tensor, what, call, columns if framed and not raw else None))
    rows = {tensor.shape[0] for tensor in tensors}
    if len(rows) > 1:
        raise ValueError(
            f"{call}(...): the inputs have different numbers of rows, {sorted(rows)}. Row i of each belongs together."
        )
    count = sum(tensor[0].numel() for tensor in tensors) if names is not None else 0
    if told is not None and not raw and (len(tensors) > 1 or len(told) != count):
        raise ValueError(
            f"{call}(...): {count} features in {len(tensors)} input(s), and CAFE(..., feature_names=...) names {len(told)} of "
            f"a single one: {_listed(told)}. Pass these columns in this order, or a frame that has them."
        )
    names = None if names is None else tuple(map(str, names))
    if names is not None and (len(tensors) > 1 or len(names) != count):
        raise ValueError(
            f"{call}(..., feature_names=...): {len(names)} names for {count} features in {len(tensors)} input(s). Give one "
            "name per feature of a single input."
        )
    tokens = None if tokenizer is None else _words(tokenizer, tensors)
    shown = None if display is None else _displayed(display, tensors, columns, f"{call}(..., display=...)")
    return Inputs(tuple(tensors), is_tuple, names, tokens, shown, names if columns is None else columns)


def _words(tokenizer: Any, tensors: list[Tensor]) -> tuple[tuple[str, ...], ...]:
    if len(tensors) > 1 or tensors[0].is_floating_point() or tensors[0].ndim != 2:
        raise ValueError("explain(..., tokenizer=...): words belong to a single input of token ids, one row of ids per text.")
    return tuple(tuple(map(str, tokenizer.convert_ids_to_tokens(row))) for row in tensors[0].tolist())


def _displayed(display: Any, tensors: list[Tensor], columns: tuple[str, ...] | None, call: str) -> Tensor:
    if is_frame(display):
        if columns is not None and set(map(str, display.columns)) == set(columns):
            display = in_order(display, columns, call)
        display = frame_to_numpy(display, call)
    display = torch.as_tensor(unmasked(display, call))
    if len(tensors) > 1 or display.shape != tensors[0].shape:
        raise ValueError(
            f"{call}: values to show of shape {tuple(display.shape)} for inputs of shapes "
            f"{[tuple(t.shape) for t in tensors]}. Give one value per feature of a single input."
        )
    return display


def is_frame(value: Any) -> bool:
    """Something like a data frame of pandas or polars."""
    return not isinstance(value, (Tensor, np.ndarray)) and hasattr(value, "columns") and hasattr(value, "to_numpy")


def columns_of(frame: Any, call: str) -> tuple[str, ...]:
    """The names of its columns, all different."""
    return different(frame.columns, call)


def different(names: Iterable[Any], call: str) -> tuple[str, ...]:
    """Names of features; refused if one of them stands for several."""
    words = tuple(map(str, names))
    if len(set(words)) < len(words):
        twice = [word for word, count in Counter(words).items() if count > 1]
        raise ValueError(f"{call}: more than one feature is called {_listed(twice)}. Give every feature a name of its own.")
    return words


def in_order(frame: Any, columns: tuple[str, ...], call: str) -> Any:
    """The frame with these columns in this order; it must have all of them and no other."""
    own = dict(zip(columns_of(frame, call), frame.columns, strict=True))
    if tuple(own) == columns:
        return frame
    known = set(columns)
    missing, other = [name for name in columns if name not in own], [name for name in own if name not in known]
    if missing or other:
        wrong = [f"{word} {_listed(names)}" for word, names in (("lacks", missing), ("has besides", other)) if names]
        raise ValueError(f"{call}: its columns are not the features {_listed(columns)}; it {' and '.join(wrong)}.")
    return frame[[own[name] for name in columns]]


def _listed(names: Sequence[str], most: int = 20) -> str:
    return ", ".join(map(repr, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def frame_to_numpy(frame: Any, call: str) -> np.ndarray:
    """Its numbers in float64; what is missing is NaN."""
    kinds = zip(frame.columns, (str(kind).lower() for kind in frame.dtypes), strict=True)
    odd = [str(name) for name, kind in kinds if not any(word in kind for word in ("int", "float", "bool"))]
    if odd:
        raise ValueError(f"{call}: the columns {odd} are not numbers. Encode them as the model was trained.")
    nullable = hasattr(frame, "isna")  # pandas has missing values that numpy does not know
    numbers = frame.to_numpy(dtype=np.float64, na_value=np.nan) if nullable else frame.to_numpy()
    return np.array(numbers, dtype=np.float64, order="C")  # as rows lie elsewhere: equal rows give equal bits


def unmasked(value: Any, call: str) -> Any:
    """Refuse numpy arrays in which entries are masked: they hold no values."""
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise ValueError(f"{call}: {int(np.sum(value.mask))} entries of the array are masked. Fill or drop them first.")
        return value.data
    return value


def model_dtype(model: Any) -> tuple[torch.dtype, torch.device]:
    """Dtype and device of the first floating point parameter or buffer, else torch's defaults."""
    if isinstance(model, nn.Module):
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                return tensor.dtype, tensor.device
    return torch.get_default_dtype(), torch.device("cpu")


def to_tensor(value: Any, model: Any, what: str, call: str) -> Tensor:
    value = dense(value, what, call)
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, np.ndarray):
        if np.issubdtype(value.dtype, np.integer):
            return torch.tensor(value, device=model_dtype(model)[1], dtype=torch.long)
        if not np.issubdtype(value.dtype, np.floating):
            raise ValueError(f"{call}(...): {what} is an array of {value.dtype}. Features are floats, or integer codes.")
        dtype, device = model_dtype(model)
        return torch.tensor(value, device=device, dtype=dtype)
    raise ValueError(
        f"{call}(...): {what} is a {type(value).__name__}. Pass a tensor, a numpy array or a data frame, "
        "or a tuple of these; other arguments of forward go into additional_forward_args."
    )


def is_plain(value: Tensor) -> bool:
    """A dense tensor with numbers in it."""
    return value.layout is torch.strided and not (value.is_nested or value.is_meta or value.is_quantized)


def dense(value: Any, what: str, call: str) -> Any:
    """Refuse tensors and arrays that do not hold a number at every place."""
    if not isinstance(value, Tensor):
        return unmasked(value, f"{call}(...)")
    if is_plain(value):
        return value
    kind, remedy = f"is stored as {value.layout}", "x.to_dense()"
    if value.is_nested:
        kind, remedy = "is a nested tensor", "torch.nested.to_padded_tensor(x, 0.0), with the mask of the model"
    elif value.is_meta:
        kind, remedy = "is on the device meta and holds no numbers", "a tensor on the device of the model"
    elif value.is_quantized:
        kind, remedy = "is quantised", "x.dequantize()"
    raise ValueError(f"{call}(...): {what} {kind}. Pass a dense tensor of numbers: {remedy}.")


def checked(x: Tensor, what: str, call: str, columns: tuple[str, ...] | None = None) -> Tensor:
    """Refuse what holds no numbers; ``columns`` are there if it was a frame."""
    if x.dtype == torch.bool or x.is_complex():
        raise ValueError(
            f"{call}(...): {what} has dtype {x.dtype}. Features are floating point numbers (x.float() for true and false), "
            "or integer codes that the model looks up in an embedding."
        )
    if x.ndim == 0 or x.shape[0] == 0:
        raise ValueError(f"{call}(...): {what} has shape {tuple(x.shape)}: there are no rows. Dimension 0 is the batch.")
    if not all_finite(x):
        bad = ~x.isfinite()
        where = tuple(bad.nonzero()[0].tolist())
        of = "" if columns is None else f", in the columns {_listed([columns[i] for i in bad.any(0).nonzero()[:, 0].tolist()])}"
        raise ValueError(
            f"{call}(...): {what} holds {x[where].item()} at index {where} ({int(bad.sum())} such values in all{of}). "
            "Fill or drop missing values first."
        )
    return x
