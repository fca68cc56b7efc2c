"""The outcome of a comparison of methods: a table that knows its spread and its winners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .._extras import needs
from ..metrics import METRICS

if TYPE_CHECKING:
    import pandas

    from ..plotting.picture import Picture


@dataclass(frozen=True)
class Marks:
    """How a kind of table writes what is special about a number."""

    best: str
    second: str
    differs: str
    between: str = " ± "


MARKDOWN = Marks("**{}**", "<u>{}</u>", r"\*")
HTML = Marks("<strong>{}</strong>", "<u>{}</u>", "*")
LATEX = Marks(r"\textbf{{{}}}", r"\underline{{{}}}", r"$^{*}$", r" $\pm$ ")


@dataclass(frozen=True)
class Comparison:
    """The result of ``compare``.

    Args:
        values: ``values[method][metric]`` has one number per row (per feature for rmse), the mean over the seeds.
        seconds: How long each method took.
        reasons: Why a method is missing.
        against: The method that the others are paired with in the tests.
        rows: How many rows were scored.
        seeds: The seeds.
        notes: Notes for the reader.
        methods: All methods that were asked for, in their order.

    Example:
        >>> import torch
        >>> import cafexai
        >>> model, x = torch.nn.Linear(2, 1), torch.rand(4, 2)
        >>> result = cafexai.compare(model, x, methods=["cafe", "lrp"], metrics=["complexity"])
        >>> sorted(result.values)
        ['cafe', 'lrp']
    """

    values: Mapping[str, Mapping[str, Tensor]]
    seconds: Mapping[str, float]
    reasons: Mapping[str, str]
    against: str | None
    rows: int
    seeds: tuple[int, ...]
    notes: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()  # all that were asked for, in their order

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics, in their order."""
        return tuple(dict.fromkeys(metric for scores in self.values.values() for metric in scores))

    def mean(self, method: str, metric: str) -> float:
        """The mean over the rows.

        Args:
            method: The name of a method.
            metric: The name of a metric.

        Returns:
            The mean over the rows.

        Example:
            >>> import torch
            >>> import cafexai
            >>> model, x = torch.nn.Linear(2, 1), torch.rand(4, 2)
            >>> result = cafexai.compare(model, x, methods=["cafe", "lrp"], metrics=["complexity"])
            >>> result.mean("cafe", "complexity") > 0
            True
        """
        return float(self.values[method][metric].mean())

    def standard_error(self, method: str, metric: str) -> float:
        """The standard error of that mean; nan for a single row.

        Args:
            method: The name of a method.
            metric: The name of a metric.

        Returns:
            The standard error; nan for a single row.

        Example:
            >>> import torch
            >>> import cafexai
            >>> model, x = torch.nn.Linear(2, 1), torch.rand(4, 2)
            >>> result = cafexai.compare(model, x, methods=["cafe", "lrp"], metrics=["complexity"])
            >>> result.standard_error("cafe", "complexity") >= 0
            True
        """
        values = self.values[method][metric]
        return float(values.std() / len(values) ** 0.5) if len(values) > 1 else float("nan")

    def p_value(self, method: str, metric: str) -> float:
        """Wilcoxon's signed-rank test of the paired rows against ``against``, two-sided.

        Args:
            method: The name of a method.
            metric: The name of a metric.

        Returns:
            The p-value; 1 where all rows are equal.

        Example:
            >>> import torch
            >>> import cafexai
            >>> model, x = torch.nn.Linear(2, 1), torch.rand(4, 2)
            >>> result = cafexai.compare(model, x, methods=["cafe", "lrp"], metrics=["complexity"])
            >>> 0 <= result.p_value("lrp", "complexity") <= 1
            True
        """
        if self.against is None or method == self.against or self.against not in self.values:
            return float("nan")
        pair = self.values[method][metric] - self.values[self.against][metric]
        scale = self.values[self.against][metric].abs().max().item()
        pair = pair[pair.abs() > 1e-12 * scale]
        if not len(pair):
            return 1.0
        return float(needs("scipy.stats", "compare").wilcoxon(pair.cpu().numpy()).pvalue)

    def ranking(self, metric: str) -> list[str]:
        """Methods from best to worst mean, where less is better unless the metric says otherwise.

        Args:
            metric: The name of a metric.

        Returns:
            The names of the methods.

        Example:
            >>> import torch
            >>> import cafexai
            >>> model, x = torch.nn.Linear(2, 1), torch.rand(4, 2)
            >>> result = cafexai.compare(model, x, methods=["cafe", "lrp"], metrics=["complexity"])
            >>> sorted(result.ranking("complexity"))
            ['cafe', 'lrp']
        """
        high = metric in METRICS and METRICS[metric].best == "high"
        measured = (m for m in self.values if metric in self.values[m])
        return sorted(measured, key=lambda m: self.mean(m, metric), reverse=high)

    def best(self, metric: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Best and second best methods; means that agree to four digits share a place.

        Args:
            metric: The name of a metric.

        Returns:
            The names of the best and of the second best methods.

        Example:
            >>> import torch
            >>> import cafexai
            >>> model, x = torch.nn.Linear(2, 1), torch.rand(4, 2)
            >>> result = cafexai.compare(model, x, methods=["cafe", "lrp"], metrics=["complexity"])
            >>> len(result.best("complexity"))
            2
        """
        if metric not in METRICS or METRICS[metric].best is None:
            return (), ()
        places: list[list[str]] = []
        for method in self.ranking(metric):
            mean = self.mean(method, metric)
            if places and abs(mean - self.mean(places[-1][0], metric)) <= 5e-5 * abs(mean):
                places[-1].append(method)
            else:
                places.append([method])
        first, second = ([*places, [], []])[:2]
        return tuple(first), tuple(second)

    def to_frame(self) -> pandas.DataFrame:
        """One line per method: mean, standard error and p-value of each metric, seconds, reason; needs pandas.

        Example:
            >>> import torch
            >>> import cafexai
            >>> model, x = torch.nn.Linear(2, 1), torch.rand(4, 2)
            >>> result = cafexai.compare(model, x, methods=["cafe", "lrp"], metrics=["complexity"])
            >>> len(result.to_frame())
            2
        """
        pandas = needs("pandas", "tabular")
        lines = []
        for method in self.methods:
            line: dict[str, Any] = {"method": method}
            for metric in self.metrics:
                known = metric in self.values.get(method, {})
                line[metric] = self.mean(method, metric) if known else float("nan")
                line[f"{metric} se"] = self.standard_error(method, metric) if known else float("nan")
                line[f"{metric} p"] = self.p_value(method, metric) if known else float("nan")
                first, second = self.best(metric)
                line[f"{metric} place"] = 1 if method in first else 2 if method in second else None
            line["seconds"] = self.seconds.get(method, float("nan"))
            line["reason"] = self.reasons.get(method, "")
            lines.append(line)
        return pandas.DataFrame(lines).set_index("method")

    def to_markdown(self) -> str:
        """A table with the best in bold, the second best underlined; a star where the rows differ from ``against``.

        Example:
            >>> import torch
            >>> import cafexai
            >>> model, x = torch.nn.Linear(2, 1), torch.rand(4, 2)
            >>> result = cafexai.compare(model, x, methods=["cafe", "lrp"], metrics=["complexity"])
            >>> result.to_markdown().startswith("|")
            True
        """
        header = ["method", *(title(metric) for metric in self.metrics), "seconds"]
        lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
        for method in (method for method in self.methods if method in self.seconds):
            cells = [self.cell(method, metric, MARKDOWN) for metric in self.metrics]
            lines.append("| " + " | ".join([method, *cells, f"{self.seconds[method]:.3g}"]) + " |")
        for method, reason in self.reasons.items():
            lines.append(f"| {method} | cannot run: {reason.replace('|', '/')}" + " |" * (len(header) - 1))
        lines += ["", self.spread()]
        if self.tested:
            lines.append(f"\n\\{self.tested}")
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)]) + "\n"

    def to_latex(self) -> str:
        """A ``tabular`` for a paper, with ``booktabs``: the best in bold, the second best underlined.

        Returns:
            The table. What a caption must say stands above it as comments.

        Example:
            >>> import torch
            >>> import cafexai
            >>> model, x = torch.nn.Linear(2, 1), torch.rand(4, 2)
            >>> result = cafexai.compare(model, x, methods=["cafe", "lrp"], metrics=["complexity"])
            >>> "tabular" in result.to_latex()
            True
        """
        from ..reporting.latex import escape, tabular

        head = ["method", *(title(metric) for metric in self.metrics), "seconds"]
        lines = [
            [escape(method), *(self.cell(method, metric, LATEX) for metric in self.metrics), f"{self.seconds[method]:.3g}"]
            for method in self.methods
            if method in self.seconds
        ]
        said = [self.spread(), self.tested, *self.notes]
        said += [f"{method} cannot run: {reason}" for method, reason in self.reasons.items()]
        return tabular([escape(word) for word in head], lines, [one for one in said if one])

    def spread(self) -> str:
        """What the numbers of the table are, and which are the best.

        Example:
            >>> import torch
            >>> import cafexai
            >>> model, x = torch.nn.Linear(2, 1), torch.rand(4, 2)
            >>> result = cafexai.compare(model, x, methods=["cafe", "lrp"], metrics=["complexity"])
            >>> "standard error" in result.spread()
            True
        """
        seeds = f"{len(self.seeds)} seed" + "s" * (len(self.seeds) > 1)
        rows = f"{self.rows} row" + "s" * (self.rows > 1)
        by_feature = [title(m) for m in self.metrics if m in METRICS and METRICS[m].per == "feature"]
        features = f" ({', '.join(by_feature)}: over the features)" if by_feature else ""
        spread = f"Mean ± standard error over {rows}{features}" if self.rows > 1 else f"Values of {rows}"
        return f"{spread}, {seeds}{self._directions()}."

    @property
    def tested(self) -> str:
        """What the stars of the table mean; "" if there are none."""
        paired = self.against is not None and self.rows > 1
        return f"* differs from {self.against}: p < 0.05 in Wilcoxon's signed-rank test of the pairs." if paired else ""

    def _directions(self) -> str:
        """Which values are the best."""
        low, high = ([title(m) for m in self.metrics if m in METRICS and METRICS[m].best == end] for end in ("low", "high"))
        if not low and not high:
            return ""
        better = f"less is better, but more of {', '.join(high)}" if low and high else f"{'more' if high else 'less'} is better"
        return f"; {better}, best in bold, second best underlined"

    def cell(self, method: str, metric: str, marks: Marks) -> str:
        """One number of the table with its standard error and its marks.

        Args:
            method: The name of a method.
            metric: The name of a metric.
            marks: How best, second best, a difference and the error are written.

        Returns:
            The text; "" if it was not measured.
        """
        if metric not in self.values.get(method, {}):
            return ""
        mean, error = self.mean(method, metric), self.standard_error(method, metric)
        first, second = self.best(metric)
        text = f"{mean:.4g}"
        text = marks.best.format(text) if method in first else marks.second.format(text) if method in second else text
        star = marks.differs if self.p_value(method, metric) < 0.05 else ""
        return f"{text}{star}{marks.between}{error:.2g}" if error == error else text

    def __str__(self) -> str:
        return self.to_markdown()

    def __repr__(self) -> str:
        return f"Comparison({len(self.methods)} methods, {', '.join(self.metrics)}; {self.rows} rows)"

    def plot(self) -> Picture:
        """Every metric with its standard errors, on a logarithmic axis where methods are far apart; needs matplotlib.

        Example:
            >>> import torch
            >>> import cafexai
            >>> model, x = torch.nn.Linear(2, 1), torch.rand(4, 2)
            >>> result = cafexai.compare(model, x, methods=["cafe", "lrp"], metrics=["complexity"])
            >>> result.plot().savefig("comparison.png")
        """
        from .picture import picture

        return picture(self)

    def _repr_html_(self) -> str:
        from .picture import page

        return page(self)


def title(metric: str) -> str:
    return METRICS[metric].title if metric in METRICS else metric
