"""An explanation as people see it: tables, pictures, reports, and the forms of other tools."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from ..errors import warn

if TYPE_CHECKING:
    from pathlib import Path

    import pandas
    from typing_extensions import Unpack

    from ..plotting.picture import Picture
    from ..plotting.plots import Plots
    from ..reporting import ReportOptions
    from ..reporting.text_ledger import Ledger
    from .explanation import Explanation


class Views:
    """The views of an explanation; each is imported on first use."""

    @property
    def _own(self) -> Explanation:
        return cast("Explanation", self)

    def to_frame(self) -> pandas.DataFrame:
        """A long table: one line per row and feature, and one for the bias; needs pandas."""
        from ..adapters.exports import long_table

        return long_table(self._own)

    def top(self, row: int | str = 0, most: int = 3, order: str = "net") -> pandas.DataFrame:
        """The strongest features of one row, as a small table; needs pandas. ``order``: by "net" or by "influence"."""
        from ..adapters.exports import top

        return top(self._own, row, most, order)

    def to_shap(self, scores: str = "combined") -> Any:
        """A shap.Explanation of the combined scores; base value = baseline output + bias, so that plots end at the output.

        "positive" and "negative" give what pushed up and down, biases and baseline output in the base values, so that the
        first minus the second is the output. Several inputs stand side by side; pictures have their channels last.
        """
        from ..adapters.exports import for_shap

        return for_shap(self._own, scores)

    def to_shapash(self) -> Any:
        """A compiled SmartExplainer of shapash with the combined scores of a table."""
        from ..adapters.exports import for_shapash

        return for_shapash(self._own)

    def to_explainerdashboard(self, y: Any = None) -> Any:
        """A RegressionExplainer for ExplainerDashboard with the combined scores of a table; ``y`` are the true values."""
        from ..adapters.exports import for_explainerdashboard

        return for_explainerdashboard(self._own, y)

    def ledger(self, row: int | str = 0, most: int = 12, order: str = "net") -> Ledger:
        """One prediction as a table of text: features, bias, conflict, output; a notebook shows a table.

        Args:
            row: Which row.
            most: How many features are shown; the others are summed.
            order: Features by the size of their net score, "net", or by positive + negative, "influence".

        Returns:
            The table, a string.

        Example:
            >>> import torch, cafexai
            >>> e = cafexai.CAFE(torch.nn.Linear(2, 1)).explain(torch.ones(1, 2))
            >>> e.ledger(0).splitlines()[2].split()[:2]
            ['baseline', 'output']
        """
        from ..reporting.text_ledger import ledger

        return ledger(self._own[row], most, order)

    @property
    def plot(self) -> Plots:
        """Pictures: ``e.plot(0)`` for one row, ``e.plot.summary()``, ``.pairs()``, ``.biases()``; needs matplotlib."""
        from ..plotting.plots import Plots

        return Plots(self._own)

    def summary(self, most: int = 12, order: str = "net") -> Picture:
        """All rows as a picture; the same as ``e.plot.summary()``."""
        return self.plot.summary(most, order)

    def plot_pairs(self, row: int = 0, most: int = 8) -> Picture:
        """Deprecated: ``e.plot.pairs()``."""
        _deprecated_plot("pairs")
        return self.plot.pairs(row, most)

    def plot_biases(self, row: int = 0, most: int = 12) -> Picture:
        """Deprecated: ``e.plot.biases()``."""
        _deprecated_plot("biases")
        return self.plot.biases(row, most)

    def _repr_html_(self) -> str:
        from ..reporting.notebook import explanation_page

        return explanation_page(self._own)

    def report(self, path: str | os.PathLike[str], **options: Unpack[ReportOptions]) -> Path:
        """Write a report: one HTML file for readers without Python. Options: see ``cafexai.reporting.write_report``."""
        from ..reporting import write_report

        return write_report(self._own, path, **options)


def _deprecated_plot(name: str) -> None:
    warn(f"explanation.plot_{name} is deprecated and goes in 0.3. Write explanation.plot.{name} instead.", DeprecationWarning)
