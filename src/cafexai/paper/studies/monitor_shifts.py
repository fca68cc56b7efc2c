"""Shifts of a table whose kind is known, for the study of the monitor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """Rows to shift: inputs, labels, the columns of each feature, and features by importance, the most important first."""

    x: Tensor
    y: Tensor
    features: tuple[tuple[int, ...], ...]
    important: tuple[int, ...]
    pair: tuple[int, int]  # the two numbers that are correlated most
    random: torch.Generator

    def shuffle(self, x: Tensor, columns: list[int], share: float = 1.0) -> None:
        """Give these columns, together, the values of other rows in a share of the rows."""
        rows = torch.randperm(len(x), generator=self.random)[: round(share * len(x))]
        order = rows[torch.randperm(len(rows), generator=self.random)]
        x[rows[:, None], columns] = x[order[:, None], columns]

    @property
    def number(self) -> int:
        """The column of the most important feature that is a number."""
        return next(self.features[place][0] for place in self.important if len(self.features[place]) == 1 and self._many(place))

    def _many(self, place: int) -> bool:
        return len(self.x[:, self.features[place][0]].unique()) > 10


Shift = Callable[[Rows], Tensor]


def decorrelate(share: float) -> Shift:
    """One of two correlated columns has the values of other rows."""

    def shift(rows: Rows) -> Tensor:
        x = rows.x.clone()
        rows.shuffle(x, [rows.pair[1]], share)
        return x

    return shift


def half(rows: Rows) -> Tensor:
    """Half of the features have the values of other rows, together."""
    x = rows.x.clone()
    rows.shuffle(x, [column for feature in rows.features[::2] for column in feature])
    return x


def unimportant(rows: Rows) -> Tensor:
    """The four least important features have the values of other rows, each by itself."""
    x = rows.x.clone()
    for place in rows.important[-4:]:
        rows.shuffle(x, list(rows.features[place]))
    return x


def lost(rows: Rows) -> Tensor:
    """The most important feature is 0 in all rows."""
    x = rows.x.clone()
    x[:, list(rows.features[rows.important[0]])] = 0.0
    return x


def frozen(rows: Rows) -> Tensor:
    """An important number has its median in all rows."""
    x = rows.x.clone()
    x[:, rows.number] = x[:, rows.number].median()
    return x


def noisy(rows: Rows) -> Tensor:
    """An important number has noise of its own size."""
    x = rows.x.clone()
    noise = torch.randn(len(x), generator=rows.random, dtype=x.dtype)
    x[:, rows.number] += noise * x[:, rows.number].std()
    return x


def imputed(rows: Rows) -> Tensor:
    """Half of the values of an important number are replaced by its median."""
    x = rows.x.clone()
    chosen = torch.rand(len(x), generator=rows.random) < 0.5
    x[chosen, rows.number] = x[:, rows.number].median()
    return x


def subgroup(rows: Rows) -> Tensor:
    """Only rows in which an important number is above its median."""
    kept = rows.x[rows.x[:, rows.number] > rows.x[:, rows.number].median()]
    return kept[torch.arange(len(rows.x)) % len(kept)]


def covariate(rows: Rows) -> Tensor:
    """An important number grows by half a standard deviation."""
    x = rows.x.clone()
    x[:, rows.number] += 0.5 * x[:, rows.number].std()
    return x


def prior(rows: Rows) -> Tensor:
    """Nine of ten rows have the same label."""
    one = rows.y == rows.y.max()
    many, few = (rows.x[kind][torch.randperm(int(kind.sum()), generator=rows.random)] for kind in (one, ~one))
    count = min(len(many), 9 * len(few))
    return torch.cat([many[:count], few[: max(1, count // 9)]])


def new_category(rows: Rows) -> Tensor:
    """A tenth of the rows has a value that a feature with few values never had."""
    x = rows.x.clone()
    columns = [feature[0] for feature in rows.features if len(rows.x[:, feature[0]].unique()) <= 10]
    chosen = torch.rand(len(x), generator=rows.random) < 0.1
    x[chosen, columns[0]] = x[:, columns[0]].max() + 1.0
    return x


STRENGTHS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)  # shares of rows in which a pair of columns is decorrelated
SHIFTS: Mapping[str, Shift] = {
    **{f"pair {strength:g}": decorrelate(strength) for strength in STRENGTHS},
    "half of the columns": half,
    "least important": unimportant,
    "lost": lost,
    "frozen": frozen,
    "noisy": noisy,
    "imputed": imputed,
    "subgroup": subgroup,
    "covariate": covariate,
    "prior": prior,
    "new category": new_category,
}
KINDS = {  # what the verdict should be, for shifts at full strength
    "pair 1": "correlation shift",
    "lost": "missing or frozen column",
    "frozen": "missing or frozen column",
    "covariate": "covariate shift",
    "new category": "new values",
}
UNPAIRED = ("subgroup", "prior")  # rows are other rows: their labels are not those of the clean ones
