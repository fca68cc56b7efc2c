"""The conflict between the features that push up and those that push down, measured by evaluating the model."""

from __future__ import annotations

import torch
from torch import Tensor

from .._core.tolerance import gap, tolerance
from ..explanation.conflict import NET, from_nets
from .assemble import Piece
from .evaluate import Asked, NotEvaluated, evaluate_together, try_evaluate, without
from .feature_sets import FeatureSets, feature_sets, side_by_side
from .job import Batch, Job
from .request import conflict_kind

TOGETHER, FEW = 512, 16  # rows of which both sides are evaluated in one pass: of a chain of layers, of any other model


def measure_conflict(job: Job, piece: Piece, batch: Batch) -> None:
    """Add the conflict of these rows against one baseline to their piece."""
    sets = feature_sets(job, [part.shape[1:] for part in piece.combined]).take(batch.rows)
    nets = sets.sum(side_by_side(piece.combined))
    piece.net_conflict = from_nets(nets)
    if conflict_kind(job.request.conflict, job.question) == NET:
        return
    try:
        piece.sides, piece.evaluations = _sides(job, piece, batch, sets, nets)
        piece.measured_notes = sets.notes
    except NotEvaluated as error:
        piece.notes += (f"Conflict comes from net scores: it could not be measured ({error}).",)


def _sides(job: Job, piece: Piece, batch: Batch, sets: FeatureSets, nets: Tensor) -> tuple[Tensor, int]:
    """(rows, 1, 4): r, p, q, y, and how many evaluations it took."""
    asked = Asked(piece.target, piece.against, piece.final)
    y, count = piece.output, 0
    differs = _differs(batch).to(nets.device)
    r = piece.baseline_output
    if not job.settings.biases_in_reference or piece.frozen:  # then it is not the model at the baseline
        r, count = try_evaluate(job, without(batch, torch.ones_like(differs)), asked).to(y), 1
    away = torch.stack([sets.spread(nets < 0), sets.spread(nets > 0)]) & differs
    changed, at_baseline = away.any(2), ~(differs & ~away).any(2)
    needed = (changed & ~at_baseline).any(1).tolist()  # else every row is the input or the baseline
    if all(needed):
        u, more = _both(job, batch, asked, away, y, piece.chain)
    else:
        u, more = _each(job, batch, asked, away, y, needed, piece.chain)
    p, q = torch.where(changed, torch.where(at_baseline, r, u), y)
    return torch.stack([r, p, q, y], 1)[:, None], count + more


def _both(job: Job, batch: Batch, asked: Asked, away: Tensor, y: Tensor, chain: bool) -> tuple[Tensor, int]:
    """The output without either side, (2, rows), and how many evaluations of a row it took: of few rows in one pass.

    A pass over more rows gives the same only if the model treats each row by itself. A plain chain of layers does. Any other
    model is given the rows as they are, too, and must give y for them.
    """
    if not job.arguments() and len(y) <= (TOGETHER if chain else FEW):
        sets = away if chain else torch.cat([away, torch.zeros_like(away[:1])])  # last: a constant by place of row shows
        found = evaluate_together(job, batch, asked, sets, chain)
        if found is not None and (chain or gap(found[-1], y.to(found)) <= tolerance(found.dtype)):
            return found[:2].to(y), len(sets)
    return _each(job, batch, asked, away, y, [True, True], chain)


def _each(job: Job, batch: Batch, asked: Asked, away: Tensor, y: Tensor, needed: list[bool], chain: bool) -> tuple[Tensor, int]:
    """The output without either side, (2, rows), as far as it is needed, by a pass each."""
    pairs = zip(away, needed, strict=True)
    found = [try_evaluate(job, without(batch, one), asked, chain).to(y) if asks else y for one, asks in pairs]
    return torch.stack(found), 2


def _differs(batch: Batch) -> Tensor:
    """Which elements are not at their baseline, (rows, elements)."""
    pairs = zip(batch.tensors, batch.references, strict=True)
    differs = [x != (0 if r is None else r) if r is not None or x.is_floating_point() else x == x for x, r in pairs]
    return side_by_side(differs)
