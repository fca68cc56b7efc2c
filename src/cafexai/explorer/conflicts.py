"""Who fights whom in one row: the exact map of pairs of features, hidden conflicts, and the engine's view."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ..explanation import HiddenConflicts
from ..plotting.conflict_words import CONSTANTS, NO_PAIR, engine_sentence, evaluation_sentence, fighting_sentence
from ..plotting.row_lines import number
from ..reporting.summed import region_mask, region_names
from .requests import Choice
from .rows import Edits
from .session import Session

FEATURES = 400  # above which pairs inside the model are too many
SHOWN = 12  # features in a map
PAIRS = 10


def pairs_view(session: Session, place: int, choice: Choice, edits: Edits) -> dict[str, Any]:
    """What every two features cancel of each other, by removing them, and what removing one of them does not show."""
    aimed = session.fix_target(place, choice)
    groups = _groups(session, place)
    known = not edits and groups is None  # of the row that is shown
    e = session.of_row(place, choice) if known else session.explain([place], aimed, edits, feature_groups=groups)
    found = session.hidden(e, aimed)
    kept, told = _strongest(found), [fighting_sentence(pair) for pair in found.fights(0, PAIRS)]
    return {
        "target": e.target_name(),
        "sentences": told or [NO_PAIR],
        "hidden": found.sentences(0),
        "measured": evaluation_sentence(
            found.evaluations,
            len(found.names[0]),
            found.features,
            session.name_baseline(aimed, found.baseline, found.baselines, found.against),
        ),
        **_map(found.conflict[0], found.names[0], kept),
        "hidden_amounts": _amounts(found.hidden[0], kept),
    }


def inside_view(session: Session, place: int, choice: Choice, edits: Edits) -> dict[str, Any]:
    """The engine's view: which features cancelled which at the units of the model, by the variant "feature"."""
    by_feature = dataclasses.replace(session.fix_target(place, choice), variant="feature")
    groups = _groups(session, place)
    count = sum(one[0].numel() for one in session.prepare_inputs(session.rows.inputs([place])[0]).tensors)
    if groups is None and count > FEATURES:
        return {"refused": f"Pairs are shown for at most {FEATURES} features; this row has {count}."}
    e = session.explain([place], by_feature, edits, pairs=True, feature_groups=groups, conflict="net")
    assert e.conflict_pairs is not None
    amounts, names = e.conflict_pairs[0].double().cpu(), [*e.names(), CONSTANTS]
    sizes = amounts.sum(0) + amounts.sum(1)
    sizes[[i for i, name in enumerate(names) if not name]] = -1
    kept = [i for i in sizes.argsort(descending=True, stable=True)[:SHOWN].tolist() if sizes[i] > 0]
    told = [engine_sentence(up, down, number(amount)) for up, down, amount in e.pairs(most=PAIRS)]
    return {"target": e.target_name(), "sentences": told, **_map(amounts, names, kept)}


def _groups(session: Session, place: int) -> dict[str, list[int]] | None:
    """The nine regions of a picture; None for all else."""
    tensors = session.prepare_inputs(session.rows.inputs([place])[0]).tensors
    return regions(tensors[0].shape[1:]) if len(tensors) == 1 and tensors[0].ndim == 4 else None


def regions(shape: Sequence[int]) -> dict[str, list[int]]:
    """The nine regions of a picture with the places of their pixels."""
    mask = region_mask(shape).flatten()
    return {name: (mask == i).nonzero()[:, 0].tolist() for i, name in enumerate(region_names())}


def _strongest(found: HiddenConflicts) -> list[int]:
    """The places of the features that cancel most of any other, strongest first."""
    most = found.conflict[0].amax(1)
    fights = found.fights(0, len(most) ** 2)
    least = fights[-1].conflict if fights else float("inf")
    return [i for i in most.argsort(descending=True, stable=True)[:SHOWN].tolist() if most[i] >= least]


def _map(amounts: Tensor, names: Sequence[str], kept: Sequence[int]) -> dict[str, Any]:
    """Part of a map of pairs, with exact numbers for colours."""
    exact = _amounts(amounts, kept)
    return {"names": [names[i] for i in kept], "amounts": exact, "told": [[number(one) for one in line] for line in exact]}


def _amounts(amounts: Tensor, kept: Sequence[int]) -> list[list[float]]:
    exact: list[list[float]] = amounts.double().cpu().numpy()[np.ix_(kept, kept)].tolist()
    return exact
