"""An explanation as people see it: tables, pictures, reports, and the forms of other tools."""

from __future__ import annotations

import os
from collections.abc import Mapping
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
        """A long table: one line per row and feature, and one for the bias; needs pandas.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> model = torch.nn.Linear(2, 1)
            >>> model.weight.data, model.bias.data = torch.tensor([[2.0, -1.0]]), torch.zeros(1)
            >>> e = CAFE(model, feature_names=["age", "dose"]).explain(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
            >>> e.to_frame()[["row", "feature", "positive", "negative"]].head(2)
               row feature  positive  negative
            0    0     age       2.0       0.0
            1    0    dose       0.0       2.0
        """
        from ..adapters.exports import long_table

        return long_table(self._own)

    def top(self, row: int | str = 0, most: int = 3, order: str = "net") -> pandas.DataFrame:
        """The strongest features of one row, as a small table; needs pandas.

        Args:
            row: Which row.
            most: How many features are shown.
            order: Features by the size of their net score, "net", or by positive + negative, "influence".

        Returns:
            The table.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> model = torch.nn.Linear(2, 1)
            >>> model.weight.data, model.bias.data = torch.tensor([[2.0, -1.0]]), torch.zeros(1)
            >>> e = CAFE(model, feature_names=["age", "dose"]).explain(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
            >>> e.top(0, most=1).shape[0]
            1
        """
        from ..adapters.exports import top

        return top(self._own, row, most, order)

    def to_shap(self, scores: str = "combined", target: Any = None) -> Any:
        """A shap.Explanation; needs shap. Several inputs stand side by side; pictures have their channels last.

        Args:
            scores: "combined": base value = baseline output + bias, so that plots end at the output. "positive" and
                "negative": what pushed up and down, with biases and baseline output in the base values, so that the first
                minus the second is the output.
            target: Keep the rows that are explained for this output. Rows explained for several outputs are refused without
                it.

        Returns:
            The object of SHAP.

        Raises:
            ValueError: There are no such scores, or rows are explained for several outputs.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> model = torch.nn.Linear(2, 1)
            >>> model.weight.data, model.bias.data = torch.tensor([[2.0, -1.0]]), torch.zeros(1)
            >>> e = CAFE(model, feature_names=["age", "dose"]).explain(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
            >>> e.to_shap().values.shape
            (2, 2)
        """
        from ..adapters.exports import for_shap

        return for_shap(self._own.for_output(target, "to_shap"), scores)

    def to_shapash(self, target: Any = None) -> Any:
        """A compiled SmartExplainer of shapash with the combined scores of a table.

        Args:
            target: See ``to_shap``.

        Returns:
            The SmartExplainer; needs shapash.

        Raises:
            ValueError: The explanation is not one of a table, or rows are explained for several outputs.
        """
        from ..adapters.exports import for_shapash

        return for_shapash(self._own.for_output(target, "to_shapash"))

    def to_explainerdashboard(self, y: Any = None, target: Any = None) -> Any:
        """A RegressionExplainer for ExplainerDashboard with the combined scores of a table; needs explainerdashboard.

        Args:
            y: The true values.
            target: See ``to_shap``.

        Returns:
            The explainer.

        Raises:
            ValueError: The explanation is not one of a table, or rows are explained for several outputs.
        """
        from ..adapters.exports import for_explainerdashboard

        return for_explainerdashboard(self._own.for_output(target, "to_explainerdashboard"), y)

    def ledger(self, row: int | str = 0, most: int = 12, order: str = "net", check: Any = None) -> Ledger:
        """One prediction as a table of text: features, bias, conflict, output; a notebook shows a table.

        Args:
            row: Which row.
            most: How many features are shown; the others are summed.
            order: Features by the size of their net score, "net", or by positive + negative, "influence".
            check: The explainer, or what ``cafe.check_by_changing(e, row)`` gave. One line below the table tells what the
                model does when features are set to the baseline.

        Returns:
            The table, a string.

        Example:
            >>> import torch, cafexai
            >>> e = cafexai.CAFE(torch.nn.Linear(2, 1)).explain(torch.ones(1, 2))
            >>> e.ledger(0).splitlines()[2].split()[:2]
            ['baseline', 'output']
        """
        from ..reporting.text_ledger import ledger

        return ledger(self._own[row], most, order, check)

    def reasons(
        self, row: int | str = 0, n: int = 4, direction: str = "down", template: str | Mapping[str, str] | None = None
    ) -> list[str]:
        """The features that moved the score of one row most in one direction, one sentence each, the strongest first.

        Features that are as in the baseline are never a reason, nor are those below 1 % of the largest score of the row.

        Args:
            row: Which row, by position or name.
            n: How many reasons at most.
            direction: "down" for what lowered the score, "up" for what raised it.
            template: The sentence, with the fields {feature}, {value}, {baseline}, {amount}, {moved}, {target}, {output} and
                {row}; or one for each feature by its name, and for all others by "".

        Returns:
            The sentences.

        Raises:
            ValueError: The direction or a field of the template is unknown.

        Example:
            >>> import torch, cafexai
            >>> model = torch.nn.Linear(2, 1)
            >>> e = cafexai.CAFE(model, feature_names=["age", "debt"]).explain(torch.ones(1, 2))
            >>> len(e.reasons(0, direction="up") + e.reasons(0, direction="down"))
            2
        """
        from ..reporting.reasons import reasons

        return [one.sentence for one in reasons(self._own, row, n, direction, template)]

    def reasons_frame(
        self, n: int = 4, direction: str = "down", template: str | Mapping[str, str] | None = None
    ) -> pandas.DataFrame:
        """The reasons of all rows as a table, for ``.to_csv``; needs pandas.

        Args:
            n: How many reasons at most for each row.
            direction: "down" or "up".
            template: See ``reasons``.

        Returns:
            One line per reason: row, name (where rows have names), target, rank, feature, value, baseline, net, reason.

        Raises:
            ValueError: The direction or a field of the template is unknown.

        Example:
            >>> import torch, cafexai
            >>> e = cafexai.CAFE(torch.nn.Linear(2, 1)).explain(torch.ones(3, 2))
            >>> e.reasons_frame(n=1, direction="up").columns[0]
            'row'
        """
        from ..reporting.reasons import reasons_frame

        return reasons_frame(self._own, n, direction, template)

    @property
    def plot(self) -> Plots:
        """Pictures: ``e.plot(0)`` for one row, ``e.plot.summary()``, ``.pairs()``, ``.biases()``; needs matplotlib."""
        from ..plotting.plots import Plots

        return Plots(self._own)

    def summary(self, most: int = 12, order: str = "net", target: Any = None) -> Picture:
        """Deprecated: ``e.plot.summary()``.

        Args:
            most: How many features are shown.
            order: Features by the size of their net score, "net", or by positive + negative, "influence".
            target: See ``to_shap``.

        Returns:
            The picture.
        """
        _deprecated_plot("summary")
        return self.plot.summary(most, order, target)

    def plot_pairs(self, row: int = 0, most: int = 8) -> Picture:
        """Deprecated: ``e.plot.pairs()``.

        Args:
            row: Which row.
            most: How many features are shown.

        Returns:
            The picture.
        """
        _deprecated_plot("plot_pairs")
        return self.plot.pairs(row, most)

    def plot_biases(self, row: int = 0, most: int = 12) -> Picture:
        """Deprecated: ``e.plot.biases()``.

        Args:
            row: Which row.
            most: How many layers are shown.

        Returns:
            The picture.
        """
        _deprecated_plot("plot_biases")
        return self.plot.biases(row, most)

    def _repr_html_(self) -> str:
        from ..reporting.notebook import explanation_page

        return explanation_page(self._own)

    def report(self, path: str | os.PathLike[str], **options: Unpack[ReportOptions]) -> Path:
        """Write a report: one HTML file for readers without Python.

        Args:
            path: The file; its name ends in .html.
            **options: See ``cafexai.reporting.write_report``.

        Returns:
            The path.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> model = torch.nn.Linear(2, 1)
            >>> model.weight.data, model.bias.data = torch.tensor([[2.0, -1.0]]), torch.zeros(1)
            >>> e = CAFE(model, feature_names=["age", "dose"]).explain(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
            >>> e.report("report.html", title="Two patients").name
            'report.html'
        """
        from ..reporting import write_report

        return write_report(self._own, path, **options)


def _deprecated_plot(name: str) -> None:
    new = name.removeprefix("plot_")
    warn(f"explanation.{name} is deprecated and goes in 0.3. Write explanation.plot.{new} instead.", DeprecationWarning)
