"""Who fights whom in one prediction."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._engine.output import select_output
from .._engine.pair_conflicts import map_pairs
from .._inputs import resolve_old_words
from .._inputs.groups import is_index, list_features
from ..explanation.conflict import counteraction
from .definitions import Question, feature_set, question


@dataclass(frozen=True)
class ConflictMap:
    """Conflict magnitudes (Definition 4) between single features; symmetric, 0 on the diagonal.

    Args:
        magnitude: (features, features), or (rows, features, features) for several rows.
        features: The positions of each feature in the row, several for a group.
        names: Names of the features.

    Example:
        >>> import torch
        >>> from cafexai import conflicts
        >>> found = conflicts.conflict_map(lambda x: x[:, 0] - x[:, 1], torch.tensor([3.0, 1.0]))
        >>> found.names
        ('x0', 'x1')
    """

    magnitude: Tensor
    features: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]

    def top(self, count: int = 10, row: int = 0) -> list[tuple[str, str, float]]:
        """The strongest pairs of one row.

        Args:
            count: How many pairs.
            row: The row, if there are several.

        Returns:
            (first, second, magnitude), the largest first.

        Example:
            >>> import torch
            >>> from cafexai import conflicts
            >>> conflicts.conflict_map(lambda x: x[:, 0] - x[:, 1], torch.tensor([3.0, 1.0])).top(1)
            [('x0', 'x1', 1.0)]
        """
        magnitude = self.magnitude if self.magnitude.ndim == 2 else self.magnitude[row]
        pairs = itertools.combinations(range(len(self.names)), 2)
        ranked = sorted(((magnitude[i, j].item(), i, j) for i, j in pairs), key=lambda entry: -entry[0])
        return [(self.names[i], self.names[j], size) for size, i, j in ranked[:count] if size > 0]

    def __str__(self) -> str:
        lines = [f"{one} against {two}: {size:.4g}" for one, two, size in self.top()]
        return "\n".join(lines) or "no two features are in conflict"


def conflict_map(
    model: Any,
    x: Any,
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
    """Pairwise input-output conflicts of rows: 1 + n + n (n - 1) / 2 evaluations per row for n features.

    Args:
        model: A function of tensors, or a ``CAFE`` explainer, which also takes frames, pipelines, codes and several inputs.
        x: A row, or several.
        baselines: What features are set to when they are removed; 0 is zero, for codes a zero embedding.
        target: Which number of the output.
        feature_names: Names of the features.
        features: Compare these features alone, by position.
        feature_groups: Compare groups of features instead: ``{"sex": [3, 4]}``.
        top: Compare so many features: those with the largest CAFE totals (c = 1). For one row.
        output: Which tensor, if the model gives several.
        **old: Parameters by their old names.

    Returns:
        The map; its ``magnitude`` has a first dimension for the rows if there are several.

    Raises:
        ValueError: The rows or options are not what the model takes.

    Example:
        >>> from cafexai import conflicts
        >>> conflicts.conflict_map(lambda x: x[:, 0] - x[:, 1], torch.tensor([3.0, 1.0])).top()
        [('x0', 'x1', 1.0)]
    """
    if not callable(model) or not (isinstance(x, Tensor) and x.is_floating_point()):
        return _of_explainer(model, x, baselines, target, features, feature_groups, top, output)
    by_old_word = {word: old.pop(word) for word in ("groups",) if word in old}
    (groups,) = resolve_old_words("conflict_map", by_old_word, feature_groups=(feature_groups, None, "groups"))
    of = question("conflict_map", model, x, baselines, target, output, feature_names, old)
    rows = of.rows
    if len(rows) != 1 and top is not None:
        raise ValueError(f"conflict_map(..., top={top}): {len(rows)} rows have different strongest features. Give features=.")
    if (features is not None) + (top is not None) + (groups is not None) > 1:
        raise ValueError("conflict_map(..., features=..., top=..., feature_groups=...): give one of them.")
    if top is not None:
        features = _strongest(of, top)
    players, labels = _players(rows[0].numel(), features, groups, of.names)
    n = len(players)
    pairs = list(itertools.combinations(range(n), 2))
    removed = torch.zeros(1 + n + len(pairs), rows[0].numel(), dtype=torch.bool, device=rows.device)
    for place, members in enumerate(players):
        removed[1 + place, list(members)] = True
    for place, (i, j) in enumerate(pairs):
        removed[1 + n + place, [*players[i], *players[j]]] = True
    values = of.without(removed).mT  # (rows, sets)
    whole, single = values[:, 0], values[:, 1 : 1 + n]
    joint = torch.zeros(len(rows), n, n, dtype=values.dtype, device=values.device)
    if pairs:
        i, j = torch.tensor(pairs, device=values.device).T
        joint[:, i, j] = joint[:, j, i] = values[:, 1 + n :]
    first = (whole[:, None] - single)[:, :, None].expand(-1, n, n)
    size = counteraction(first, single[:, :, None] - joint)
    size.diagonal(dim1=1, dim2=2).fill_(0)
    found = torch.maximum(size, size.mT)
    return ConflictMap(found[0] if len(rows) == 1 else found, players, labels)


def _of_explainer(
    model: Any, x: Any, baselines: Any, target: Any, features: Any, groups: Any, top: int | None, output: Any
) -> ConflictMap:
    """The map of inputs in any form that an explainer takes."""
    from ..cafe import CAFE

    cafe = model if isinstance(model, CAFE) else CAFE(model)
    start = "zero" if isinstance(baselines, int) and baselines == 0 else baselines
    e = cafe.explain(x, start, target=target, feature_groups=groups, output=output, conflict="net")
    names, rows = e.names(), len(e)
    if top is not None and rows > 1:
        raise ValueError(f"conflict_map(..., top={top}): {rows} rows have different strongest features. Give features=.")
    if top is not None:
        found = cafe.hidden_conflicts(e, features=top)
        return ConflictMap(found.conflict[0], tuple((names.index(name),) for name in found.names[0]), found.names[0])
    chosen = range(len(names)) if features is None else [names.index(f) if isinstance(f, str) else int(f) for f in features]
    job = dataclasses.replace(e.job, subject=cafe._subject)
    exact = map_pairs(job, e, torch.tensor(list(chosen)).expand(rows, -1)).conflict
    labels = tuple(names[place] for place in chosen)
    return ConflictMap(exact[0] if rows == 1 else exact, tuple((place,) for place in chosen), labels)


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
