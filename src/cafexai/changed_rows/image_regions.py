"""Does the model really look there? Every region of an image set to the baseline, beside the score of the region."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from .._engine.evaluate import NotEvaluated
from .._engine.feature_sets import FeatureSets
from .._engine.model import Subject
from .._extras import needs
from .._inputs.images import channels_last
from ..explanation import Explanation
from ..plotting.regions import Cut, region_scores
from .check import change_without, pearson, refuse_layers

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Occlusion:
    """Scores of regions, and what the model does when each is set to the baseline; ``CAFE.occlude_regions`` makes it.

    Args:
        names: How people know the regions.
        index: (height, width): the region of every pixel.
        predicted: (regions,): their net scores.
        observed: (regions,): f(x) - f(x with this region at its baseline); of several baselines the mean.
        evaluations: How many evaluations of the model this took.

    Example:
        >>> import torch
        >>> from cafexai import CAFE
        >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
        >>> cafe = CAFE(net)
        >>> found = cafe.occlude_regions(cafe.explain(torch.rand(1, 1, 8, 8)), 0, cells=2)
        >>> found.evaluations
        4
    """

    names: tuple[str, ...]
    index: np.ndarray
    predicted: np.ndarray
    observed: np.ndarray
    evaluations: int

    @property
    def correlation(self) -> float | None:
        """Pearson's correlation of predicted and observed; None below three regions, or if one of both is constant."""
        return pearson(torch.from_numpy(self.predicted), torch.from_numpy(self.observed))

    def to_frame(self) -> pandas.DataFrame:
        """One line per region; needs pandas.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
            >>> cafe = CAFE(net)
            >>> found = cafe.occlude_regions(cafe.explain(torch.rand(1, 1, 8, 8)), 0, cells=2)
            >>> len(found.to_frame())
            4
        """
        columns = {"region": self.names, "predicted": self.predicted, "observed": self.observed}
        return needs("pandas", "tabular").DataFrame(columns)


def occlude(subject: Subject, explanation: Explanation, row: int | str, cut: Cut) -> Occlusion:
    """Set every region of one image to the baseline, one at a time."""
    call = "occlude_regions(explanation, row)"
    refuse_layers(explanation, call)
    place = explanation.position(row)
    found = region_scores(explanation, place, cut)
    shape = explanation.parts(explanation.combined)[0].shape[1:]
    index = torch.from_numpy(found.index)
    whole = (index[..., None] if channels_last(shape) else index[None]).expand(shape)
    count = len(found.names)
    job = dataclasses.replace(explanation.job, subject=subject)
    sets = FeatureSets(whole.flatten(), count)
    try:
        change = change_without(job, explanation[place], slice(place, place + 1), sets, torch.eye(count, dtype=torch.bool))
    except NotEvaluated as error:
        raise ValueError(f"{call}: the model cannot be evaluated there ({error}).") from error
    return Occlusion(found.names, found.index, found.net, change.numpy(), count * len(job.stack))
