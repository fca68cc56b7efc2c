"""What the user hands in, checked and brought into one form before anything runs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .._core.tolerance import all_finite
from .._extras import needs
from . import different, list_names
from .groups import Grouping
from .words import Words, tokens_of, words_of


@dataclass(frozen=True)
class Inputs:
    """The inputs as a tuple of tensors of equally many rows: numbers in floating point, codes as integers."""

    tensors: tuple[Tensor, ...]
    is_tuple: bool
    names: tuple[str, ...] | None
    tokens: tuple[tuple[str, ...], ...] | None = None
    display: Tensor | None = None  # the values in the units of the user, where the model works in others
    columns: tuple[str, ...] | None = None  # the names by which baselines and background are put in order
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # feature -> the words of its codes
    grouping: Grouping | None = None  # the features as people know them, where several numbers are one of them
    words: Words | None = None  # the words that tokens are pieces of
    schema: Any = None  # the columns as the user has described them
    notes: tuple[str, ...] = ()
    row_names: tuple[str, ...] | None = None  # the labels of the rows, where they have some
    baseline_values: Tensor | None = None  # like display: the baseline
    keywords: tuple[str, ...] = ()  # the arguments of forward that the inputs are, if they go there by name
    rows: int = field(init=False)  # how many there are

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", self.tensors[0].shape[0])


class FromRaw(NamedTuple):
    """What a model with a preprocessing step of its own makes of rows."""

    ready: np.ndarray  # what forward takes
    names: Sequence[str] | None  # of its columns
    values: Tensor | None = None  # of the features, in the units of the user
    categories: Mapping[str, tuple[str, ...]] = {}
    grouping: Grouping | None = None  # the features, where several columns are one of them
    notes: tuple[str, ...] = ()


NOTHING = FromRaw(np.empty(0), None)


def takes_raw(model: Any) -> bool:
    """The model comes with a preprocessing step of its own."""
    return hasattr(type(model), "from_raw")  # of the class: modules take long to say what they have not


def has_own_columns(model: Any) -> bool:
    """Its features are the columns before its preprocessing."""
    return takes_raw(model) and bool(getattr(model, "original_columns", False))


def prepare(
    inputs: Any,
    model: Any,
    feature_names: Sequence[str] | None = None,
    display: Any = None,
    tokenizer: Any = None,
    *,
    columns: tuple[str, ...] | None = None,
    schema: Any = None,
    words: bool = False,
    mask: Any = None,
    written: Any = None,
    call: str = "explain",
    allow_nan: bool = False,
) -> Inputs:
    """Tensors, numpy arrays or data frames, one or several, to tensors.

    ``columns`` are the features that the model was said to have: frames are put in their order. ``schema`` says more of them.
    ``feature_names`` are shown. ``words`` puts tokens together; ``mask`` says which of them count,
    ``written`` how the user spelt them.
    """
    if schema is not None:
        inputs = by_schema(inputs, schema, f"{call}(frame)", allow_nan)
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
    made = NOTHING
    if display is not None and (schema is not None or (raw and has_own_columns(model))):
        raise ValueError(f"{call}(..., display=...): values are shown as the columns that the model or its schema has.")
    if raw:
        made = model.from_raw(dense(given[0], "the input", call), names)
        given, names, display = (made.ready,), made.names, made.values if display is None else display
    tensors = []
    for place, value in enumerate(given):
        what = "the input" if len(given) == 1 else f"input {place}"
        value = frame_to_numpy(value, f"{call}(frame)") if is_frame(value) else value
        tensor = to_tensor(value, model, f"input {place}", call)
        tensors.append(check_numbers(tensor, what, call, columns if framed and not raw else None, allow_nan))
    rows = {tensor.shape[0] for tensor in tensors}
    if len(rows) > 1:
        raise ValueError(
            f"{call}(...): the inputs have different numbers of rows, {sorted(rows)}. Row i of each belongs together."
        )
    count = sum(tensor[0].numel() for tensor in tensors) if names is not None else 0
    if told is not None and not raw and len(told) != count:
        raise ValueError(
            f"{call}(...): {count} features in {len(tensors)} input(s), and CAFE(..., feature_names=...) names {len(told)}: "
            f"{list_names(told)}. Pass these columns in this order, or a frame that has them."
        )
    names = None if names is None else tuple(map(str, names))
    if names is not None and schema is None and len(names) != count:
        raise ValueError(
            f"{call}(..., feature_names=...): {len(names)} names for {count} features in {len(tensors)} input(s). Give one "
            "name per feature, input after input."
        )
    shown = None if display is None else _read_display(display, tensors, columns, f"{call}(..., display=...)")
    order = names if columns is None else columns
    about = Inputs(tuple(tensors), is_tuple, names, None, shown, order, made.categories, made.grouping, notes=made.notes)
    if tokenizer is not None:
        ids = _token_ids(tensors)
        return (
            replace(about, words=words_of(tokenizer, ids, mask, written))
            if words
            else replace(about, tokens=tokens_of(tokenizer, ids))
        )
    return about if schema is None else _describe(about, schema, f"{call}(...)")


def by_schema(inputs: Any, schema: Any, call: str, allow_nan: bool = False) -> Any:
    """A frame, or inputs by name, as the schema has them: one array, or a tuple with one for each input."""
    if is_frame(inputs):
        parts = schema.encode(inputs, call, allow_nan)
        return parts[0] if len(parts) == 1 else parts
    if isinstance(inputs, Mapping):
        if set(inputs) == set(schema.names) and all(np.ndim(value) == 0 for value in inputs.values()):  # one row
            return by_schema(needs("pandas", "tabular").DataFrame([dict(inputs)]), schema, call, allow_nan)
        if set(inputs) != set(schema.inputs):
            raise ValueError(
                f"{call}: the inputs {list_names(list(map(str, inputs)))} are not those of the schema. "
                f"Allowed names: {list_names(schema.inputs)}."
            )
        return tuple(inputs[name] for name in schema.inputs)
    return inputs


def _describe(given: Inputs, schema: Any, call: str) -> Inputs:
    """The inputs with names, words and values from the schema; blocks are one feature."""
    index, values, categories = schema.match_columns(given.tensors, call)
    names = schema.names if given.names is None else given.names
    if len(names) != len(schema.names):
        raise ValueError(f"{call[:-4]}..., feature_names=...): {len(names)} names for the columns {list_names(schema.names)}.")
    categories = {names[schema.names.index(name)]: words for name, words in categories.items()}
    if len(index) == len(names):
        return replace(given, names=names, categories=categories, schema=schema)
    elements = tuple(
        f"{column.name}={label}" if label else column.name
        for column in schema.columns
        for label in (column.labels if column.kind == "one-hot" else ("",))
    )
    return replace(given, names=elements, grouping=Grouping(index, names, values, categories), schema=schema)


def _token_ids(tensors: list[Tensor]) -> Tensor:
    if len(tensors) > 1 or tensors[0].is_floating_point() or tensors[0].ndim != 2:
        raise ValueError("explain(..., tokenizer=...): words belong to a single input of token ids, one row of ids per text.")
    return tensors[0]


def _read_display(display: Any, tensors: list[Tensor], columns: tuple[str, ...] | None, call: str) -> Tensor:
    if is_frame(display):
        if columns is not None and set(map(str, display.columns)) == set(columns):
            display = in_order(display, columns, call)
        display = frame_to_numpy(display, call)
    display = torch.as_tensor(refuse_masked(display, call))
    if len(tensors) > 1 or display.shape != tensors[0].shape:
        raise ValueError(
            f"{call}: values to show of shape {tuple(display.shape)} for inputs of shapes "
            f"{[tuple(t.shape) for t in tensors]}. Give one value per feature of a single input."
        )
    return display


def is_frame(value: Any) -> bool:
    """Something like a data frame of pandas or polars."""
    return not isinstance(value, (Tensor, np.ndarray)) and hasattr(value, "columns") and hasattr(value, "to_numpy")


def are_frames(data: Any) -> bool:
    """Several frames of equally many rows, as baselines over which scores are averaged."""
    several = isinstance(data, (tuple, list)) and bool(data) and all(map(is_frame, data))
    return several and len({len(one) for one in data}) == 1


def row_names_of(inputs: Any) -> tuple[str, ...] | None:
    """The labels of the rows of a data frame; None if there are none, or they only count the rows."""
    given = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    index = next((part.index for part in given if is_frame(part) and hasattr(part, "index")), None)
    if index is None or (index.nlevels == 1 and np.array_equal(index.to_numpy(), np.arange(len(index)))):
        return None
    return tuple(", ".join(map(str, label)) for label in index) if index.nlevels > 1 else tuple(index.astype(str))


def columns_of(frame: Any, call: str) -> tuple[str, ...]:
    """The names of its columns, all different."""
    return different(frame.columns, call)


def in_order(frame: Any, columns: tuple[str, ...], call: str) -> Any:
    """The frame with these columns in this order; it must have all of them and no other."""
    own = dict(zip(columns_of(frame, call), frame.columns, strict=True))
    if tuple(own) == columns:
        return frame
    known = set(columns)
    missing, other = [name for name in columns if name not in own], [name for name in own if name not in known]
    if missing or other:
        wrong = [f"{word} {list_names(names)}" for word, names in (("lacks", missing), ("has besides", other)) if names]
        raise ValueError(f"{call}: its columns are not the features {list_names(columns)}; it {' and '.join(wrong)}.")
    return frame[[own[name] for name in columns]]


def frame_to_numpy(frame: Any, call: str) -> np.ndarray:
    """Its numbers in float64; what is missing is NaN."""
    kinds = zip(frame.columns, (str(kind).lower() for kind in frame.dtypes), strict=True)
    odd = [str(name) for name, kind in kinds if not any(word in kind for word in ("int", "float", "bool"))]
    if odd:
        raise ValueError(f"{call}: the columns {odd} are not numbers. Encode them as the model was trained.")
    nullable = hasattr(frame, "isna")  # pandas has missing values that numpy does not know
    numbers = frame.to_numpy(dtype=np.float64, na_value=np.nan) if nullable else frame.to_numpy()
    return np.array(numbers, dtype=np.float64, order="C")  # as rows lie elsewhere: equal rows give equal bits


def refuse_masked(value: Any, call: str) -> Any:
    """Refuse numpy arrays in which entries are masked: they hold no values."""
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise ValueError(f"{call}: {int(np.sum(value.mask))} entries of the array are masked. Fill or drop them first.")
        return value.data
    return value


def model_dtype(model: Any) -> tuple[torch.dtype, torch.device]:
    """Dtype and device of the first floating point parameter or buffer, else torch's defaults."""
    if isinstance(model, nn.Module):
        for tensor in itertools.chain(model.parameters(), model.buffers()):
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
        return refuse_masked(value, f"{call}(...)")
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


def check_numbers(x: Tensor, what: str, call: str, columns: tuple[str, ...] | None = None, allow_nan: bool = False) -> Tensor:
    """Refuse what holds no numbers; ``columns`` are there if it was a frame."""
    if x.dtype == torch.bool or x.is_complex():
        raise ValueError(
            f"{call}(...): {what} has dtype {x.dtype}. Features are floating point numbers (x.float() for true and false), "
            "or integer codes that the model looks up in an embedding."
        )
    if x.ndim == 0 or x.shape[0] == 0:
        raise ValueError(f"{call}(...): {what} has shape {tuple(x.shape)}: there are no rows. Dimension 0 is the batch.")
    if not all_finite(x):
        bad = x.isinf() if allow_nan else ~x.isfinite()
        if not bad.any():
            return x
        where = tuple(bad.nonzero()[0].tolist())
        of = (
            ""
            if columns is None
            else f", in the columns {list_names([columns[i] for i in bad.any(0).nonzero()[:, 0].tolist()])}"
        )
        raise ValueError(
            f"{call}(...): {what} holds {x[where].item()} at index {where} ({int(bad.sum())} such values in all{of}). "
            "Fill or drop missing values first, or set allow_nan=True if the model handles them."
        )
    return x
