"""Scores corrected by a few evaluations of the model at perturbed rows.

Scores predict that a row loses sum(lost * scores) of its output when it is perturbed, where ``lost`` is the share of its
distance to the baseline that each feature loses. What they miss is fitted by a ridge regression around them. The corrections
of features that differ from their baseline are kept to the sum 0. The others have nothing to lose: what is fitted for them is
the change per unit, which is no contribution and stays apart.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from .._extras import progress
from .._inputs import at_least
from .._inputs.groups import places
from .._inputs.noise import DataNoise
from .._scores.activation import LARGE
from .._scores.numbers import widest
from .._scores.path import PathScores
from ..explanation import Explanation, Tensors
from .forward import forward, plain_output
from .job import Batch, Job

K = TypeVar("K")


@dataclass(frozen=True)
class Refine:
    """How scores are corrected: by ``samples`` evaluations of the model for each row.

    ``perturb``: None is the noise of the background, ``DataNoise(data, ...)`` that of other data; or a function (rows,
    generator) -> disturbed rows, which is given copies of one row at a time (a tuple for several inputs). ``ridge`` is the
    weight of small corrections against a good fit, ``seed`` decides the draws; equal rows get equal ones in any company.
    """

    samples: int = 20
    perturb: DataNoise | Callable[[Any, torch.Generator], Any] | None = None
    ridge: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        at_least("explain", 2, refine=self.samples)
        if self.samples % 2:
            raise ValueError(f"explain(..., refine={self.samples}): give an even number; samples are held out in pairs.")
        at_least("Refine", 0, seed=self.seed)
        if isinstance(self.ridge, bool) or not isinstance(self.ridge, (int, float)) or not 0 < self.ridge < math.inf:
            raise ValueError(f"Refine(..., ridge={self.ridge!r}): give a positive number.")
        if self.perturb is not None and not isinstance(self.perturb, DataNoise) and not callable(self.perturb):
            raise ValueError(f"Refine(..., perturb={self.perturb!r}): give a function (rows, generator) -> disturbed rows.")


class Fit(NamedTuple):
    """What the evaluations say of some rows."""

    correction: Tensor  # (rows, features): of all that differ from their baseline, sum 0
    absent: Tensor  # (rows, features): of those at their baseline, the change per unit
    correction_error: Tensor  # (rows, features): standard errors of both (jackknife: samples are held out in pairs)
    combined_error: Tensor  # (rows,): root mean square of what the scores miss
    refined_error: Tensor  # (rows,): the same of the corrected scores, at samples that are held out of the fit


def fitted(lost: Tensor, present: Tensor, scores: Tensor, change: Tensor, ridge: float) -> Fit:
    """min |change - lost (scores + d)|^2 + ridge * features * |spread d|^2, the sum of d over present features being 0.

    lost (rows, samples, features), present and scores (rows, features), change (rows, samples). The spread of a feature is
    the root mean square of what it loses, so that units do not matter.
    """
    samples, features = lost.shape[1:]
    spread = lost.square().mean(1).sqrt()
    size = torch.where(spread > 0, 1 / spread, torch.zeros_like(spread))
    design = lost * size[:, None]
    kept = torch.nn.functional.normalize(size * present, dim=1)[:, None]  # what would change the sum
    design = design - (design @ kept.mT) * kept
    strength = ridge * (spread > 0).sum(1).clamp_min(1).to(lost)[:, None, None]
    missed = (change - (lost @ scores[..., None])[..., 0])[..., None]
    few, other = (design, design.mT) if samples <= features else (design.mT, design)
    solved = torch.linalg.solve(few @ other + strength * torch.eye(len(few[0]), dtype=lost.dtype, device=lost.device), few)
    weights = solved.mT if samples <= features else solved  # (rows, features, samples)
    found = weights @ missed
    held_out = _held_out(missed - design @ found, design @ weights)
    correction = size * found[..., 0]
    pairs = (weights * held_out.mT).unflatten(2, (-1, 2)).sum(-1)  # what the fit without a pair differs by
    error = size * (pairs.square().sum(-1) * (1 - 2 / samples)).sqrt()
    zero = torch.zeros_like(correction)
    means = (part[..., 0].square().mean(1).sqrt() for part in (missed, held_out))
    return Fit(torch.where(present, correction, zero), torch.where(present, zero, correction), error, *means)


def _held_out(missed: Tensor, hat: Tensor) -> Tensor:
    """What the fit without a sample and its neighbour, which may be its mirror image, misses there; (rows, samples, 1)."""
    one, other = missed.unflatten(1, (-1, 2))[..., 0].unbind(2)
    own, cross = hat.diagonal(dim1=1, dim2=2), hat.diagonal(offset=1, dim1=1, dim2=2)[:, ::2]
    first, second = 1 - own[:, ::2], 1 - own[:, 1::2]
    both = torch.stack([second * one + cross * other, cross * one + first * other], 2)
    return (both / (first * second - cross.square())[..., None]).flatten(1)[..., None]


def refined(
    job: Job, entries: dict[K, Explanation], refine: Refine, background: Callable[[int], Tensor], groups: Any
) -> dict[K, Explanation]:
    """The explanations, of all classes and all c, with their corrections: the model is evaluated once for all of them."""
    first = next(iter(entries.values()))
    shapes = [x.shape[1:] for x in job.given.tensors]
    index = None if groups is None else places(groups, shapes, first.names)[0].to(first.output.device)
    noises = _noises(refine, shapes, background, index)
    fits: dict[K, list[Fit]] = {key: [] for key in entries}
    chunks = _chunks(job, refine.samples)
    several = len(chunks) > 1 or job.show_progress
    for rows in progress(chunks, "refining", "batch", job.show_progress) if several else chunks:
        batch = job.batch(rows)
        versions = _versions(refine, batch, noises, job.given.is_tuple)
        answers = _answers(job, batch, versions, first)
        lost, present = _lost(batch.tensors, versions, [r[rows] for r in first._each(first.baselines)], index)
        for key, explanation in entries.items():
            change = explanation.output[rows, None].to(answers) - _picked(answers, explanation.target[rows])
            if explanation.against is not None:
                change = change + _picked(answers, explanation.against[rows])
            scores = _by_group(explanation._flat(explanation.combined)[rows].to(lost), index)
            fits[key].append(fitted(lost, present, scores, change, refine.ridge))
    return {key: _with_fit(explanation, fits[key], refine, groups is not None) for key, explanation in entries.items()}


def _noises(
    refine: Refine, shapes: Sequence[torch.Size], background: Callable[[int], Tensor], index: Tensor | None
) -> list[DataNoise]:
    """One for each input; none if the user has a function."""
    if isinstance(refine.perturb, DataNoise):
        if len(shapes) > 1:
            raise ValueError(
                "Refine(..., perturb=DataNoise(...)): there are several inputs; give CAFE(model, background=(...))."
            )
        return [refine.perturb]
    if refine.perturb is not None:
        return []
    parts = [None] * len(shapes) if index is None else index.split([shape.numel() for shape in shapes])
    return [DataNoise(background(place), part) for place, part in enumerate(parts)]


def _chunks(job: Job, samples: int) -> list[slice]:
    """Rows whose versions fit into memory; further arguments of forward may belong to all rows at once."""
    rows = job.given.rows
    width = max(samples, sum(x[0].numel() for x in job.given.tensors))
    step = job.batch_size or max(1, LARGE // (samples * width))
    step = rows if job.extra and job.batch_size is None else step
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def _versions(refine: Refine, batch: Batch, noises: Sequence[DataNoise], several: bool) -> list[Tensor]:
    """(rows, samples, *row) for each input; every row gets the draws that it would get alone."""
    device = batch.tensors[0].device
    if noises:
        generator = torch.Generator(device).manual_seed(refine.seed)
        pairs = zip(noises, batch.tensors, strict=True)
        return [noise.versions(x, refine.samples, generator) for noise, x in pairs]
    assert callable(refine.perturb)
    found: list[tuple[Tensor, ...]] = []
    for row in zip(*batch.tensors, strict=True):
        copies = tuple(x.expand(refine.samples, *x.shape).clone() for x in row)
        given = refine.perturb(copies if several else copies[0], torch.Generator(device).manual_seed(refine.seed))
        parts = given if isinstance(given, tuple) else (given,)
        fit = len(parts) == len(copies) and all(
            isinstance(part, Tensor) and part.shape == copy.shape and bool(part.isfinite().all())
            for part, copy in zip(parts, copies, strict=True)
        )
        if not fit:
            shapes = ", ".join(str(tuple(copy.shape)) for copy in copies)
            raise ValueError(f"Refine(..., perturb): give disturbed rows, finite and of shape {shapes}, for copies of one row.")
        found.append(tuple(part.detach().to(copy) for part, copy in zip(parts, copies, strict=True)))
    return [torch.stack(same) for same in zip(*found, strict=True)]


def _answers(job: Job, batch: Batch, versions: list[Tensor], explanation: Explanation) -> Tensor:
    """The outputs at all versions, logits where a final softmax is left out: (rows, samples, *output)."""
    rows, samples = versions[0].shape[:2]
    width = 1 if job.extra else samples if job.batch_size is None else max(1, job.batch_size // rows)
    settings = dataclasses.replace(job.settings, carrier=PathScores)
    dimensions = explanation.target.shape[1]
    job = dataclasses.replace(job, settings=settings, features=None, target=(0,) * dimensions or None, against=None)

    def parts() -> Iterator[Tensor]:
        for start in range(0, samples, width):
            tensors = tuple(part[:, start : start + width].flatten(0, 1) for part in versions)
            count = len(tensors[0]) // rows
            references = tuple(None if r is None else r.repeat_interleave(count, 0) for r in batch.references)
            one = dataclasses.replace(batch, tensors=tensors, references=references)
            if explanation.final is None:
                outputs = plain_output(job, one)
            else:
                passed = forward(job, one, settings)
                outputs = passed.scores.value
                passed.run.release()
            yield outputs.detach().to(widest(outputs.device)).view(rows, count, *outputs.shape[1:])

    answers = torch.cat(list(parts()), 1)
    if not bool(answers.isfinite().all()):
        raise ValueError(
            "explain(..., refine=...): the model gives NaN or infinite values at perturbed rows; give smaller ones."
        )
    return answers


def _picked(answers: Tensor, target: Tensor) -> Tensor:
    """The explained outputs, (rows, samples)."""
    places = (torch.arange(len(answers), device=answers.device), *target.to(answers.device).unbind(1)[: answers.ndim - 2])
    return answers.movedim(1, -1)[places]


def _lost(
    inputs: Sequence[Tensor], versions: Sequence[Tensor], baselines: Sequence[Tensor], index: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The share that each feature loses of its distance to the baseline, (rows, samples, features), and which have one.

    Groups lose what the perturbation takes along that way, codes all or nothing; at the baseline it is the amount itself.
    """
    away, moved = [], []
    for x, perturbed, baseline in zip(inputs, versions, baselines, strict=True):
        if x.is_floating_point():
            x, perturbed, baseline = (part.to(widest(x.device)) for part in (x, perturbed, baseline))
            away.append(x - baseline)
            moved.append(x[:, None] - perturbed)
        else:
            away.append((x != baseline).to(widest(x.device)))
            moved.append((x[:, None] != perturbed).to(widest(x.device)))
    distance = torch.cat([part.reshape(len(part), -1) for part in away], 1)
    lost = torch.cat([part.reshape(*part.shape[:2], -1) for part in moved], 2)
    if index is None:
        present = distance != 0
        return lost / torch.where(present, distance, torch.ones_like(distance))[:, None], present
    square, count = _by_group(distance.square(), index), _by_group(torch.ones_like(distance), index)
    present = square > 0
    along = _by_group(lost * distance[:, None], index) / torch.where(present, square, torch.ones_like(square))[:, None]
    return torch.where(present[:, None], along, _by_group(lost, index) / count[:, None]), present


def _by_group(values: Tensor, index: Tensor | None) -> Tensor:
    """Sums over the groups in the last dimension."""
    if index is None:
        return values
    return values.new_zeros(*values.shape[:-1], int(index.max()) + 1).index_add_(-1, index, values)


def _with_fit(explanation: Explanation, fits: list[Fit], refine: Refine, grouped: bool) -> Explanation:
    """The explanation with what was fitted, in its shapes and numbers."""
    parts = explanation._each(explanation.combined)

    def shaped(flat: Tensor) -> Tensors:
        if grouped:
            return flat.to(parts[0])
        columns = flat.split([part[0].numel() for part in parts], 1)
        shapes = tuple(column.reshape(part.shape).to(part) for column, part in zip(columns, parts, strict=True))
        return shapes if isinstance(explanation.combined, tuple) else shapes[0]

    joined = Fit(*(torch.cat(same) for same in zip(*fits, strict=True)))
    values: dict[str, Any] = {
        name: shaped(part) if part.ndim > 1 else part.to(explanation.output) for name, part in joined._asdict().items()
    }
    how = {"samples": int(refine.samples), "ridge": refine.ridge, "seed": int(refine.seed)}
    return dataclasses.replace(explanation, **values, settings={**explanation.settings, "refine": how})
