"""The pictures of an explanation: ``e.plot(0)``, ``e.plot.summary()`` and others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..explanation import Explanation, HiddenConflicts
from .looks import look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .picture import Picture


class Plots:
    """One namespace for all pictures of an explanation; they need matplotlib."""

    def __init__(self, explanation: Explanation) -> None:
        self._explanation = explanation

    def __call__(
        self,
        row: int | str | Sequence[int | str] = 0,
        most: int | None = None,
        beside: Any = None,
        order: str = "net",
        *,
        view: str | None = None,
        cells: int | None = None,
        regions: Any = None,
        superpixels: str | int | None = None,
        same_scale: bool = False,
        check: Any = None,
        ax: Axes | None = None,
        figsize: tuple[float, float] | None = None,
        style: str | None = None,
    ) -> Picture:
        """One row as a picture: bars of a table, an image with its regions, words of a text.

        Args:
            row: Which row, by position or name. For images also a list of rows.
            most: How many features of a table are shown, 12 by default, or how many regions of an image are outlined, 5.
            beside: For images: scores of another method, or another explanation.
            order: Features of a table by the size of their net score, "net", or by positive + negative, "influence".
            view: For images: "regions" (the default), "pixels" for single pixels, or "detail" for maps of what pushed up,
                down, what remains and what cancelled.
            cells: For images: regions are cells of a grid, so many in each direction; 8 by default.
            regions: For images: the region of each pixel, integers (height, width), or (rows, height, width).
            superpixels: For images: regions of alike pixels, "slic" or how many; needs scikit-image, without which a grid of
                cells is shown.
            same_scale: For images: one scale of colours for all rows of the explanation.
            check: For images: the explainer. Each region is set to the baseline, and the change of the output is drawn beside
                the scores, with their correlation. For tables use ``cafe.check_by_changing``.
            ax: For images and tables: axes of matplotlib that the net of the regions, or the bars, are drawn on.
            figsize: Width and height in inches.
            style: "paper": 3.3 inches wide, letters of 7 points, no text below. Texts have no such style yet.

        Returns:
            The picture, which notebooks show and ``.savefig`` writes; with ``ax``, its figure.

        Raises:
            ValueError: An option does not fit the rows, or is unknown.

        Example:
            >>> import torch, cafexai
            >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 2))
            >>> e = cafexai.CAFE(net).explain(torch.rand(1, 3, 16, 16))
            >>> e.plot(0, cells=4).savefig("regions.png")
        """
        from .dispatch import picture_of

        image = {"view": view, "cells": cells, "regions": regions, "superpixels": superpixels}
        image |= {"same_scale": same_scale, "beside": beside, "check": check}
        with look(figsize, style, ax):
            return picture_of(self._explanation, row, most, order, image)

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

        Example:
            >>> import torch, cafexai
            >>> e = cafexai.CAFE(torch.nn.Linear(2, 1), feature_names=["age", "dose"]).explain(torch.ones(3, 2))
            >>> e.plot.summary().savefig("summary.png")
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
