"""Hidden conflicts: pairs of features of which single removals do not show that they cancel each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

ROUNDING = 1e-5  # of the largest conflict or effect of a row: less than that is not shown
SMALL = 0.25  # of what a feature does without its opponent: by itself it then seems not to matter


class HiddenPair(NamedTuple):
    """Two features, of which ``second`` hides ``first``."""

    first: str
    second: str
    hidden: float  # conflict that single removals do not show
    alone: float  # what ``first`` does as things are
    without: float  # what ``first`` does once ``second`` is at its baseline


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
    """

    names: tuple[tuple[str, ...], ...]
    conflict: Tensor
    visible: Tensor
    alone: Tensor
    without: Tensor
    evaluations: int
    baseline: int = 0

    @property
    def hidden(self) -> Tensor:
        """max(0, conflict - visible). (rows, m, m)"""
        return (self.conflict - self.visible).clamp_min(0)

    def top(self, row: int = 0, most: int = 3) -> list[HiddenPair]:
        """The pairs with the largest hidden conflict of one row, largest first.

        Args:
            row: Which row.
            most: How many pairs.

        Returns:
            The pairs.
        """
        hidden, names = self.hidden[row], self.names[row]
        least = ROUNDING * max(self.conflict[row].max().item(), self.alone[row].abs().max().item())
        pairs = [(hidden[i, j].item(), i, j) for i in range(len(names)) for j in range(i + 1, len(names))]
        found = []
        for amount, i, j in sorted(pairs, key=lambda entry: -entry[0])[:most]:
            if amount <= least:
                break
            i, j = (i, j) if self._hides(row, i, j) >= self._hides(row, j, i) else (j, i)
            without = self.without[row, i, j].item()
            found.append(HiddenPair(names[j], names[i], amount, self.alone[row, j].item(), without))
        return found

    def _hides(self, row: int, i: int, j: int) -> float:
        """The counteraction of removing i first, then j."""
        first, second = self.alone[row, i].item(), self.without[row, i, j].item()
        return min(abs(first), abs(second)) if first * second < 0 else 0.0

    def sentences(self, row: int = 0, most: int = 3) -> list[str]:
        """The pairs with the largest hidden conflict of one row, in words.

        Args:
            row: Which row.
            most: How many pairs.

        Returns:
            One sentence per pair.
        """
        from ..plotting.conflict_words import hidden_sentence

        return [hidden_sentence(pair) for pair in self.top(row, most)]

    def __str__(self) -> str:
        lines = [f"row {row}: {line}" for row in range(len(self.names)) for line in self.sentences(row)]
        return "\n".join(lines) or "no conflict is hidden"
