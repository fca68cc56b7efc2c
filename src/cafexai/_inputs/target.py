"""Which number of the output is meant: an index for all rows, one per row, tuples for outputs of more dimensions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .prepare import refuse_masked

OTHERS = torch.iinfo(torch.long).min  # as an index: the mean of all other outputs


def is_others(against: Any, names: Sequence[str] = ()) -> bool:
    """Whether the mean of all other outputs is meant: the word "others", if no class is called so, or its index."""
    if isinstance(against, Tensor):
        return against.numel() > 0 and bool((against == OTHERS).all())
    return isinstance(against, str) and against == "others" and against not in names


def other_outputs(output: Tensor, target: Tensor, call: str = "explain", text: bool = False) -> Tensor:
    """The index of all outputs but the target of each row, (rows, classes - 1); of a text, of all tokens at its position."""
    if output.ndim != 2 + text or output.shape[-1] < 2:
        raise ValueError(
            f'{call}(..., against="others"): the output of shape {tuple(output.shape)} is not one of several classes, (rows, '
            "classes). Give a single output, or pick a part with output=."
        )
    places = torch.arange(output.shape[-1] - 1).expand(len(output), -1)
    return places + (places >= target[:, -1:]).long()


def choose_target(
    output: Tensor, target: Any, rows: slice, total: int, call: str = "explain", names: Sequence[str] = ()
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """How to pick one number per row from the output, and the picked index, (rows, dimensions of the output).

    ``rows``: the rows of this batch, of ``total`` in all; targets given row by row are for all of them. ``names``: of the
    outputs, by which targets may be called.
    """
    batch = output.shape[0]
    sizes = output.shape[1:]
    target = target if type(target) is int else class_index(target, names, sizes, call)
    if len(sizes) == 1 and (only := _one_integer(target)) is not None and 0 <= only < sizes[0]:
        return operator.itemgetter((slice(None), only)), torch.full((batch, 1), only)
    if target is None:
        if sizes.numel() == 1:
            return lambda v: v.reshape(batch), torch.zeros(batch, len(sizes), dtype=torch.long)
        if len(sizes) != 1:
            raise ValueError(
                f"{call}(..., target=None): the output has shape {tuple(output.shape)}, so there is no single "
                "predicted class. "
                f"Give target as a tuple of {len(sizes)} indices; for the next token of a language model, "
                "target=-1 (the predicted one) or target=(-1, token id), or explain a text that it writes: "
                "cafe.generation(prompt)."
            )
        index = output.argmax(1, keepdim=True).cpu()
    else:
        index = _target_index(target, rows, total, batch, sizes, call)
    if not sizes:
        return lambda v: v, index
    if batch == 1:
        return operator.itemgetter((slice(None), *index[0].tolist())), index
    picks = tuple(index.to(output.device).unbind(1))
    return operator.itemgetter((torch.arange(batch, device=output.device), *picks)), index


def pick_outputs(outputs: Tensor, target: Tensor, against: Tensor | None = None) -> Tensor:
    """The explained outputs of (rows, *output, ...), minus those that they are held against.

    ``target`` is an index (rows, dimensions). ``against`` is such an index, or several side by side, whose mean is taken.
    """
    rows = torch.arange(len(outputs), device=outputs.device)

    def pick(index: Tensor) -> Tensor:
        place = (rows, *index.to(outputs.device).unbind(1)[: outputs.ndim - 1])
        return outputs[place]

    one = pick(target)
    if against is None:
        return one
    if is_others(against):
        places = (rows, *target.to(outputs.device).unbind(1)[:-1])
        here = outputs[places]
        return one - (here.sum(1) - one) / (here.shape[1] - 1)
    several = split_index(against, target.shape[1])
    return one - (pick(several[0]) if len(several) == 1 else torch.stack([pick(index) for index in several]).mean(0))


def split_index(index: Tensor, dimensions: int) -> list[Tensor]:
    """The indices of several outputs that stand side by side."""
    return list(index.split(dimensions, 1)) if dimensions else [index]


def names_of_outputs(names: Sequence[str], sizes: torch.Size, call: str = "explain") -> tuple[str, ...] | None:
    """One name for each output; of two classes with a single output, which is the logit of the second, that one."""
    if not names or len(sizes) > 1:
        return None
    if len(names) == sizes.numel():
        return tuple(names)
    if len(names) == 2 and sizes.numel() == 1:
        return (names[1],)
    raise ValueError(
        f"{call}(...): {len(names)} class names, {', '.join(map(repr, names[:20]))}, for {sizes.numel()} output(s) of the "
        "model. Give one for each, or two for a single logit."
    )


def class_index(target: Any, names: Sequence[str], sizes: torch.Size, call: str) -> Any:
    """Classes that are called by name, as indices."""
    if not isinstance(target, str):
        listed = list(target) if (isinstance(target, np.ndarray) and target.ndim) or hasattr(target, "to_list") else target
        words = isinstance(listed, list) and any(isinstance(one, str) for one in listed)
        return [class_index(one, names, sizes, call) for one in listed] if words else target
    outputs = names_of_outputs(names, sizes, call) or ()
    if target in outputs:
        return outputs.index(target)
    if target in names:
        raise ValueError(
            f"{call}(..., target={target!r}): the model has one output, the logit of {names[1]!r}; the scores of {target!r} "
            "are the same with positive and negative exchanged."
        )
    known = (
        f"The classes are {', '.join(map(repr, names[:20]))}."
        if names
        else "Name the classes, CAFE(..., class_names=[...]), or give an integer."
    )
    raise ValueError(f"{call}(..., target={target!r}): there is no such class. {known}")


def _one_integer(target: Any) -> int | None:
    """The target of all rows, if it is a single number."""
    if type(target) is int:
        return target
    if type(target) is Tensor and target.ndim < 2 and target.numel() == 1 and target.dtype is torch.long:
        return int(target.item())
    return None


def _target_index(target: Any, rows: slice, total: int, batch: int, sizes: torch.Size, call: str) -> Tensor:
    """Targets as (batch, dimensions of the output). An index for all rows, one per row, or tuples of either."""
    count = max(len(sizes), 1)
    index = _integers(target, count, call)
    if isinstance(target, tuple) and index.ndim == 2:  # one column for each dimension, with one index per row
        index = index.mT
    if index.ndim == 0:
        index = index.view(1, 1).expand(batch, 1)
    elif (isinstance(target, tuple) and index.ndim == 1) or (index.ndim == 1 and index.numel() == 1):
        index = index.view(1, -1).expand(batch, -1)
    else:
        if len(index) != total:
            raise ValueError(f"{call}(..., target=...): {len(index)} targets for {total} rows.")
        index = (index if index.ndim > 1 else index[:, None])[rows]
    if index.shape != (batch, count):
        raise ValueError(
            f"{call}(..., target=...): targets of shape {tuple(index.shape)} for {batch} rows of an output with {count} "
            f"dimension(s) besides the batch. Give an integer, one per row, or tuples of {count}."
        )
    limits = sizes or (1,)
    index = torch.where(index < 0, index + torch.tensor(limits), index)  # from the end, as in Python
    low, high = (ends.tolist() for ends in index.aminmax(dim=0))
    if min(low) < 0 or any(most >= n for most, n in zip(high, limits, strict=True)):
        wrong = index[(index < 0) | (index >= torch.tensor(limits))]
        one = " A model with one output has only index 0, the score of the positive class; its negative is that of the other."
        raise ValueError(
            f"{call}(..., target=...): index {wrong[0].item()} is out of range for an output of sizes {tuple(sizes)}."
            + (one if sizes.numel() == 1 else "")
        )
    return index


def _holds_truth(target: Any) -> bool:
    """Some entry is true or false."""
    return any(_holds_truth(entry) if isinstance(entry, (list, tuple)) else isinstance(entry, bool) for entry in target)


def _integers(target: Any, count: int, call: str) -> Tensor:
    """The target as a tensor; a tuple of one column per dimension has these as its rows."""
    if isinstance(target, (np.ndarray, np.integer)):
        target = torch.as_tensor(refuse_masked(target, f"{call}(..., target=...)"))
    if isinstance(target, (list, tuple)) and _holds_truth(target):
        raise ValueError(f"{call}(..., target={target}): targets are integers, not true and false.")
    try:
        if isinstance(target, tuple):
            parts = torch.broadcast_tensors(*(_integers(part, count, call) for part in target))
            return torch.stack(parts)
        index = target.detach().cpu() if isinstance(target, Tensor) else torch.tensor(target)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"{call}(..., target={target!r}): give an integer, a list or tensor of one integer per row, or tuples of {count}."
        ) from None
    if index.is_floating_point() or index.dtype == torch.bool:
        raise ValueError(f"{call}(..., target=...): targets are integers, not {index.dtype}; give an integer, or one per row.")
    return index.long()
