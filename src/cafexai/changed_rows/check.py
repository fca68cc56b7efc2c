"""Does the model really do that? The strongest features of a row set to the baseline, beside what their scores predict."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._engine.evaluate import Asked, NotEvaluated, evaluate, without
from .._engine.feature_sets import FeatureSets, feature_sets
from .._engine.job import Batch, Job
from .._engine.model import Subject
from .._extras import needs
from .._inputs.images import CELLS
from ..explanation import Explanation
from ..plotting.labels import shorten
from ..plotting.row_lines import align_numbers, baseline_texts, number, strongest_first, value_texts

if TYPE_CHECKING:
    import pandas

    from ..plotting.picture import Picture


AT_ONCE = 256  # changed copies of a row that the model gets at once


@dataclass(frozen=True)
class ChangeCheck:
    """What scores predict, and what the model does when features are set to the baseline; ``CAFE.check_by_changing`` makes it.

    Args:
        row: The name of the row.
        target: The explained output.
        features: The features, the strongest first, by |net|.
        values: Their values.
        baselines: What they were set to.
        predicted: (features,): their net scores.
        observed: (features,): f(x) - f(x with this feature at its baseline); of several baselines the mean.
        predicted_together: (features,): cumulated net scores.
        observed_together: (features,): like observed, with this feature and all before it at the baseline.
        evaluations: How many evaluations of the model this took.

    Example:
        >>> import torch
        >>> from cafexai import CAFE
        >>> cafe = CAFE(torch.nn.Linear(2, 1))
        >>> found = cafe.check_by_changing(cafe.explain(torch.ones(1, 2)), 0)
        >>> found.evaluations
        4
    """

    row: str
    target: str
    features: tuple[str, ...]
    values: tuple[str, ...]
    baselines: tuple[str, ...]
    predicted: Tensor
    observed: Tensor
    predicted_together: Tensor
    observed_together: Tensor
    evaluations: int

    @property
    def correlation(self) -> float | None:
        """Pearson's correlation of predicted and observed changes, one feature at a time; None below three features."""
        return pearson(self.predicted, self.observed)

    @property
    def correlation_together(self) -> float | None:
        """The same for features that are set to the baseline one after the other."""
        return pearson(self.predicted_together, self.observed_together)

    @property
    def sentence(self) -> str:
        """The result in one line, for the table of a row."""
        count = len(self.features)
        if not count:
            return "checked by changing: no feature differs from the baseline"
        told = f"checked by changing: {count} feature{'s' * (count > 1)} set to the baseline one at a time"
        fit = self.correlation
        if fit is None:
            change = f"{number(self.observed[0].item())} instead of the predicted {number(self.predicted[0].item())}"
            return f"{told}, the strongest changed the output by {change}"
        last = f"{number(self.observed_together[-1].item())} (predicted {number(self.predicted_together[-1].item())})"
        return f"{told}, correlation of predicted and observed changes {fit:.2f}; all of them together {last}"

    def to_frame(self) -> pandas.DataFrame:
        """One line per feature; needs pandas.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> cafe = CAFE(torch.nn.Linear(2, 1))
            >>> found = cafe.check_by_changing(cafe.explain(torch.ones(1, 2)), 0)
            >>> len(found.to_frame())
            2
        """
        columns: dict[str, Any] = {"feature": self.features, "value": self.values, "baseline": self.baselines}
        for name in ("predicted", "observed", "predicted_together", "observed_together"):
            columns[name] = getattr(self, name).tolist()
        return needs("pandas", "tabular").DataFrame(columns)

    def plot(self) -> Picture:
        """Predicted beside observed changes, single and cumulated; needs matplotlib.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> cafe = CAFE(torch.nn.Linear(2, 1))
            >>> found = cafe.check_by_changing(cafe.explain(torch.ones(1, 2)), 0)
            >>> found.plot().savefig("check.png")
        """
        from ..plotting.change_plots import check_picture

        return check_picture(self)

    def __str__(self) -> str:
        heads = ("", "predicted", "observed", "pred. together", "obs. together")
        sides = (self.predicted, self.observed, self.predicted_together, self.observed_together)
        numbers = align_numbers([value for side in sides for value in side.tolist()], sign="+") if self.features else []
        count = len(self.features)
        columns = [[head, *numbers[i * count : (i + 1) * count]] for i, head in enumerate(heads[1:])]
        names = ["", *(shorten(f"{n} = {v}" if v else n, 40) for n, v in zip(self.features, self.values, strict=True))]
        wide = max(map(len, names))
        lines = [f"Does the model do what the scores of {self.row} say? Changes of {self.target}"]
        for cells in zip(names, *columns, strict=True):
            lines.append("  ".join([cells[0].ljust(wide), *(cell.rjust(14) for cell in cells[1:])]))
        return "\n".join([*lines, self.sentence, f"{self.evaluations} evaluations of the model"])


def check_explanation(subject: Subject, explanation: Explanation, row: int | str, most: int) -> ChangeCheck:
    """Set the strongest features of one row to the baseline, one at a time and one after the other."""
    call = "check_by_changing(explanation, row)"
    if most < 1:
        raise ValueError(f"check_by_changing(..., most={most}): give the number of features, at least 1.")
    refuse_layers(explanation, call)
    place = explanation.position(row)
    one = explanation[place]
    job = dataclasses.replace(explanation.job, subject=subject)
    sets = feature_sets(job, [x.shape[1:] for x in job.given.tensors]).take(slice(place, place + 1))
    up, down, nets = (_of_sets(sets, one.flat(part))[0] for part in (one.positive, one.negative, one.combined))
    names, values, starts = _about(one, sets)
    chosen = [i for i in strongest_first("net", up, down, nets) if names[i] and (up[i] > 0 or down[i] > 0)][:most]
    observed, together, count = _changes(job, one, slice(place, place + 1), sets, chosen)
    predicted = nets[chosen].double().cpu()
    return ChangeCheck(
        row=f"row {place}" if one.row_names is None else one.row_names[0],
        target=one.target_name(),
        features=tuple(names[i] for i in chosen),
        values=tuple(values[i] for i in chosen),
        baselines=tuple(starts[i] for i in chosen),
        predicted=predicted,
        observed=observed,
        predicted_together=predicted.cumsum(0),
        observed_together=together,
        evaluations=count,
    )


def refuse_layers(explanation: Explanation, call: str) -> None:
    """Refuse explanations whose inputs are not known, and those of layers."""
    if explanation.job is None:
        raise ValueError(f"{call}: the explanation was read from a file or copied. Explain the rows again first.")
    question = explanation.job.question
    if question.layer is not None or question.target_layer is not None:
        raise ValueError(f"{call}: it is of a layer. Features are changed at the inputs; explain the output from these.")


def _of_sets(sets: FeatureSets, flat: Tensor) -> Tensor:
    """Scores of features; of elements, where the explanation has one score for each."""
    return flat if flat.shape[1] == sets.count else sets.sum(flat)


def _about(one: Explanation, sets: FeatureSets) -> tuple[list[str], list[str], list[str]]:
    """Names, values and baselines of the features; cells of images are named by their place."""
    if one.flat(one.combined).shape[1] != sets.count:
        nothing = [""] * sets.count
        return [f"cell {i // CELLS}, {i % CELLS}" for i in range(sets.count)], nothing, nothing
    nothing = [""] * sets.count
    return list(one.names()), value_texts(one) or nothing, baseline_texts(one) or nothing


def _changes(job: Job, one: Explanation, rows: slice, sets: FeatureSets, chosen: list[int]) -> tuple[Tensor, Tensor, int]:
    """What the output changes by for each feature alone and for each with all before it, averaged over baselines."""
    steps = len(chosen)
    if not steps:
        return torch.zeros(0).double(), torch.zeros(0).double(), 0
    away = torch.zeros(2 * steps, sets.count, dtype=torch.bool)
    for step, feature in enumerate(chosen):
        away[step, feature] = True
        away[steps + step, chosen[: step + 1]] = True
    try:
        change = change_without(job, one, rows, sets, away)
    except NotEvaluated as error:
        raise ValueError(f"check_by_changing(explanation, row): the model cannot be evaluated there ({error}).") from error
    return change[:steps], change[steps:], len(away) * len(job.stack)


def change_without(job: Job, one: Explanation, rows: slice, sets: FeatureSets, away: Tensor) -> Tensor:
    """f(x) - f(x without some features) of one row, for each line of ``away`` (changes, features); the mean over baselines.

    Raises:
        NotEvaluated: The output is not finite there.
    """
    asked = Asked(one.target, one.against, one.meta.final)
    index = FeatureSets(None if sets.index is None else sets.index.reshape(-1, sets.index.shape[-1])[0], sets.count)
    outputs = []
    for reference in range(len(job.stack)):
        batch = job.batch(rows, reference)
        parts = (part for some in away.split(AT_ONCE) for part in _parts(batch, some, asked))
        found = [evaluate(job, without(part, index.spread(some)), own) for part, some, own in parts]
        outputs.append(torch.cat(found).double().cpu())
    return one.output.double().cpu() - torch.stack(outputs).mean(0)


def _parts(batch: Batch, away: Tensor, asked: Asked) -> Iterator[tuple[Batch, Tensor, Asked]]:
    """The row once for each change; one at a time if forward takes further arguments."""
    if batch.extra or batch.options:
        for some in away:
            yield batch, some[None], asked
        return
    count = len(away)

    def repeat(x: Tensor | None) -> Any:
        return None if x is None else x.expand(count, *x.shape[1:])

    tensors, references = tuple(map(repeat, batch.tensors)), tuple(map(repeat, batch.references))
    many = dataclasses.replace(batch, tensors=tensors, references=references, rows=slice(0, count))
    yield many, away.to(batch.tensors[0].device), Asked(repeat(asked.target), repeat(asked.against), asked.final)


def pearson(one: Tensor, other: Tensor) -> float | None:
    """Their correlation; None below three numbers, or if one of both is constant."""
    if len(one) < 3 or one.std() == 0 or other.std() == 0:
        return None
    return float(torch.corrcoef(torch.stack([one, other]))[0, 1])
