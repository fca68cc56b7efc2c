"""Two blocks A and B of features, and four explanations: of x against x without A, and without B; of A and of B alone.

The first two give ``if_missing``: the scores of A sum to f(x) - f(x without A), those of B likewise. Half the sum of all four
is the Shapley value of the two blocks, shared out inside each by CAFE. It sums to f(x) - f(baseline), because the outputs in
between cancel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .._core.tolerance import tolerance
from .._engine.check import WHOLE
from .._engine.explain_job import explain_elements, show_features
from .._engine.job import Job
from .._inputs.groups import Grouping
from .._inputs.prepare import model_dtype
from ..errors import CompletenessError
from ..explanation import Explanation, Tensors
from ..explanation.conflict import MEASURED, NET
from .cut import first_block

NOTE = "Explained in two blocks ({how}): scores depend on which features share a block."
Rows = tuple[Tensor, ...]  # one tensor per input


def explain_in_blocks(job: Job, meta: Mapping[str, Any], blocks: Any) -> Explanation:
    """Shapley values of two blocks, distributed inside them, and what is lost without each feature.

    Args:
        job: What is explained.
        meta: How the explanation is made.
        blocks: The first block, as ``CAFE.explain_blocks`` takes it.

    Returns:
        The explanation, with ``if_missing`` and ``blocks``.
    """
    _refuse(job)
    job = dataclasses.replace(job, request=job.request.replace(conflict=NET))
    inside, how = first_block(job, blocks)
    x = job.given.tensors
    starts = [_fill(references, x) for references in job.stack]
    only_a, only_b = [_mix(inside, x, start) for start in starts], [_mix(inside, start, x) for start in starts]
    without_a = _explain(dataclasses.replace(job, stack=only_b), meta)
    pairs = [pair for a, b, start in zip(only_a, only_b, starts, strict=True) for pair in ((x, a), (a, start), (b, start))]
    others = _explain_pairs(_with_target(job, without_a), meta, pairs)
    without_b, alone_a, alone_b = (Mean(others[place::3]) for place in range(3))
    walk = (Mean([without_a]), without_b, alone_a, alone_b)
    output, frozen = without_a.output, tuple(dict.fromkeys(line for one in walk for line in one.first.frozen))
    combined = _halves([one.scores("combined") for one in walk])
    baseline_output = alone_a.number("baseline_output")
    if frozen:  # what the scores start from is another model's output
        ends = [one.number("output") - one.number("baseline_output") for one in walk]
        baseline_output = output - sum(ends, torch.zeros_like(output)) / 2
    lost = torch.stack([output - alone_b.number("output"), output - alone_a.number("output")], 1)
    found = without_a.replace(
        positive=_like(without_a, _halves([one.scores("positive") for one in walk])),
        negative=_like(without_a, _halves([one.scores("negative") for one in walk])),
        combined=_like(without_a, combined),
        if_missing=_like(
            without_a, [a + b for a, b in zip(walk[0].scores("combined"), walk[1].scores("combined"), strict=True)]
        ),
        blocks=_like(without_a, [part.expand(tensor.shape) for part, tensor in zip(inside, x, strict=True)]),
        lost=lost,
        baselines=_like(without_a, alone_a.scores("baselines")),
        baseline_output=baseline_output,
        completeness_error=sum(part.flatten(1).double().sum(1) for part in combined) - (output - baseline_output).double(),
        output_error=max(one.first.checks.output_error for one in walk),
        model_at_baseline=alone_a.number("model_at_baseline"),
        cut={**without_b.first.checks.cut, **without_a.checks.cut},
        conflict_info=None,
        conflict_pairs=None if without_a.conflict_pairs is None else _halves([one.scores("conflict_pairs") for one in walk])[0],
        frozen=frozen,
        notes=(*dict.fromkeys(note for one in walk for note in one.first.notes), NOTE.format(how=how)),
        settings={**without_a.meta.settings, "blocks": how},
    )
    if not frozen:
        _check(job, found)
    return show_features(job, found)


def _refuse(job: Job) -> None:
    if not job.settings.biases_in_reference:
        raise ValueError(
            "explain_blocks(...): in this variant biases have scores of their own, which would count in each of the blocks. "
            'Set biases="reference" too, or use the default variant.'
        )
    if job.request.conflict == MEASURED:
        raise ValueError(
            'explain_blocks(..., conflict="measured"): its conflict comes from net scores. Drop conflict=, or use explain.'
        )
    for place, x in enumerate(job.given.tensors):
        if not x.is_floating_point() and any(references[place] is None for references in job.stack):
            raise ValueError(
                "explain_blocks(...): codes can only be left out in favour of another code, and there is none. Give one: "
                'baselines="mask" if the tokenizer has a mask token, else an id, such as baselines=tokenizer.eos_token_id.'
            )


def _check(job: Job, e: Explanation) -> None:
    """Refuse an ``if_missing`` that misses, in one of the blocks, what the model itself loses without that block."""
    assert e.checks.lost is not None
    size = max(e.output.abs().max().item(), (e.output[:, None] - e.checks.lost).abs().max().item(), 1e-30)
    error = e.if_missing_error.abs().max().item() / size
    limit = max(*(tolerance(dtype) for dtype in (e.output.dtype, model_dtype(job.subject.model)[0])), WHOLE)
    if not error <= limit:
        raise CompletenessError(
            f"explain_blocks(...): the scores of a block miss what the model loses without it by {error:.3g} of the largest "
            f"output (allowed {limit:.3g}). Rows influence each other, or a rule is wrong at the baseline."
        )


def _fill(references: Sequence[Tensor | None], x: Rows) -> Rows:
    return tuple(torch.zeros_like(v) if r is None else r.to(v) for r, v in zip(references, x, strict=True))


def _mix(inside: Rows, first: Rows, second: Rows) -> Rows:
    """The first block of one row, the rest of another."""
    return tuple(torch.where(mask, a, b) for mask, a, b in zip(inside, first, second, strict=True))


def _with_target(job: Job, explained: Explanation) -> Job:
    """The job aimed at the outputs that were explained: rows without a block may be of another class."""
    target = explained.target if explained.target.shape[1] else None
    return dataclasses.replace(job, request=job.request.replace(target=target, against=explained.against))


def _explain(job: Job, meta: Mapping[str, Any]) -> Explanation:
    (explanation,) = explain_elements(job, meta).values()
    return explanation


def _repeat_groups(groups: Any, count: int) -> Any:
    """The groups of rows that are explained several times."""
    if not isinstance(groups, Grouping) or groups.index.ndim == 1:
        return groups
    return dataclasses.replace(groups, index=groups.index.repeat(count, 1))


def _explain_pairs(job: Job, meta: Mapping[str, Any], pairs: Sequence[tuple[Rows, Rows]]) -> list[Explanation]:
    """Explain rows against references, all at once if nothing among the arguments of forward is in the way."""
    rows, count = job.given.rows, len(pairs)
    given = dataclasses.replace(job.given, tokens=None, display=None, words=None)
    if not _can_repeat(job):
        jobs = [dataclasses.replace(job, given=dataclasses.replace(given, tensors=x), stack=[r]) for x, r in pairs]
        return [_explain(one, meta) for one in jobs]
    tensors, references = (tuple(map(torch.cat, zip(*side, strict=True))) for side in zip(*pairs, strict=True))
    own = job.per_row or ()
    parts = {key: torch.cat([part] * count) if key in own else part for key, part in job.arguments().items()}
    extra = parts if isinstance(job.extra, dict) else tuple(parts.values())
    aims = {
        word: aim.repeat(count, 1) if isinstance(aim, Tensor) else aim
        for word, aim in (("target", job.request.target), ("against", job.request.against))
    }
    every = dataclasses.replace(
        job,
        given=dataclasses.replace(given, tensors=tensors),
        stack=[references],
        extra=extra,
        request=job.request.replace(**aims, feature_groups=_repeat_groups(job.request.feature_groups, count)),
    )
    explanation = _explain(every, meta)
    return [explanation[place * rows : (place + 1) * rows] for place in range(count)]


def _can_repeat(job: Job) -> bool:
    """Whether it is known which arguments of forward belong to the rows."""
    parts = job.arguments()
    own = job.per_row
    return all(
        part is None
        or isinstance(part, (bool, int, float, str))
        or (isinstance(part, Tensor) and (own is not None or not part.ndim or len(part) != job.given.rows))
        for part in parts.values()
    )


class Mean:
    """The mean of explanations of the same kind, one for each baseline."""

    def __init__(self, same: Sequence[Explanation]) -> None:
        self.first, self._same = same[0], same

    def scores(self, name: str) -> list[Tensor]:
        """Scores or values, one tensor per input."""
        parts = zip(*(one.parts(getattr(one, name)) for one in self._same), strict=True)
        return [part[0] if len(part) == 1 else torch.stack(part).sum(0) / len(part) for part in parts]

    def number(self, name: str) -> Any:
        """One number per row; None if it is not known."""
        values = [one.flat_fields()[name] for one in self._same]
        return None if values[0] is None else torch.stack(values).mean(0)


def _halves(parts: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Half of the sum: each feature has a score in two of four explanations, and 0 in the others."""
    return [torch.stack(same).sum(0) / 2 for same in zip(*parts, strict=True)]


def _like(explanation: Explanation, parts: Sequence[Tensor]) -> Tensors:
    return tuple(parts) if isinstance(explanation.combined, tuple) else parts[0]
