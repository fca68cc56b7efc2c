"""Who fights whom in one prediction."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._engine.output import select_output
from .._inputs import resolve_old_words
from .._inputs.groups import is_index, list_features
from .definitions import Question, feature_set, question


@dataclass(frozen=True)
class ConflictMap:
    """Conflict magnitudes (Definition 4) between single features of one row; symmetric, 0 on the diagonal.

    Args:
        magnitude: (features, features).
        features: The positions of each feature in the row, several for a group.
        names: Names of the features.
    """

    magnitude: Tensor
    features: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]

    def top(self, count: int = 10) -> list[tuple[str, str, float]]:
        """The strongest pairs.

        Args:
            count: How many pairs.

        Returns:
            (first, second, magnitude), the largest first.
        """
        pairs = itertools.combinations(range(len(self.names)), 2)
        ranked = sorted(((self.magnitude[i, j].item(), i, j) for i, j in pairs), key=lambda entry: -entry[0])
        return [(self.names[i], self.names[j], size) for size, i, j in ranked[:count] if size > 0]

    def __str__(self) -> str:
        lines = [f"{one} against {two}: {size:.4g}" for one, two, size in self.top()]
        return "\n".join(lines) or "no two features are in conflict"


def conflict_map(
    model: Callable[[Tensor], Any],
    x: Tensor,
    baselines: Any = 0,
    target: Any = 0,
    feature_names: Sequence[str] | None = None,
    features: Sequence[int] | None = None,
    feature_groups: Mapping[str, Sequence[int]] | None = None,
    top: int | None = None,
    *,
    output: Any = None,
    **old: Any,
) -> ConflictMap:
    """Conflicts between pairs of features of one row, measured at the output: 1 + n + n (n - 1) / 2 evaluations for n features.

    Args:
        model: The model, a function of rows.
        x: One row.
        baselines: What the row is compared with: a number, or a tensor shaped like it.
        target: The index of the output.
        feature_names: Names of the features.
        features: Indices of the features that are compared; None takes all.
        feature_groups: Compare groups of features instead: ``{"sex": [3, 4]}``.
        top: For many features: take so many of those with the largest CAFE totals (c = 1).
        output: Which tensor is meant, if the model gives several.
        **old: Earlier names of parameters.

    Returns:
        The map.

    Raises:
        ValueError: An argument is not allowed.

    Example:
        >>> from cafexai import conflicts
        >>> conflicts.conflict_map(lambda x: x[:, 0] - x[:, 1], torch.ones(2)).magnitude
        tensor([[0., 1.],
                [1., 0.]])
    """
    by_old_word = {word: old.pop(word) for word in ("groups",) if word in old}
    (groups,) = resolve_old_words("conflict_map", by_old_word, feature_groups=(feature_groups, None, "groups"))
    of = question("conflict_map", model, x, baselines, target, output, feature_names, old)
    rows = of.rows
    if len(rows) != 1:
        raise ValueError(f"conflict_map(..., x=...): {len(rows)} rows; a map is that of one prediction.")
    if (features is not None) + (top is not None) + (groups is not None) > 1:
        raise ValueError("conflict_map(..., features=..., top=..., feature_groups=...): give one of them.")
    if top is not None:
        features = _strongest(of, top)
    players, labels = _players(rows.numel(), features, groups, of.names)
    n = len(players)
    pairs = list(itertools.combinations(range(n), 2))
    removed = torch.zeros(1 + n + len(pairs), rows.numel(), dtype=torch.bool, device=rows.device)
    for place, members in enumerate(players):
        removed[1 + place, list(members)] = True
    for place, (i, j) in enumerate(pairs):
        removed[1 + n + place, [*players[i], *players[j]]] = True
    values = of.without(removed)[:, 0]
    whole, single = values[0], values[1 : 1 + n]
    joint = torch.zeros(n, n, dtype=values.dtype, device=values.device)
    if pairs:
        i, j = torch.tensor(pairs, device=values.device).T
        joint[i, j] = joint[j, i] = values[1 + n :]
    first = (whole - single)[:, None].expand(n, n)
    second = single[:, None] - joint
    size = torch.where(first * second.sign() < 0, torch.minimum(first.abs(), second.abs()), torch.zeros_like(second))
    size.fill_diagonal_(0)
    return ConflictMap(torch.maximum(size, size.T), players, labels)


def _players(
    count: int, features: Sequence[int] | None, groups: Mapping[str, Sequence[int]] | None, names: Any
) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """The sets of features that are compared, and what they are called."""
    if names is not None and len(names) != count:
        raise ValueError(f"conflict_map(..., feature_names=...): {len(names)} names for {count} features.")
    if groups is not None:
        sets = tuple(tuple(sorted(feature_set("conflict_map", part, count, names))) for part in groups.values())
        if sum(map(len, sets)) > len({i for members in sets for i in members}):
            raise ValueError("conflict_map(..., feature_groups=...): a feature is in more than one group.")
        return sets, tuple(groups)
    places = range(count) if features is None else list_features(features, count)
    if len(set(places)) < len(places) or any(not is_index(i) or not 0 <= i < count for i in places):
        raise ValueError(f"conflict_map(..., features={list(places)}): give different places among {count}, counted from 0.")
    return tuple((i,) for i in places), tuple(f"x{i}" if names is None else str(names[i]) for i in places)


def _strongest(of: Question, top: int) -> list[int]:
    """The features with the largest totals."""
    from ..cafe import CAFE

    target = (of.target,) if isinstance(of.target, int) else of.target
    single = select_output(of.f(of.rows), of.output).ndim == 1
    e = CAFE.published(of.f, 1.0).explain(of.rows, of.baselines, target=None if single else target, output=of.output)
    total = e.flat(e.positive)[0] + e.flat(e.negative)[0]
    return sorted(total.topk(min(top, len(total))).indices.tolist())
