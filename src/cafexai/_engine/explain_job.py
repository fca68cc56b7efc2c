"""Carry out a job: chunks of rows, forward and back, and from the pieces the explanations."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .._core.backward import Outcome, Passed
from .._core.tolerance import all_finite
from .._inputs import list_names
from .._inputs.groups import default_names
from .._inputs.shown_baselines import same_as_baseline
from .._inputs.token_targets import name_next_tokens
from ..errors import InternalError
from ..explanation import Explanation, Explanations
from .ablation import cut_features, model_at_baseline
from .assemble import Piece, average_baselines, by_word, join_batches, pieces, sum_groups
from .attempt import try_plain
from .batches import Measure, R, Results, carry_out
from .diagnose import refuse_chance, refuse_explained, refuse_rows
from .forward import plain_output, redraw_output
from .job import Job
from .output import text_rows
from .sides import measure_conflict

SHARED = (
    "inputs",
    "baselines",
    "display",
    "baseline_display",
    "at_baseline",
)  # what the explanations of one job have in common is there once


def explain_job(job: Job, meta: Mapping[str, Any]) -> Explanation | Explanations:
    """One explanation; or several, by class, by c or by both. ``meta`` describes the explainer."""
    entries = {key: show_features(job, explanation) for key, explanation in explain_elements(job, meta).items()}
    return _by_what_differs(entries, job.question.several_c is not None, job.question.every_class)


def explain_elements(job: Job, meta: Mapping[str, Any]) -> dict[Any, Explanation]:
    """Explanations by c and class, with a score for each element of the inputs."""
    question, groups = job.question, job.request.feature_groups
    meta = {**meta, "typical": True} if job.typical else meta
    kind = getattr(job.subject.model, "output_kind", "logit")
    meta = meta if kind == "logit" else {**meta, "output_kind": kind}
    several: tuple[Any, ...] = (meta["c"],) if question.several_c is None else question.several_c
    finish = functools.partial(pieces, every_class=question.every_class)
    entries: dict[Any, Explanation] = {}
    measure = functools.partial(measure_conflict, job)
    for (place, number), chunks in run_job(job, finish, average_baselines, "explain", measure).items():
        c = several[place]
        settings = {**meta, "c": dict(c) if isinstance(c, Mapping) else c, "baselines": len(job.stack)}
        explanation = join_batches(chunks, job.given, settings)
        if (text := text_rows(job)) is not None and not question.every_class:
            explanation = explanation.replace(target_names=name_next_tokens(text, explanation.target, explanation.against))
        if len(job.stack) > 1 and question.layer is None:
            explanation = explanation.replace(at_baseline=same_as_baseline(job.given.tensors, job.stack))
        if explanation.frozen and question.layer is None:
            explanation = _with_what_was_frozen(job, chunks, explanation, groups is not None)
        if entries:
            first = next(iter(entries.values()))
            shared = first.flat_fields()
            explanation = explanation.replace(**{name: shared[name] for name in SHARED})
        entries[place if isinstance(c, Mapping) else c, number] = explanation
    return entries


def show_features(job: Job, explanation: Explanation) -> Explanation:
    """The explanation with a score for each feature as the user knows it: groups, words."""
    if job.request.feature_groups is not None:
        explanation = sum_groups(explanation, job.request.feature_groups)
    if job.given.words is not None:
        explanation = by_word(explanation, job.given.words)
    return dataclasses.replace(explanation, job=job.without_model())


def attribute_job(job: Job) -> tuple[tuple[Tensor, ...], Tensor]:
    """The net scores of each input, and what they lack to the change of the output, (rows,)."""
    (outcomes,) = run_job(job, lambda passed: (job.settings.carrier.net(passed),), _mean, "attribute").values()
    combined = tuple(map(_join_results, zip(*(outcome.net for outcome in outcomes), strict=True)))
    return combined, _join_results([outcome.lack for outcome in outcomes])


def run_job(
    job: Job,
    finish: Callable[[Passed], Sequence[R]],
    mean: Callable[[list[R]], R],
    call: str,
    measure: Measure = None,
) -> Results[R]:
    """Carry out the job; where the model itself does not take such rows, say so."""
    try:
        return carry_out(job, finish, mean, measure)
    except Exception as error:
        _refuse_missing(job, error, call)
        if isinstance(error, (RuntimeError, ValueError)):
            one = job.batch(slice(0, 1))
            refuse_rows(error, call, job.subject.model, job.given.tensors, lambda: plain_output(job, one))
        refuse_chance(error, call, lambda seed: redraw_output(job, job.batch(), seed))
        refuse_explained(error, call, lambda: plain_output(job, job.batch()))
        raise


def _refuse_missing(job: Job, error: Exception, call: str) -> None:
    """Name the missing values, if there are some (``allow_nan``) and the model by itself does not handle them."""
    missing = torch.cat([x.isnan().reshape(len(x), x.shape[1:].numel()).any(0) for x in job.given.tensors])
    if not bool(missing.any()) or isinstance(error, InternalError):
        return
    output = try_plain(job, job.batch())
    if isinstance(output, Tensor) and all_finite(output):
        return
    names = job.given.names or default_names([x.shape[1:] for x in job.given.tensors])
    found = [names[place] for place in missing.nonzero()[:, 0].tolist()] if len(names) == len(missing) else []
    told = f"{list_names(found) or 'values'} {'is' if len(found) == 1 else 'are'} missing"
    what = "its output is not finite" if output is not None else f"{type(error).__name__}: {str(error)[:200]}"
    raise ValueError(
        f"{call}(...): {told}, and the model does not handle that ({what}). allow_nan=True is for models that do: fill or drop "
        "missing values first."
    ) from error


def _with_what_was_frozen(job: Job, chunks: Sequence[Piece], explanation: Explanation, groups: bool) -> Explanation:
    """The explanation with the effects of the model that its scores do not show."""
    cut: Mapping[str, Tensor] = {}
    if all(chunk.cut is not None for chunk in chunks):
        reached = [torch.cat(same) for same in zip(*(chunk.cut or [] for chunk in chunks), strict=True)]
        cut = cut_features(job, explanation, reached, not (groups and job.features is not None))
    at_baseline = explanation.checks.model_at_baseline
    if job.settings.biases_in_reference:
        at_baseline = model_at_baseline(job, explanation)
    return explanation.replace(cut=cut, model_at_baseline=at_baseline)


def _by_what_differs(entries: dict[Any, Explanation], several_c: bool, every_class: bool) -> Explanation | Explanations:
    """A single explanation, or several by c, by class or by both."""
    if several_c and every_class:
        return Explanations(("c", "target"), entries)
    if several_c or every_class:
        return Explanations(("c" if several_c else "target",), {key[every_class]: e for key, e in entries.items()})
    return next(iter(entries.values()))


def _join_results(chunks: Sequence[Tensor]) -> Tensor:
    return chunks[0] if len(chunks) == 1 else torch.cat(list(chunks))


def _mean(against: list[Outcome]) -> Outcome:
    """The net scores and what they lack, averaged over baselines."""
    if len(against) == 1:
        return against[0]
    count = len(against)
    features = [torch.stack(parts).sum(0) / count for parts in zip(*(one.net for one in against), strict=True)]
    return Outcome(features, {}, torch.stack([one.lack for one in against]).sum(0) / count)
