"""Hidden conflicts of the rows of an explanation: which features are compared, and their exact map."""

from __future__ import annotations

import dataclasses
import logging

import torch
from torch import Tensor

from .._core.variant import Variant
from ..errors import UnsupportedOperation
from ..explanation import Explanation, HiddenConflicts
from ..explanation.conflict import START
from ..explanation.hidden_conflicts import hidden_price
from .explain_job import explain_job
from .feature_sets import FeatureSets, feature_sets, side_by_side
from .job import Job
from .pair_conflicts import count_evaluations, map_pairs
from .prepare_job import Explainer, find_features, make_settings

LOG = logging.getLogger("cafexai")
WHOLE = 24  # so many features are all compared
STRONGEST = 8  # of more features, so many: those that cancel most inside the model
CARRIED = 200  # features for which that is computed; of more, the largest nets are taken


def find_hidden(explainer: Explainer, explanation: Explanation, most: int | None, chosen: int | None) -> HiddenConflicts:
    """The exact map of pairs of features of each row, and what single removals do not show of it."""
    call, job = "hidden_conflicts", explanation.job
    if job is None:
        raise ValueError(f"{call}(explanation): it was read from a file or sent here. Explain the rows again: cafe.explain(x).")
    if job.question.layer is not None:
        raise ValueError(f"{call}(explanation): it is about the units of a layer. Give an explanation of inputs.")
    if chosen is not None and not 0 <= chosen < len(job.stack):
        raise ValueError(f"{call}(..., baseline={chosen}): there are {len(job.stack)} baselines, counted from 0.")
    baseline = middle_baseline(explanation) if chosen is None else chosen
    job = dataclasses.replace(job, subject=explainer.subject)
    of = feature_sets(job, [x.shape[1:] for x in job.given.tensors])
    count = count_compared(of.count, most)
    LOG.info(hidden_price(count_evaluations(count), len(explanation)))
    features = torch.arange(of.count).expand(len(explanation), -1)
    if count < of.count:
        strength = _strength(explainer, job, explanation, of, baseline)
        features = strength.topk(count, dim=1).indices.sort(1).values.cpu()
    found = map_pairs(job, explanation, features, baseline)
    names = tuple(tuple(_names(explanation, of, row)[i] for i in places) for row, places in enumerate(features.tolist()))
    middle = chosen is None and explanation.sides is not None and len(job.stack) > 1
    about = (baseline, len(job.stack), job.typical, middle, of.count)
    made = HiddenConflicts(names, found.conflict, found.visible, found.alone, found.beside, found.evaluations, *about)
    return dataclasses.replace(made, moved=_moved(explanation, baseline), row_names=explanation.row_names)


def _moved(explanation: Explanation, baseline: int) -> Tensor:
    """How far the output of every row is from that at the baseline."""
    sides = explanation.sides
    start = explanation.baseline_output if sides is None else sides[:, baseline, START]
    return (explanation.output - start).abs().double().cpu()


def count_compared(features: int, most: int | None = None) -> int:
    """How many of the features of a row are compared."""
    return min(features, most) if most is not None else STRONGEST if features > WHOLE else features


def middle_baseline(explanation: Explanation) -> int:
    """Of several baselines the one whose output is the middle one, on average over the rows; the first if that is not known."""
    if explanation.sides is None or not len(explanation):
        return 0
    starts = explanation.sides[:, :, START].double().mean(0)
    return int(starts.argsort(stable=True)[(len(starts) - 1) // 2])


def _names(explanation: Explanation, of: FeatureSets, row: int) -> tuple[str, ...]:
    names = explanation.names(row)
    return names if len(names) == of.count else tuple(f"cell {place}" for place in range(of.count))


def _strength(explainer: Explainer, job: Job, explanation: Explanation, of: FeatureSets, baseline: int) -> Tensor:
    """How much every feature cancels of others inside the model, (rows, features); for very many, the size of its net."""
    grouped = explanation.flat(explanation.combined)
    nets = grouped if grouped.shape[1] == of.count else of.sum(side_by_side(explanation.parts(explanation.combined)))
    if (
        of.count > CARRIED or of.notes or (of.by_row and job.given.words is None)
    ):  # the feature variant has one set for all rows
        return nets.abs()
    feature = explainer._replace(variant=Variant.preset("feature"))
    target, against = explanation.target, explanation.against
    request = job.request.replace(
        pairs=True, conflict="net", target=target if target.shape[1] else None, against=against, show_progress=False
    )
    settings = make_settings(feature, job.given, True)
    features = find_features(feature.variant, job.given, request.feature_groups, job.question)
    own = dataclasses.replace(job, settings=settings, features=features, request=request, stack=[job.stack[baseline]])
    try:
        pairs = explain_job(own, {**explanation.meta.settings, **dataclasses.asdict(feature.variant)})
    except UnsupportedOperation:
        return nets.abs()
    assert isinstance(pairs, Explanation)
    assert pairs.conflict_pairs is not None
    amounts = pairs.conflict_pairs[:, :-1, :-1]
    return amounts.sum(1) + amounts.sum(2)
