"""All minimal conflicts of one row, by search.

A conflict of C and D is minimal if no smaller part of C is in conflict with a part of D, or the other way round. The
minimal conflicts are not the minimal counteractions: with contributions -1, -1, -2, 4, 3 of an active ReLU neuron {4}
minimally counteracts {-1, -1}, yet all minimal conflicts are pairs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .definitions import question

EVALUATIONS = 200_000  # sets of features that a search may try


@dataclass(frozen=True)
class Conflict:
    """Two sets of features in conflict.

    Args:
        first: Indices of the first set.
        second: Indices of the second set.
        first_counteracts: The first set counteracts the second.
        second_counteracts: The second set counteracts the first.
        magnitude: Definition 4.

    Example:
        >>> import torch
        >>> from cafexai import conflicts
        >>> found = conflicts.minimal_conflicts(lambda x: x[:, 0] - x[:, 1], torch.ones(2))
        >>> found.conflicts[0].magnitude
        1.0
    """

    first: tuple[int, ...]
    second: tuple[int, ...]
    first_counteracts: bool
    second_counteracts: bool
    magnitude: float


@dataclass(frozen=True)
class MinimalConflicts:
    """Minimal conflicts of one row, the largest first.

    Args:
        conflicts: The conflicts.
        complete: All sizes were searched; else sets of at most ``max_size`` features in all.
        max_size: The largest size that was searched.
        names: Names of the features.

    Example:
        >>> import torch
        >>> from cafexai import conflicts
        >>> print(conflicts.minimal_conflicts(lambda x: torch.relu(0.9 * x[:, 0] - x[:, 1]), torch.ones(2)))
        1 minimal conflicts (all sizes searched)
        {0} <- {1}: 0.9
    """

    conflicts: tuple[Conflict, ...]
    complete: bool
    max_size: int
    names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.conflicts)

    def __iter__(self) -> Iterator[Conflict]:
        return iter(self.conflicts)

    def __str__(self) -> str:
        def words(part: tuple[int, ...]) -> str:
            return "{" + ", ".join(str(i) if self.names is None else self.names[i] for i in part) + "}"

        arrows = {(True, True): "<->", (True, False): "->", (False, True): "<-"}
        lines = [
            f"{words(c.first)} {arrows[c.first_counteracts, c.second_counteracts]} {words(c.second)}: {c.magnitude:.4g}"
            for c in self.conflicts
        ]
        scope = "all sizes searched" if self.complete else f"searched up to {self.max_size} features in a conflict"
        return "\n".join([f"{len(lines)} minimal conflicts ({scope})", *lines])


def minimal_conflicts(
    f: Callable[[Tensor], Any],
    x: Tensor,
    baselines: Any = 0,
    target: Any = 0,
    max_size: int | None = None,
    feature_names: Sequence[str] | None = None,
    *,
    output: Any = None,
    **old: Any,
) -> MinimalConflicts:
    """Every minimal conflict of one row.

    Args:
        f: The model, a function of rows.
        x: One row.
        baselines: What the row is compared with: a number, or a tensor shaped like it.
        target: The index of the output.
        max_size: Features in both sets together, at most. None searches all sizes that take at most 200 000 evaluations (17
            features); the result says if that was not all.
        feature_names: Names of the features.
        output: Which tensor is meant, if the model gives several.
        **old: Earlier names of parameters.

    Returns:
        The conflicts.

    Raises:
        ValueError: An argument is not allowed.

    Example:
        >>> from cafexai import conflicts
        >>> found = conflicts.minimal_conflicts(lambda x: x[:, 0] - x[:, 1], torch.ones(2))
        >>> found.conflicts[0].first, found.conflicts[0].second
        ((0,), (1,))
    """
    of = question("minimal_conflicts", f, x, baselines, target, output, feature_names, old)
    rows = of.rows
    if len(rows) != 1:
        raise ValueError(f"minimal_conflicts(..., x=...): {len(rows)} rows; conflicts are those of one row.")
    row = rows.reshape(1, -1)
    start = of.baselines.reshape(1, -1)
    moved = [i for i in range(row.shape[1]) if row[0, i] != start[0, i]]  # Proposition 2: others are in no minimal conflict
    size = _affordable(len(moved)) if max_size is None else min(max_size, len(moved))
    if max_size is not None and max_size < 2:
        raise ValueError(f"minimal_conflicts(..., max_size={max_size}): a conflict has at least two features.")
    sets = [subset for k in range(size + 1) for subset in itertools.combinations(moved, k)]
    removed = torch.zeros(len(sets), row.shape[1], dtype=torch.bool, device=row.device)
    for place, subset in enumerate(sets):
        removed[place, list(subset)] = True
    values = of.without(removed)[:, 0].tolist()
    found = _search(dict(zip(map(frozenset, sets), values, strict=True)), sets)
    found.sort(key=lambda c: (-c.magnitude, c.first, c.second))
    known = None if of.names is None else tuple(map(str, of.names))
    return MinimalConflicts(tuple(found), size >= len(moved), size, known)


def _affordable(count: int) -> int:
    """The largest size of conflicts that can be searched, at least two features."""
    size = tried = 0
    while size <= count and tried + math.comb(count, size) <= EVALUATIONS:
        tried += math.comb(count, size)
        size += 1
    return max(size - 1, min(2, count))


def _search(value: dict[frozenset[int], float], sets: list[tuple[int, ...]]) -> list[Conflict]:
    """Go through all pairs of disjoint sets, small ones first; above a conflict nothing is minimal."""
    whole = value[frozenset()]
    above: set[tuple[frozenset[int], frozenset[int]]] = set()  # pairs that contain a conflict
    found = []
    for union in sets:
        if len(union) < 2:
            continue
        head, rest = union[0], union[1:]  # C holds the first feature: (C, D) and (D, C) are one conflict
        for k in range(len(rest)):
            for part in itertools.combinations(rest, k):
                C = frozenset((head, *part))
                D = frozenset(union) - C
                if _contains(C, D, above):
                    above.add((C, D))
                    continue
                joint = value[frozenset(union)]
                one, size_one = _counteracts(whole, value[C], joint)
                two, size_two = _counteracts(whole, value[D], joint)
                if one or two:
                    above.add((C, D))
                    found.append(Conflict(tuple(sorted(C)), tuple(sorted(D)), one, two, max(size_one, size_two)))
    return found


def _contains(C: frozenset[int], D: frozenset[int], above: set[tuple[frozenset[int], frozenset[int]]]) -> bool:
    """Some pair with one feature less contains a conflict."""
    for feature in C:
        smaller = C - {feature}
        if smaller and (_order(smaller, D) in above):
            return True
    return any(len(D) > 1 and _order(C, D - {feature}) in above for feature in D)


def _order(C: frozenset[int], D: frozenset[int]) -> tuple[frozenset[int], frozenset[int]]:
    return (C, D) if min(C) < min(D) else (D, C)


def _counteracts(whole: float, without_c: float, without_both: float) -> tuple[bool, float]:
    first, second = whole - without_c, without_c - without_both
    does = (first > 0 > second) or (first < 0 < second)
    return does, min(abs(first), abs(second)) if does else 0.0
