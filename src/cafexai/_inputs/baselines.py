"""What rows are compared with: baselines in any form, as one reference for each input, or several to average over."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._core.tolerance import all_finite
from .._extras import needs
from .background import WORD, Background
from .prepare import (
    Inputs,
    are_frames,
    by_schema,
    check_numbers,
    columns_of,
    dense,
    frame_to_numpy,
    has_own_columns,
    in_order,
    is_frame,
    is_plain,
    refuse_masked,
    takes_raw,
    to_tensor,
)

ZERO = "zero"  # the word for no baseline: zeros, for codes a zero embedding
TYPICAL = ("mean", "median", "mode")  # words for one row
WORDS = (*TYPICAL, WORD, ZERO)
Reference = Tensor | None  # None stands for zeros


def references(
    baselines: Any, inputs: Inputs, background: Any, model: Any, call: str = "explain"
) -> list[tuple[Reference, ...]]:
    """The reference inputs: one entry, or several to average over; None stands for zeros."""
    if baselines is None and not takes_raw(model) and inputs.schema is None:
        return [(None,) * len(inputs.tensors)]
    if isinstance(baselines, str) and baselines == WORD:
        _check_word(baselines, background, call)
        baselines = Background(background)
    if isinstance(baselines, Background):
        return _draw(baselines, inputs, model, call)
    baselines = None if isinstance(baselines, str) and baselines == ZERO else baselines
    if callable(baselines) and not isinstance(baselines, (Tensor, nn.Module)):
        baselines = baselines(inputs.tensors if inputs.is_tuple else inputs.tensors[0])
    else:
        baselines = _as_known(baselines, inputs, background, model, call)
    parts = _one_each(baselines, inputs, call)
    stacks = []
    for place, (part, x) in enumerate(zip(parts, inputs.tensors, strict=True)):
        if isinstance(part, str):
            part = _statistic(part, background, place, model, inputs.columns, call)
        elif part is not None and not isinstance(part, Tensor):
            part = _by_name(part, inputs.columns, model, f"{call}(..., baselines=frame)")
        stacks.append(_stack(part, x, call))
    count = max(len(stack) for stack in stacks)
    if any(len(stack) not in (1, count) for stack in stacks):
        raise ValueError(
            f"{call}(..., baselines=...): the inputs have stacks of {[len(s) for s in stacks]} baselines; give equally many."
        )
    return [tuple(stack[i % len(stack)] for stack in stacks) for i in range(count)]


def _draw(drawn: Background, inputs: Inputs, model: Any, call: str) -> list[tuple[Reference, ...]]:
    """Rows of the background, each as a reference for all rows."""
    places = range(len(inputs.tensors))
    parts = [background_rows(drawn.rows, place, model, inputs.columns, inputs.schema) for place in places]
    for part, x in zip(parts, inputs.tensors, strict=True):
        if part.shape[1:] != x.shape[1:] or part.is_floating_point() != x.is_floating_point():
            raise ValueError(
                f"{call}(..., baselines=Background(...)): background rows of shape {tuple(part.shape[1:])} and {part.dtype} "
                f"for rows of shape {tuple(x.shape[1:])} and {x.dtype}. Give the background in the form of the inputs."
            )
    if len({len(part) for part in parts}) > 1:
        raise ValueError(f"{call}(..., baselines=Background(...)): the inputs have different numbers of background rows.")
    return [
        tuple(part[row : row + 1].to(x).expand(x.shape) for part, x in zip(parts, inputs.tensors, strict=True))
        for row in drawn.draw(len(parts[0])).tolist()
    ]


def expand_baseline(baselines: Any, rows: Tensor, call: str) -> Tensor:
    """A number, or a tensor that can be expanded, as one baseline for each row."""
    try:
        start = torch.as_tensor(refuse_masked(baselines, f"{call}(..., baselines=...)"), device=rows.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{call}(..., baselines=...): a {type(baselines).__name__} is no baseline ({error}).") from error
    if start.is_complex() or not all_finite(start):
        raise ValueError(f"{call}(..., baselines=...): the baseline holds NaN, infinite or complex values.")
    try:
        return start.to(rows.dtype).expand(rows.shape)
    except RuntimeError:
        raise ValueError(
            f"{call}(..., baselines=...): a baseline of shape {tuple(start.shape)} does not fit rows of shape "
            f"{tuple(rows.shape)}."
        ) from None


def known_baselines(baselines: Any, background: Any, model: Any, call: str) -> Any:
    """For a model with columns of its own: a word as the row of original values that it stands for."""
    if isinstance(baselines, str) and baselines == ZERO:
        return None
    if isinstance(baselines, str):
        _check_word(baselines, background, call)
        baselines = (
            Background(background)
            if baselines == WORD
            else model.typical(baselines, dense(background, "the background", "CAFE"))
        )
    return baselines


def _as_known(baselines: Any, inputs: Inputs, background: Any, model: Any, call: str) -> Any:
    """Baselines in the columns that people know, as the model takes them; others as they are."""
    schema = inputs.schema
    if has_own_columns(model):
        baselines = known_baselines(baselines, background, model, call)
        return None if baselines is None else model.rows(baselines, f"{call}(..., baselines=...)")
    if schema is None:
        return baselines
    if isinstance(baselines, str):
        _check_word(baselines, background, call)
        places = range(len(inputs.tensors))
        return schema.typical(baselines, [background_rows(background, place, model, None, schema) for place in places])
    if hasattr(baselines, "to_frame") and hasattr(baselines, "index"):  # a series of one value per column
        baselines = baselines.to_frame().T
    if are_frames(baselines):
        encoded = [schema.encode(one, f"{call}(..., baselines=[frame, ...])") for one in baselines]
        stacks = tuple(map(np.stack, zip(*encoded, strict=True)))
        return stacks if len(stacks) > 1 else stacks[0]
    return by_schema(baselines, schema, f"{call}(..., baselines=frame)")


def typical_row(word: str, background: Any, model: Any, schema: Any, columns: tuple[str, ...] | None, call: str) -> Any:
    """The row that a word stands for, in the form of the background and in the units of the user."""
    if word not in TYPICAL:
        raise ValueError(f"{call}({word!r}): unknown value. Allowed values: {', '.join(map(repr, TYPICAL))}.")
    _check_word(word, background, call)
    if has_own_columns(model):
        return model.typical(word, dense(background, "the background", "CAFE"))
    if schema is not None:
        parts = [background_rows(background, place, model, None, schema) for place in range(len(schema.inputs))]
        _, values, words = schema.match_columns(schema.typical(word, parts), call)
        row = dict(zip(schema.names, values[0].tolist(), strict=True))
        named = {name: words[name][int(value)] if name in words else value for name, value in row.items()}
        return needs("pandas", "tabular").DataFrame([named], columns=list(named))
    if is_frame(background):
        names = columns or columns_of(background, call)
        numbers = _statistic(word, background, 0, model, names, call)
        return needs("pandas", "tabular").DataFrame(numbers.double().cpu().numpy(), columns=list(names))
    count = len(background) if isinstance(background, (tuple, list)) else 1
    rows = tuple(_statistic(word, background, place, model, columns, call) for place in range(count))
    return rows if count > 1 else rows[0]


def _check_word(word: str, background: Any, call: str) -> None:
    if word not in WORDS:
        raise ValueError(f"{call}(..., baselines={word!r}): unknown value. Allowed values: {', '.join(map(repr, WORDS))}.")
    if background is None:
        raise ValueError(f"{call}(..., baselines={word!r}): of which data? Give them: CAFE(model, background=x_train).")


def _by_name(part: Any, columns: tuple[str, ...] | None, model: Any, call: str) -> Any:
    """Data with column names, in the order of the inputs; a pipeline transforms them as it does the rows."""
    if hasattr(part, "to_frame") and hasattr(part, "index"):  # a series of one number per column
        part = part.to_frame().T
    if not is_frame(part):
        return part
    if takes_raw(model):
        return model.from_raw(part, None).ready
    return frame_to_numpy(part if columns is None else in_order(part, columns, call), call)


def _one_each(baselines: Any, inputs: Inputs, call: str) -> tuple[Any, ...]:
    if isinstance(baselines, list) and baselines and all(map(_is_number, baselines)):
        baselines = np.array(baselines, dtype=np.float64)  # one row of numbers
    if isinstance(baselines, (tuple, list)):
        if len(baselines) != len(inputs.tensors):
            raise ValueError(
                f"{call}(..., baselines=...): {len(baselines)} baselines for {len(inputs.tensors)} input(s); give one each."
            )
        return tuple(baselines)
    if len(inputs.tensors) > 1 and isinstance(baselines, (Tensor, np.ndarray)):
        raise ValueError(f"{call}(..., baselines=tensor): there are several inputs; give a tuple with one baseline for each.")
    return (baselines,) * len(inputs.tensors)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _stack(part: Any, x: Tensor, call: str) -> list[Reference]:
    if part is None:
        return [None]
    if _is_number(part):
        if part == 0 and x.is_floating_point():
            return [None]
        if not x.is_floating_point() and not isinstance(part, int):
            raise ValueError(f"{call}(..., baselines={part}): the baseline of an integer input is an integer code, or None.")
        part = torch.full((1,) * x.ndim, part, dtype=x.dtype)
    if isinstance(part, np.ndarray):
        part = torch.tensor(refuse_masked(part, f"{call}(..., baselines=...)"))
    if not isinstance(part, Tensor):
        raise ValueError(
            f"{call}(..., baselines=...): a {type(part).__name__} is no baseline. Give None (zeros), a number, a tensor "
            'shaped like the input or like one row, a callable, or "mean", "median", "mode" of CAFE(..., background=data).'
        )
    if part.is_complex() or not is_plain(part):
        raise ValueError(
            f"{call}(..., baselines=...): the baseline is a tensor of {part.dtype}, stored as {part.layout} on {part.device}. "
            "Give a dense one of real numbers."
        )
    if not x.is_floating_point() and part.is_floating_point():
        raise ValueError(f"{call}(..., baselines=...): the baseline of an integer input is an integer code, or None.")
    part = part.detach().to(x)
    if not all_finite(part):
        raise ValueError(f"{call}(..., baselines=...): the baseline holds NaN or infinite values.")
    if part.ndim == x.ndim - 1 and part.shape == x.shape[1:]:
        part = part[None]
    many = part if part.ndim == x.ndim + 1 else part[None]
    fits = many.ndim == x.ndim + 1 and all(a in (1, b) for a, b in zip(many.shape[1:], x.shape, strict=True))
    if not fits:
        raise ValueError(
            f"{call}(..., baselines=...): a baseline of shape {tuple(part.shape)} does not fit the input of shape "
            f"{tuple(x.shape)}. Give that shape, (1, {', '.join(map(str, x.shape[1:]))}), or a stack "
            "of such with one more dimension in front."
        )
    return [one.expand(x.shape) for one in many]


def _statistic(name: str, background: Any, place: int, model: Any, columns: tuple[str, ...] | None, call: str) -> Tensor:
    _check_word(name, background, call)
    data = background_rows(background, place, model, columns)
    if name == "mean":
        if not data.is_floating_point():
            raise ValueError(f'{call}(..., baselines="mean"): codes have no mean; use "mode", a code, or None.')
        return data.mean(0, keepdim=True)
    return (data.median(0) if name == "median" else data.mode(0)).values[None]


def background_rows(background: Any, place: int, model: Any, columns: tuple[str, ...] | None, schema: Any = None) -> Tensor:
    """The background of one input as a tensor; a pipeline transforms it as it does the rows."""
    if schema is not None:
        background = by_schema(background, schema, "CAFE(..., background=frame)")
    data = background[place] if isinstance(background, (tuple, list)) else background
    if takes_raw(model):
        data = model.from_raw(dense(data, "the background", "CAFE"), None).ready
    data = _by_name(data, columns, None, "CAFE(..., background=frame)")
    return check_numbers(to_tensor(data, model, "the background", "CAFE"), "the background", "CAFE")
