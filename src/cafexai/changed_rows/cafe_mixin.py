"""The methods of an explainer that change rows and run the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._engine.prepare_job import Explainer, prepare_job
from .._engine.request import Question, Request
from ..explanation import Explanation
from ..plotting.regions import Cut
from .check import ChangeCheck, check_explanation
from .image_regions import Occlusion, occlude
from .what_if import Calls, WhatIf, vary_feature


class ChangeMethods:
    """Hold scores against the model, and try other values."""

    if TYPE_CHECKING:

        @property
        def _explainer(self) -> Explainer: ...
        @property
        def background(self) -> Any: ...
        @property
        def feature_names(self) -> tuple[str, ...] | None: ...

        explain: Any

    def check_by_changing(self, explanation: Explanation, row: int | str = 0, most: int = 8) -> ChangeCheck:
        """Does the model really do that? Set the strongest features of a row to the baseline, and see what the output does.

        They are set one at a time, and one after the other. This takes two evaluations per feature and baseline.

        Args:
            explanation: What ``explain`` gave in this process; an explanation holds no model.
            row: Which row, by position or name.
            most: How many features at most.

        Returns:
            What the scores predict beside what the model does, and their correlation. ``print`` it, ``.plot()`` it, or pass it
            to ``e.ledger(row, check=...)``.

        Raises:
            ValueError: The explanation is of a layer, was read from a file, or the model cannot be evaluated there.

        Example:
            >>> import torch, cafexai
            >>> cafe = cafexai.CAFE(torch.nn.Linear(3, 1))
            >>> check = cafe.check_by_changing(cafe.explain(torch.ones(2, 3)), 0)
            >>> round(check.correlation, 3)
            1.0
        """
        return check_explanation(self._explainer.subject, explanation, row, most)

    def occlude_regions(
        self,
        explanation: Explanation,
        row: int | str = 0,
        *,
        cells: int | None = None,
        regions: Any = None,
        superpixels: str | int | None = None,
    ) -> Occlusion:
        """Does the model really look there? Set each region of an image to the baseline, and see what the output does.

        This takes one evaluation per region and baseline. ``e.plot(row, check=cafe)`` draws it beside the scores.

        Args:
            explanation: What ``explain`` gave for images in this process; an explanation holds no model.
            row: Which row, by position or name.
            cells: Regions are cells of a grid, so many in each direction; 8 by default.
            regions: The region of each pixel, integers (height, width), or (rows, height, width).
            superpixels: Regions of alike pixels, "slic" or how many.

        Returns:
            The net scores of the regions beside what the model does, and their correlation.

        Raises:
            ValueError: The rows are no images, the explanation is of a layer or was read from a file, or the model cannot be
                evaluated there.

        Example:
            >>> import torch, cafexai
            >>> cafe = cafexai.CAFE(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 1)))
            >>> seen = cafe.occlude_regions(cafe.explain(torch.rand(1, 1, 8, 8)), cells=4)
            >>> round(seen.correlation, 3)
            1.0
        """
        return occlude(self._explainer.subject, explanation, row, Cut(cells, regions, superpixels))

    def what_if(
        self,
        rows: Any,
        feature: str | int,
        values: Sequence[Any] | None = None,
        target: Any = None,
        output: Any = None,
        against: Any = None,
    ) -> WhatIf:
        """What-if curves (ICE): the output of the model while one feature takes other values and all others stay.

        Args:
            rows: A table as ``explain`` takes it, one row or more: a frame, or numbers (rows, features).
            feature: A column, by name or position.
            values: What is tried. None takes the values of the background, or of the rows: even steps between the 1 % and 99 %
                quantiles of numbers, or all categories.
            target: The output; see ``explain``. None takes the predicted class of each row as it is.
            output: See ``explain``.
            against: See ``explain``.

        Returns:
            The curves: ``.outputs`` and ``.probabilities`` (rows, values), ``.to_frame()``, ``.plot()``.

        Raises:
            ValueError: There is no such feature, or there are no values to try.

        Example:
            >>> import torch, cafexai
            >>> cafexai.CAFE(torch.nn.Linear(2, 1)).what_if(torch.ones(1, 2), "x0", [0.0, 1.0, 2.0]).outputs.shape
            torch.Size([1, 3])
        """
        calls = Calls(
            explain=lambda table: self.explain(table, "zero", target=target, output=output, against=against, conflict="net"),
            prepare=lambda table: prepare_job(self._explainer, table, Request("zero", output=output), Question(), "what_if"),
            background=self.background,
            feature_names=self.feature_names,
        )
        return vary_feature(calls, rows, feature, values)
