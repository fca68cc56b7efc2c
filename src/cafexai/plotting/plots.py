"""The pictures of an explanation: ``e.plot(0)``, ``e.plot.summary()`` and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..explanation import Explanation, HiddenConflicts

if TYPE_CHECKING:
    from .picture import Picture


class Plots:
    """One namespace for all pictures of an explanation; they need matplotlib."""

    def __init__(self, explanation: Explanation) -> None:
        self._explanation = explanation

    def __call__(self, row: int | str = 0, most: int = 12, beside: Any = None, order: str = "net") -> Picture:
        """One row as a picture: bars of a table, maps of an image, words of a text.

        Args:
            row: Which row, by position or name.
            most: How many features of a table are shown.
            beside: For images: scores of another method, or another explanation.
            order: Features of a table by the size of their net score, "net", or by positive + negative, "influence".

        Returns:
            The picture, which notebooks show and ``.savefig`` writes.
        """
        from .dispatch import picture_of

        return picture_of(self._explanation, row, most, beside, order)

    def summary(self, most: int = 12, order: str = "net", target: Any = None) -> Picture:
        """All rows as a picture: mean scores, nets of each row, conflicts, the rows with most of them.

        Args:
            most: How many features are shown.
            order: Features by the mean size of their net score, "net", or by mean influence, "influence".
            target: Only rows that are explained for this output. None shows each explained output on its own.

        Returns:
            The picture.

        Raises:
            ValueError: The rows are explained for more than four outputs and ``target`` is not given.
        """
        from .summary import summary

        e = self._explanation
        return summary(e if target is None else e.for_output(target, "plot.summary"), most, order)

    def dependence(self, feature: str, color: str | None = None, target: Any = None) -> Picture:
        """Net scores of a feature over its values, one dot per row.

        Args:
            feature: Its name.
            color: Another feature, whose values colour the dots.
            target: The explained output, by class name or position, if the rows are explained for several.

        Returns:
            The picture.

        Raises:
            ValueError: There is no such feature, or the rows are explained for several outputs and ``target`` is not given.
        """
        from .change_plots import dependence

        return dependence(self._explanation.for_output(target, "plot.dependence"), feature, color)

    def pairs(self, row: int | str = 0, most: int = 8, exact: HiddenConflicts | None = None) -> Picture:
        """Who fights whom in one row: a heat map and a network.

        Args:
            row: Which row, by position or name.
            most: How many features are shown.
            exact: What ``cafe.hidden_conflicts(e)`` gave: the exact map. None shows what pairs cancelled inside the model; this
                needs ``explain(..., pairs=True)``.

        Returns:
            The picture.

        Raises:
            ValueError: There is neither of them, or ``exact`` is about other rows.
        """
        from .pairs import exact_pairs, pairs

        e = self._explanation
        if exact is None:
            return pairs(e[row], most)
        if len(exact) != len(e):
            raise ValueError(
                f"plot.pairs(exact=...): it has {len(exact)} rows, and the explanation {len(e)}. Use exact.plot(row)."
            )
        return exact_pairs(exact, e.position(row), most)

    def biases(self, row: int | str = 0, most: int = 12) -> Picture:
        """The scores of the constants of each layer in one row.

        Args:
            row: Which row, by position or name.
            most: How many layers are shown.

        Returns:
            The picture.
        """
        from .table_plot import biases

        return biases(self._explanation[row], most)
