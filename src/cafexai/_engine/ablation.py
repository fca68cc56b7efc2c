"""The model once more, at other inputs: what the scores do not say.

- A feature that the model makes an integer, a number of Python or a truth value of, or detaches, gets no score for what it does
  behind that. To tell this from "no effect", it is named, with what the output changes by at its baseline.
- Where attention or norms are frozen, the output that scores start from is not that of the model at the baseline.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .._carriers.path import PathScores
from .._core.tolerance import all_finite
from .._inputs.groups import default_names
from .._inputs.target import pick_outputs
from ..explanation import Explanation
from .attempt import has_outputs, try_plain
from .faults import refuse_own_fault
from .forward import forward
from .job import Batch, Job
from .pauses import pause
from .per_row import has_row_arguments, settle

MOST = 16  # features that are put to their baseline at most
ROWS = 1024  # rows at a time
NOTHING = 1e-6  # a change that is smaller, beside the outputs, is rounding


def cut_features(job: Job, explanation: Explanation, reached: Sequence[Tensor], alone: bool) -> dict[str, Tensor]:
    """Features that were cut off -> (rows,): model(x) - model(x with the feature at its baseline).

    It is 0 in rows in which it is not cut off, and NaN if there are too many such features to try, or the model fails there.

    ``reached`` says which elements of the inputs had a part in a value that was cut. To these come features without any score
    although they differ from their baseline, if putting them there shows that they do count; ``alone`` says that each element
    has a score of its own.
    """
    flat = explanation.flat
    inputs, baselines = (explanation.parts(part) for part in (explanation.inputs, explanation.baselines))
    pairs = list(zip(inputs, baselines, strict=True))
    differs = flat(tuple((x != r) & (x.is_floating_point() | (r >= 0)) for x, r in pairs))  # -1: there is no code for none
    cut = flat(tuple(reached))
    suspected = differs & (cut | ((flat(explanation.positive) + flat(explanation.negative) == 0) & alone))
    names = explanation.features.names or default_names([x.shape[1:] for x in inputs])
    order = suspected.sum(0).argsort(descending=True, stable=True)
    found: dict[str, Tensor] = {}
    for number, place in enumerate(order[: int(suspected.any(0).sum())].tolist()):
        rows = suspected[:, place] & cut[:, place]
        amount = torch.full_like(explanation.output, torch.nan)
        if number < MOST and not job.question.every_class:
            found_there = _without(job, explanation, place)
            without = amount if found_there is None else found_there.to(explanation.output)
            effect = explanation.output - without
            none = effect.abs() <= NOTHING * (explanation.output.abs() + without.abs())
            rows = suspected[:, place] & (cut[:, place] | ~none)
            amount = torch.where(rows, effect, torch.zeros_like(effect))
        if bool(rows.any()):
            found[names[place]] = amount
    return found


def _without(job: Job, explanation: Explanation, place: int) -> Tensor | None:
    """The explained output of all rows with one feature at its baseline; None if the model fails there."""
    source = 0
    while place >= job.given.tensors[source][0].numel():
        place -= job.given.tensors[source][0].numel()
        source += 1

    def changed(batch: Batch) -> tuple[Tensor, ...]:
        x, baseline = batch.tensors[source], explanation.parts(explanation.baselines)[source][batch.rows]
        new = x.flatten(1).clone()
        new[:, place] = baseline.flatten(1)[:, place].to(x)
        return (*batch.tensors[:source], new.view(x.shape), *batch.tensors[source + 1 :])

    return _outputs(job, explanation, changed)


def model_at_baseline(job: Job, explanation: Explanation) -> Tensor | None:
    """The explained output of the model itself at the baselines, the mean over several; None if it has none there. (rows,)"""
    found = []
    for number, stack in enumerate(job.stack):
        if any(r is None and not x.is_floating_point() for r, x in zip(stack, job.given.tensors, strict=True)):
            return None

        def at_baseline(batch: Batch) -> tuple[Tensor, ...]:
            pairs = zip(batch.references, batch.tensors, strict=True)
            return tuple(torch.zeros_like(x) if r is None else r.to(x) for r, x in pairs)

        outputs = _outputs(job, explanation, at_baseline, number)
        if outputs is None:
            return None
        found.append(outputs)
        pause()
    return torch.stack(found).mean(0)


def _outputs(
    job: Job, explanation: Explanation, inputs: Callable[[Batch], tuple[Tensor, ...]], reference: int = 0
) -> Tensor | None:
    """The explained output of all rows, at other inputs; None if the model fails or is not finite there."""
    settings = dataclasses.replace(job.settings, carrier=PathScores)
    target, against = explanation.target, explanation.against
    request = job.request.replace(target=target if target.shape[1] else None)
    job = dataclasses.replace(job, settings=settings, features=None, request=request)
    outputs, step = [], job.request.batch_size or ROWS
    chunks = [slice(start, min(start + step, job.given.rows)) for start in range(0, job.given.rows, step)]
    if has_row_arguments(job):
        try:
            settle(job, chunks)
        except ValueError:  # only the user can say which arguments are by row
            return None
    for rows in chunks:
        batch = job.batch(rows, reference)
        batch = dataclasses.replace(batch, tensors=inputs(batch))
        if explanation.meta.final is None:
            found = _plain_there(job, batch, target[rows], None if against is None else against[rows])
        else:
            found = _logit_there(job, batch)
        if found is None or found.ndim != 1 or not all_finite(found):
            return None
        outputs.append(found)
    return torch.cat(outputs)


def _plain_there(job: Job, batch: Batch, target: Tensor, against: Tensor | None) -> Tensor | None:
    output = try_plain(job, batch)
    if output is None or not has_outputs(output, target, against):
        return None
    return pick_outputs(output, target, against)


def _logit_there(job: Job, batch: Batch) -> Tensor | None:
    """The logit is inside of the model, so that a pass on scored values finds it."""
    try:
        passed = forward(job, batch, job.settings)
    except Exception as error:
        if try_plain(job, batch) is not None:
            refuse_own_fault(error, "explain")
        return None
    passed.run.release()
    return passed.chosen.value
