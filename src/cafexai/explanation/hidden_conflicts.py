"""Hidden conflicts: pairs of features of which single removals do not show that they cancel each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from .features import find_row

if TYPE_CHECKING:
    from ..plotting.picture import Picture

ROUNDING = 1e-5  # of the largest conflict or effect of a row: less than that is not shown
TOLD = 0.5  # of the largest effect, conflict or change of the output of a row: less is not told in sentences
SMALL = 0.25  # of what a feature does without its opponent: by itself it then seems not to matter
NONE_HIDDEN = "No large conflict is hidden."


class HiddenPair(NamedTuple):
    """Two features, of which ``second`` hides ``first``."""

    first: str
    second: str
    hidden: float  # conflict that single removals do not show
    alone: float  # what ``first`` does as things are
    without: float  # what ``first`` does once ``second`` is at its baseline


class FightingPair(NamedTuple):
    """Two features that cancel each other."""

    first: str
    second: str
    conflict: float
    hidden: float  # the part that single removals do not show
    first_alone: float  # what ``first`` does as things are
    second_alone: float


def hidden_price(evaluations: int, rows: int) -> str:
    """What hidden conflicts of some rows take, before they are looked for."""
    return f"hidden conflicts: {evaluations} evaluations of the model for each of {rows} row{'s' * (rows != 1)}"


@dataclass(frozen=True)
class HiddenConflicts:
    """Exact conflicts between pairs of features and their hidden part, for some rows. ``CAFE.hidden_conflicts`` makes it.

    There are m features per row. Tensors are symmetric in their last two dimensions except ``without``.

    Args:
        names: ``names[row]``: the names of the m features.
        conflict: (rows, m, m): the exact map, Definition 4.
        visible: (rows, m, m): what single removals show of it.
        alone: (rows, m): what each feature does as things are.
        without: (rows, m, m): [i, j] is what j does once i is at its baseline.
        evaluations: Evaluations of the model, per row.
        baseline: Which of several baselines the rows were compared with.
        baselines: How many there are.
        typical: They are rows of the background.
        middle: It was taken because its output is the middle one of all of them.
        features: How many features there are; m of them were compared.
        moved: (rows,): how far the output is from that at the baseline.
        row_names: What the rows are called, which may then be given by name.

    Example:
        >>> import torch
        >>> from cafexai import CAFE
        >>> def risk(x):
        ...     return torch.relu(0.9 * x[:, 0] - x[:, 1])
        >>> cafe = CAFE(risk, feature_names=["pain", "breathing"])
        >>> found = cafe.hidden_conflicts(cafe.explain(torch.ones(1, 2)))
        >>> found.sentences(0)  # doctest: +ELLIPSIS
        ['pain alone seems not to matter, but only because breathing holds it down; ...']
    """

    names: tuple[tuple[str, ...], ...]
    conflict: Tensor
    visible: Tensor
    alone: Tensor
    without: Tensor
    evaluations: int
    baseline: int = 0
    baselines: int = 1
    typical: bool = False
    middle: bool = False
    features: int = 0
    moved: Tensor | None = None
    row_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def against(self) -> str:
        """The baseline that the rows were compared with, in words."""
        from ..plotting.conflict_words import baseline_words

        return baseline_words(self.baseline, self.baselines, self.typical, self.middle)

    @property
    def hidden(self) -> Tensor:
        """max(0, conflict - visible). (rows, m, m)"""
        return (self.conflict - self.visible).clamp_min(0)

    def top(self, row: int | str = 0, most: int = 3) -> list[HiddenPair]:
        """The pairs with the largest hidden conflict of one row, largest first.

        Args:
            row: Which row.
            most: How many pairs.

        Returns:
            The pairs.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> def risk(x):
            ...     return torch.relu(0.9 * x[:, 0] - x[:, 1])
            >>> cafe = CAFE(risk, feature_names=["pain", "breathing"])
            >>> found = cafe.hidden_conflicts(cafe.explain(torch.ones(1, 2)))
            >>> len(found.top(0))
            1
        """
        row = self._position(row)
        names, found = self.names[row], []
        for amount, i, j in self._rank(self.hidden[row], row)[:most]:
            i, j = (i, j) if self._hides(row, i, j) >= self._hides(row, j, i) else (j, i)
            without = self.without[row, i, j].item()
            found.append(HiddenPair(names[j], names[i], amount, self.alone[row, j].item(), without))
        return found

    def fights(self, row: int | str = 0, most: int = 10) -> list[FightingPair]:
        """The pairs of features that cancel most of each other in one row, largest first.

        Args:
            row: Which row.
            most: How many pairs.

        Returns:
            The pairs.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> def risk(x):
            ...     return torch.relu(0.9 * x[:, 0] - x[:, 1])
            >>> cafe = CAFE(risk, feature_names=["pain", "breathing"])
            >>> found = cafe.hidden_conflicts(cafe.explain(torch.ones(1, 2)))
            >>> len(found.fights(0))
            1
        """
        row = self._position(row)
        names, hidden, alone, least = self.names[row], self.hidden[row], self.alone[row], self._least(row)
        return [
            FightingPair(names[i], names[j], amount, part if part > least else 0.0, alone[i].item(), alone[j].item())
            for amount, i, j in self._rank(self.conflict[row], row)[:most]
            for part in (hidden[i, j].item(),)
        ]

    def _position(self, row: int | str) -> int:
        return find_row(row, len(self), self.row_names, "hidden conflicts")

    def _least(self, row: int) -> float:
        return ROUNDING * max(self.conflict[row].max().item(), self.alone[row].abs().max().item())

    def _largest(self, row: int) -> float:
        """The largest number of one row."""
        sizes = (self.conflict[row].max().item(), self.alone[row].abs().max().item())
        return max(*sizes, 0.0 if self.moved is None else self.moved[row].item())

    def _rank(self, amounts: Tensor, row: int) -> list[tuple[float, int, int]]:
        """The pairs of one row with more than rounding errors, largest first."""
        count, least = len(self.names[row]), self._least(row)
        pairs = [(amounts[i, j].item(), i, j) for i in range(count) for j in range(i + 1, count)]
        return sorted((pair for pair in pairs if pair[0] > least), key=lambda pair: -pair[0])

    def _hides(self, row: int, i: int, j: int) -> float:
        """The counteraction of removing i first, then j."""
        first, second = self.alone[row, i].item(), self.without[row, i, j].item()
        return min(abs(first), abs(second)) if first * second < 0 else 0.0

    def sentences(self, row: int | str = 0, most: int = 3) -> list[str]:
        """The pairs with the largest hidden conflict of one row, in words.

        A pair is told if its hidden conflict is at least half of the largest number of the row: what a single feature does,
        what two features cancel, or how far the output is from that at the baseline. ``top`` lists the smaller ones, too.

        Args:
            row: Which row.
            most: How many pairs.

        Returns:
            One sentence per pair.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> def risk(x):
            ...     return torch.relu(0.9 * x[:, 0] - x[:, 1])
            >>> cafe = CAFE(risk, feature_names=["pain", "breathing"])
            >>> found = cafe.hidden_conflicts(cafe.explain(torch.ones(1, 2)))
            >>> len(found.sentences(0))
            1
        """
        from ..plotting.conflict_words import hidden_sentence

        row = self._position(row)
        least = TOLD * self._largest(row)
        return [hidden_sentence(pair) for pair in self.top(row, most) if pair.hidden >= least]

    def plot(self, row: int | str = 0, most: int = 8) -> Picture:
        """Who fights whom in one row: the exact map, and its strongest pairs as a network; needs matplotlib.

        Args:
            row: Which row.
            most: How many features are shown.

        Returns:
            The picture.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> def risk(x):
            ...     return torch.relu(0.9 * x[:, 0] - x[:, 1])
            >>> cafe = CAFE(risk, feature_names=["pain", "breathing"])
            >>> found = cafe.hidden_conflicts(cafe.explain(torch.ones(1, 2)))
            >>> found.plot(0).savefig("fights.png")
        """
        from ..plotting.pairs import exact_pairs

        return exact_pairs(self, self._position(row), most)

    def __str__(self) -> str:
        called = self.row_names or [f"row {row}" for row in range(len(self))]
        lines = [f"{name}: {line}" for row, name in enumerate(called) for line in self.sentences(row)]
        told = [f"Held against {self.against}."] * (self.baselines > 1)
        return "\n".join([*(lines or [NONE_HIDDEN]), *told])
