"""The pictures of an explanation: ``e.plot(0)``, ``e.plot.summary()`` and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..explanation import Explanation

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

    def summary(self, most: int = 12, order: str = "net") -> Picture:
        """All rows as a picture: mean scores, nets of each row, conflicts, the rows with most of them.

        Args:
            most: How many features are shown.
            order: Features by the mean size of their net score, "net", or by mean influence, "influence".

        Returns:
            The picture.
        """
        from .summary import summary

        return summary(self._explanation, most, order)

    def pairs(self, row: int | str = 0, most: int = 8) -> Picture:
        """Which feature cancels which in one row: a heat map and a network. Needs ``explain(..., pairs=True)``.

        Args:
            row: Which row, by position or name.
            most: How many features are shown.

        Returns:
            The picture.
        """
        from .pairs import pairs

        return pairs(self._explanation[row], most)

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
