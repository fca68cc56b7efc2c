"""Scores corrected by a few evaluations of the model at perturbed rows: what is evaluated; the fit is in ``fit.py``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .._carriers.path import PathScores
from .._core.activation import LARGE
from .._core.tolerance import widest
from .._engine.forward import forward, plain_output
from .._engine.job import Batch, Job
from .._engine.model import Subject
from .._engine.per_row import has_row_arguments, settle
from .._extras import progress
from .._inputs import at_least
from .._inputs.baselines import background_rows
from .._inputs.groups import default_names
from .._inputs.groups import places as group_places
from .._inputs.perturbations import DataNoise
from .._inputs.target import pick_outputs
from ..explanation import Explanation, Refinement, Tensors
from .fit import Fit, fit_correction, fit_slopes
from .removal import fit_by_removal

SLOPE = 2.5  # evaluations that a row with its slopes costs


@dataclass(frozen=True)
class Refine:
    """How ``CAFE.refine`` corrects scores.

    Under noise, numbers have slopes, which say more than the output alone: two rows with their slopes are evaluated for every
    five samples. All samples are plain evaluations for codes, for functions that replace features, and for models that leave
    autograd. Equal rows get equal draws in any batch.

    Args:
        samples: The price: evaluations of the model for each row, an even number.
        perturb: None is the noise of the background; for texts, and for codes without a background, random words, tokens or
            groups are set to their baseline. ``DataNoise(data, ...)`` is the noise of other data. Else a function (rows,
            generator) -> perturbed rows, which gets copies of one row at a time (a tuple for several inputs).
        ridge: The weight of small corrections against a good fit.
        seed: Decides the draws.
        slopes: Use slopes where there are any.

    Raises:
        ValueError: A value is not allowed.

    Example:
        >>> from cafexai import CAFE, Refine
        >>> cafe = CAFE(torch.nn.Linear(2, 1), background=torch.randn(50, 2))
        >>> cafe.refine(cafe.explain(torch.ones(3, 2)), Refine(10, seed=1)).refined.shape
        torch.Size([3, 2])
    """

    samples: int = 20
    perturb: DataNoise | Callable[[Any, torch.Generator], Any] | None = None
    ridge: float = 1.0
    seed: int = 0
    slopes: bool = True

    def __post_init__(self) -> None:
        at_least("refine", 2, refine=self.samples)
        if self.samples % 2:
            raise ValueError(f"refine(..., {self.samples}): give an even number; samples are held out in pairs.")
        at_least("Refine", 0, seed=self.seed)
        if isinstance(self.ridge, bool) or not isinstance(self.ridge, (int, float)) or not 0 < self.ridge < math.inf:
            raise ValueError(f"Refine(..., ridge={self.ridge!r}): give a positive number.")
        if self.perturb is not None and not isinstance(self.perturb, DataNoise) and not callable(self.perturb):
            raise ValueError(f"Refine(..., perturb={self.perturb!r}): give a function (rows, generator) -> perturbed rows.")


def refine_explanation(subject: Subject, explanation: Explanation, refine: Refine, background: Any) -> Explanation:
    """The explanation with its corrections, which sum to 0."""
    kept = explanation.job
    if kept is None:
        raise ValueError("refine(explanation): it was read from a file or copied. Explain the rows again, then refine.")
    if kept.question.layer is not None:
        raise ValueError("refine(explanation): it is of a layer. Rows are perturbed at the inputs; refine scores of these.")
    if kept.given.words is not None and refine.perturb is not None:
        raise ValueError(
            "refine(explanation, Refine(..., perturb=...)): it perturbs tokens, and the scores are of words. Drop perturb=, "
            "which sets random words to their baseline, or explain with CAFE(model, words=False)."
        )
    job: Job = dataclasses.replace(kept, subject=subject)
    codes = not any(x.is_floating_point() for x in job.given.tensors)
    if kept.given.words is not None or (codes and refine.perturb is None and background is None):
        how = {"samples": int(refine.samples), "ridge": refine.ridge, "seed": int(refine.seed), "slopes": False}
        return _with_fit(explanation, fit_by_removal(job, explanation, refine), how)
    shapes = [x.shape[1:] for x in job.given.tensors]
    groups = job.request.feature_groups
    names = job.given.names if job.given.names is not None else default_names(shapes)
    index = None if groups is None else group_places(groups, shapes, lambda: names)[0].to(explanation.output.device)
    if index is not None and index.ndim == 2:
        raise ValueError("refine(explanation): its feature groups differ from row to row. Explain and refine each row alone.")
    noises = _noises(refine, shapes, lambda place: _background(background, job, place), index)
    numbers = any(x.is_floating_point() for x in job.given.tensors)
    steep = refine.slopes and bool(noises) and numbers and _check_slopes(job, explanation)
    fits: list[Fit] = []
    chunks = _chunks(job, refine.samples)
    if has_row_arguments(job):
        settle(job, chunks)
    several = len(chunks) > 1 or job.request.show_progress
    for rows in progress(chunks, "refining", "batch", job.request.show_progress) if several else chunks:
        batch, part = job.batch(rows), _rows(explanation, rows)
        count = max(2, 2 * round(refine.samples / SLOPE / 2)) if steep else refine.samples
        versions = _versions(refine, batch, noises, job.given.is_tuple, count)
        asked = _with_slopes(job, batch, versions, part, explanation.meta.final is not None) if steep else None
        if steep and asked is None:  # the model leaves autograd somewhere
            steep, versions = False, _versions(refine, batch, noises, job.given.is_tuple, refine.samples)
        baselines = [r[rows] for r in explanation.parts(explanation.baselines)]
        lost, present, distance = _find_lost(batch.tensors, versions, baselines, index)
        scores = part.combined.to(lost)
        if asked is not None:
            answers, slopes = asked
            change = part.output[:, None].to(answers) - _pick_outputs(answers, part.target, part.against)
            fits.append(fit_slopes(lost, present, scores, change, _as_scores(slopes, distance, index), refine.ridge))
        else:
            answers = _answers(job, batch, versions, explanation)
            change = part.output[:, None].to(answers) - _pick_outputs(answers, part.target, part.against)
            fits.append(fit_correction(lost, present, scores, change, refine.ridge))
    how = {"samples": int(refine.samples), "ridge": refine.ridge, "seed": int(refine.seed), "slopes": steep}
    return _with_fit(explanation, fits, how)


def _background(background: Any, job: Job, place: int) -> Tensor:
    """The background of one input, whose noise perturbs rows."""
    if background is None:
        raise ValueError(
            "refine(...): perturbed by the noise of which data? Give them: CAFE(model, background=x_train), or a function: "
            "Refine(20, perturb=lambda rows, generator: ...)."
        )
    return background_rows(background, place, job.subject.model, job.given.columns, job.given.schema)


class _Rows(NamedTuple):
    """What is refined of some rows."""

    target: Tensor
    against: Tensor | None
    output: Tensor
    combined: Tensor  # (rows, features)


def _rows(explanation: Explanation, rows: slice) -> _Rows:
    against = None if explanation.against is None else explanation.against[rows]
    flat = explanation.flat(explanation.combined)[rows]
    return _Rows(explanation.target[rows], against, explanation.output[rows], flat)


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
    step = job.request.batch_size or max(1, LARGE // (samples * width))
    step = rows if job.extra and job.request.batch_size is None else step
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def _versions(refine: Refine, batch: Batch, noises: Sequence[DataNoise], several: bool, samples: int) -> list[Tensor]:
    """(rows, samples, *row) for each input; every row gets the draws that it would get alone."""
    device = batch.tensors[0].device
    if noises:
        generator = torch.Generator(device).manual_seed(refine.seed)
        pairs = zip(noises, batch.tensors, strict=True)
        return [noise.versions(x, samples, generator) for noise, x in pairs]
    assert callable(refine.perturb)
    found: list[tuple[Tensor, ...]] = []
    for row in zip(*batch.tensors, strict=True):
        copies = tuple(x.expand(samples, *x.shape).clone() for x in row)
        given = refine.perturb(copies if several else copies[0], torch.Generator(device).manual_seed(refine.seed))
        parts = given if isinstance(given, tuple) else (given,)
        fit = len(parts) == len(copies) and all(
            isinstance(part, Tensor) and part.shape == copy.shape and bool(part.isfinite().all())
            for part, copy in zip(parts, copies, strict=True)
        )
        if not fit:
            shapes = ", ".join(str(tuple(copy.shape)) for copy in copies)
            raise ValueError(f"Refine(..., perturb): give perturbed rows, finite and of shape {shapes}, for copies of one row.")
        found.append(tuple(part.detach().to(copy) for part, copy in zip(parts, copies, strict=True)))
    return [torch.stack(same) for same in zip(*found, strict=True)]


def _answers(job: Job, batch: Batch, versions: list[Tensor], explanation: Explanation) -> Tensor:
    """The outputs at all versions, logits where a final softmax is left out: (rows, samples, *output)."""
    rows, samples = versions[0].shape[:2]
    width = 1 if job.extra else samples if job.request.batch_size is None else max(1, job.request.batch_size // rows)
    settings = dataclasses.replace(job.settings, carrier=PathScores)
    dimensions = explanation.target.shape[1]
    job = dataclasses.replace(
        job, settings=settings, features=None, request=job.request.replace(target=(0,) * dimensions or None, against=None)
    )

    def parts() -> Iterator[Tensor]:
        for start in range(0, samples, width):
            tensors = tuple(part[:, start : start + width].flatten(0, 1) for part in versions)
            count = len(tensors[0]) // rows
            references = tuple(None if r is None else r.repeat_interleave(count, 0) for r in batch.references)
            one = dataclasses.replace(batch, tensors=tensors, references=references)
            if explanation.meta.final is None:
                outputs = plain_output(job, one)
            else:
                passed = forward(job, one, settings)
                outputs = passed.scores.value
                passed.run.release()
            yield outputs.detach().to(widest(outputs.device)).view(rows, count, *outputs.shape[1:])

    return _finite(torch.cat(list(parts()), 1))


def _finite(answers: Tensor) -> Tensor:
    if not bool(answers.isfinite().all()):
        raise ValueError("refine(...): the model gives NaN or infinite values at perturbed rows; give smaller ones.")
    return answers


class _Makers(TorchFunctionMode):
    """Remembers what every result was made of."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, tuple[Tensor, Any]] = {}

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.made[id(result)] = result, args[0] if args else None
        return result


def _graph(job: Job, batch: Batch, end: bool) -> Tensor:
    """The output with its graph; that in front of a last function, which is left out, if there is an ``end``."""
    if not end:
        return plain_output(job, batch, slopes=True)
    with _Makers() as makers:
        output = plain_output(job, batch, slopes=True)
    found = makers.made.get(id(output), (output, output))[1]
    return found if isinstance(found, Tensor) and found.shape == output.shape else output


def _check_slopes(job: Job, explanation: Explanation) -> bool:
    """Whether slopes would be those of the explained output, which may be a logit inside the model; seen at the first row."""
    if explanation.meta.final is None:
        return True
    one = slice(0, 1)
    output = _graph(job, job.batch(one), end=True)
    target, against, known, _ = _rows(explanation, one)
    found = _pick_outputs(output[:, None], target, against)[:, 0]
    return torch.allclose(found.to(known), known, rtol=1e-4, atol=1e-6)


def _with_slopes(job: Job, batch: Batch, versions: list[Tensor], part: _Rows, end: bool) -> tuple[Tensor, Tensor] | None:
    """The outputs at all versions, and the slopes there, (rows, samples, elements); NaN for codes.

    None if the output hangs on no number in a way that autograd knows.
    """
    rows, samples = versions[0].shape[:2]
    width = 1 if job.extra else samples if job.request.batch_size is None else max(1, job.request.batch_size // rows)
    found: list[Tensor] = []
    slopes: list[Tensor] = []
    for start in range(0, samples, width):
        tensors = tuple(part[:, start : start + width].flatten(0, 1).detach() for part in versions)
        numbers = [x.requires_grad_() for x in tensors if x.is_floating_point()]
        outputs = _graph(job, dataclasses.replace(batch, tensors=tensors), end)
        if not outputs.requires_grad:
            return None
        outputs = outputs.view(rows, -1, *outputs.shape[1:])
        picked = _pick_outputs(outputs, part.target, part.against).sum()
        each = iter(torch.autograd.grad(picked, numbers, materialize_grads=True))
        flat = [next(each) if x.is_floating_point() else torch.full(x.shape, torch.nan, device=x.device) for x in tensors]
        slopes.append(torch.cat([one.reshape(rows, outputs.shape[1], -1).to(widest(one.device)) for one in flat], 2))
        found.append(outputs.detach().to(widest(outputs.device)))
    return _finite(torch.cat(found, 1)), _finite_or_none(torch.cat(slopes, 1))


def _finite_or_none(slopes: Tensor) -> Tensor:
    """Slopes that are not finite say nothing."""
    return torch.where(slopes.isfinite(), slopes, torch.full_like(slopes, torch.nan))


def _pick_outputs(answers: Tensor, target: Tensor, against: Tensor | None) -> Tensor:
    """The explained outputs, (rows, samples), of (rows, samples, *output)."""
    return pick_outputs(answers.movedim(1, -1), target, against)


def _as_scores(slopes: Tensor, distance: Tensor, index: Tensor | None) -> Tensor:
    """What slopes foretell for the whole way to the baseline; for features there, per unit. (rows, samples, features)"""
    away = distance != 0
    if index is None:
        return slopes * torch.where(away, distance, torch.ones_like(distance))[:, None]
    some = _by_group(away.to(distance), index) > 0
    along, unit = (_by_group(part, index) for part in (slopes * distance[:, None], slopes))
    return torch.where(some[:, None], along, unit)


def _find_lost(
    inputs: Sequence[Tensor], versions: Sequence[Tensor], baselines: Sequence[Tensor], index: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The share that each feature loses of its distance to the baseline, (rows, samples, features), which have one, and it.

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
        return lost / torch.where(present, distance, torch.ones_like(distance))[:, None], present, distance
    square, count = _by_group(distance.square(), index), _by_group(torch.ones_like(distance), index)
    present = square > 0
    along = _by_group(lost * distance[:, None], index) / torch.where(present, square, torch.ones_like(square))[:, None]
    return torch.where(present[:, None], along, _by_group(lost, index) / count[:, None]), present, distance


def _by_group(values: Tensor, index: Tensor | None) -> Tensor:
    """Sums over the groups in the last dimension."""
    if index is None:
        return values
    return values.new_zeros(*values.shape[:-1], int(index.max()) + 1).index_add_(-1, index, values)


def _with_fit(explanation: Explanation, fits: list[Fit], how: dict[str, Any]) -> Explanation:
    """The explanation with what was fitted, in its shapes and numbers."""
    parts = explanation.parts(explanation.combined)

    def shaped(flat: Tensor) -> Tensors:
        columns = flat.split([part[0].numel() for part in parts], 1)
        shapes = tuple(column.reshape(part.shape).to(part) for column, part in zip(columns, parts, strict=True))
        return shapes if isinstance(explanation.combined, tuple) else shapes[0]

    joined = Fit(*(torch.cat(same) for same in zip(*fits, strict=True)))
    values: dict[str, Any] = {
        name: shaped(part) if part.ndim > 1 else part.to(explanation.output) for name, part in joined._asdict().items()
    }
    return explanation.replace(refinement=Refinement(**values), settings={**explanation.meta.settings, "refine": how})
