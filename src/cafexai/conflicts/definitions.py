"""Definitions 1 to 4 of the paper, for any function of rows.

Features are the elements of a row, counted from 0 in row-major order; sets of them are given by index, or by name with
``names``: one for each feature, or a dictionary of groups, ``{"sex": [3, 4]}``. Setting a feature to its reference removes it.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Names = Sequence[str] | Mapping[str, Iterable[int]] | None  # of all features, or of groups of them
CHUNK = 4096  # rows that are evaluated at a time


def counteracts(
    f: Callable[[Tensor], Tensor],
    C: Any,
    D: Any,
    x: Tensor,
    reference: Any = 0,
    output: Any = 0,
    names: Names = None,
) -> Any:
    """Definition 1: (f(x) - f(x without C)) / (f(x without C) - f(x without C and D)) < 0.

    A zero denominator is "no". True or False for a row, a tensor of them for a batch.
    """
    first, second = _changes("counteracts", f, C, D, x, reference, output, names)
    return _shaped(first * second.sign() < 0, x)


def conflicting(
    f: Callable[[Tensor], Tensor],
    C: Any,
    D: Any,
    x: Tensor,
    reference: Any = 0,
    output: Any = 0,
    names: Names = None,
) -> Any:
    """Definition 2: C counteracts D, or D counteracts C."""
    one = counteracts(f, C, D, x, reference, output, names)
    two = counteracts(f, D, C, x, reference, output, names)
    return one | two


def counteraction_magnitude(
    f: Callable[[Tensor], Tensor],
    C: Any,
    D: Any,
    x: Tensor,
    reference: Any = 0,
    output: Any = 0,
    names: Names = None,
) -> Any:
    """Definition 3: the smaller of the two changes if C counteracts D, else 0."""
    first, second = _changes("counteraction_magnitude", f, C, D, x, reference, output, names)
    size = torch.minimum(first.abs(), second.abs())
    return _shaped(torch.where(first * second.sign() < 0, size, torch.zeros_like(size)), x)


def conflict_magnitude(
    f: Callable[[Tensor], Tensor],
    C: Any,
    D: Any,
    x: Tensor,
    reference: Any = 0,
    output: Any = 0,
    names: Names = None,
) -> Any:
    """Definition 4: the larger of both counteraction magnitudes."""
    one = counteraction_magnitude(f, C, D, x, reference, output, names)
    two = counteraction_magnitude(f, D, C, x, reference, output, names)
    return torch.maximum(one, two) if isinstance(one, Tensor) else max(one, two)


def _changes(call: str, f: Any, C: Any, D: Any, x: Tensor, reference: Any, output: Any, names: Names) -> tuple[Tensor, Tensor]:
    """What C changes, and what D changes once C is removed."""
    rows = as_rows(call, x)
    count = rows[0].numel()
    one, two = (feature_set(call, part, count, names) for part in (C, D))
    if one != two and one & two:
        raise ValueError(f"{call}(f, {sorted(one)}, {sorted(two)}, ...): the sets share {sorted(one & two)}. Take them apart.")
    removed = torch.zeros(3, count, dtype=torch.bool, device=rows.device)
    removed[1, sorted(one)] = True
    removed[2, sorted(one | two)] = True
    values = without(call, f, rows, reference, removed, output)
    return values[0] - values[1], values[1] - values[2]


def as_rows(call: str, x: Any) -> Tensor:
    """A batch of rows: a row alone has one dimension."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim == 0 or not x.numel():
        raise ValueError(f"{call}(..., x=...): give a row (features,) or a batch (rows, ...) of floating point numbers.")
    return x.detach()[None] if x.ndim == 1 else x.detach()


def feature_set(call: str, part: Any, count: int, names: Names) -> frozenset[int]:
    """A set of features given by one index or name, or by several."""
    members: Iterable[Any] = [part] if isinstance(part, (str, numbers.Integral)) else part
    found: set[int] = set()
    for member in members:
        if isinstance(member, str):
            if names is None or member not in names:
                known = "no names are given" if names is None else f"the names are {', '.join(names)}"
                raise ValueError(f"{call}(...): there is no feature {member!r}; {known}.")
            if isinstance(names, Mapping):
                found |= feature_set(call, list(names[member]), count, None)
                continue
            member = list(names).index(member)
        if not isinstance(member, numbers.Integral) or not 0 <= int(member) < count:
            raise ValueError(f"{call}(...): there is no feature {member!r} among {count}, counted from 0.")
        found.add(int(member))
    if not found:
        raise ValueError(f"{call}(...): a set of features is empty. An empty set counteracts nothing.")
    return frozenset(found)


def without(call: str, f: Callable[[Tensor], Tensor], rows: Tensor, reference: Any, removed: Tensor, output: Any) -> Tensor:
    """f of every row with each set of features removed. ``removed`` (sets, features) -> (sets, rows)."""
    baseline = torch.as_tensor(reference, dtype=rows.dtype, device=rows.device)
    try:
        baseline = baseline.expand(rows.shape)
    except RuntimeError:
        raise ValueError(
            f"{call}(..., reference=...): a reference of shape {tuple(baseline.shape)} does not fit rows of shape "
            f"{tuple(rows.shape)}."
        ) from None
    count, features = len(rows), removed.shape[1]
    flat, base = rows.reshape(count, features), baseline.reshape(count, features)
    values = []
    step = max(1, CHUNK // count)
    with torch.no_grad():
        for start in range(0, len(removed), step):
            masks = removed[start : start + step]
            inputs = torch.where(masks[:, None], base, flat).reshape(-1, *rows.shape[1:])
            values.append(_selected(call, f(inputs), output, len(inputs)).view(len(masks), count))
    return torch.cat(values)


def _selected(call: str, result: Tensor, output: Any, rows: int) -> Tensor:
    if not isinstance(result, Tensor) or result.ndim == 0 or len(result) != rows:
        shape = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise ValueError(f"{call}(f, ...): f gives {shape} for {rows} rows. It must give one entry per row.")
    if result.ndim == 1:
        return result.detach()
    index = (output,) if isinstance(output, numbers.Integral) else tuple(output)
    try:
        chosen = result.permute(*range(1, result.ndim), 0)[index]
    except IndexError:
        chosen = result
    if chosen.ndim != 1:
        raise ValueError(f"{call}(..., output={output!r}): f gives {tuple(result.shape[1:])} outputs per row; choose one.")
    return chosen.detach()


def _shaped(values: Tensor, x: Tensor) -> Any:
    return values[0].item() if x.ndim == 1 else values
