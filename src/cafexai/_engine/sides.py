"""The conflict between the features that push up and those that push down, measured by evaluating the model."""

from __future__ import annotations

import torch
from torch import Tensor

from ..explanation.conflict import NET, from_nets
from .assemble import Piece
from .evaluate import Asked, NotEvaluated, try_evaluate, without
from .feature_sets import FeatureSets, feature_sets, side_by_side
from .job import Batch, Job
from .request import conflict_kind


def measure_conflict(job: Job, piece: Piece, batch: Batch) -> None:
    """Add the conflict of these rows against one baseline to their piece."""
    sets = feature_sets(job, [part.shape[1:] for part in piece.combined]).take(batch.rows)
    nets = sets.sum(side_by_side(piece.combined))
    piece.net_conflict = from_nets(nets)
    if conflict_kind(job.request.conflict, job.question) == NET:
        return
    try:
        piece.sides, count = _sides(job, piece, batch, sets, nets)
        told = f"Conflict is measured: {count} more evaluations of the model per row"
        piece.notes += (f"{told}{' and baseline' * (len(job.stack) > 1)}.", *sets.notes)
    except NotEvaluated as error:
        piece.notes += (f"Conflict comes from net scores: it could not be measured ({error}).",)


def _sides(job: Job, piece: Piece, batch: Batch, sets: FeatureSets, nets: Tensor) -> tuple[Tensor, int]:
    """(rows, 1, 4): r, p, q, y, and how many evaluations it took."""
    asked = Asked(piece.target, piece.against, piece.final)
    y = piece.output
    everything = torch.ones(len(y), sum(x[0].numel() for x in batch.tensors), dtype=torch.bool, device=nets.device)
    known = job.settings.biases_in_reference and not piece.frozen
    r = piece.baseline_output if known else try_evaluate(job, without(batch, everything), asked).to(y)
    differs = _differs(batch).to(nets.device)
    found = []
    for away in (sets.spread(nets < 0), sets.spread(nets > 0)):
        away = away & differs
        changed, at_baseline = away.any(1), ~(differs & ~away).any(1)
        u = y
        if bool((changed & ~at_baseline).any()):  # else every row is the input or the baseline
            u = try_evaluate(job, without(batch, away), asked).to(y)
        found.append(torch.where(~changed, y, torch.where(at_baseline, r, u)))
    return torch.stack([r, *found, y], 1)[:, None], 2 if known else 3


def _differs(batch: Batch) -> Tensor:
    """Which elements are not at their baseline, (rows, elements)."""
    pairs = zip(batch.tensors, batch.references, strict=True)
    differs = [x != (0 if r is None else r) if r is not None or x.is_floating_point() else x == x for x, r in pairs]
    return side_by_side(differs)
