"""Who fights whom in one row: which features cancelled which."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..plotting.row_lines import number
from ..reporting.summed import region_mask, region_names
from .requests import Choice
from .rows import Edits
from .session import Session

FEATURES = 400  # above which pairs are too many
SHOWN = 12  # features in the map
PAIRS = 10


def pairs_view(session: Session, place: int, choice: Choice, edits: Edits) -> dict[str, Any]:
    """Which features cancelled which, by the variant "feature"."""
    by_feature = dataclasses.replace(session.aimed(place, choice), variant="feature")
    given = session.given(session.rows.inputs([place])[0])
    count = sum(one[0].numel() for one in given.tensors)
    groups = regions(given.tensors[0].shape[1:]) if len(given.tensors) == 1 and given.tensors[0].ndim == 4 else None
    if groups is None and count > FEATURES:
        return {"refused": f"Pairs are shown for at most {FEATURES} features; this row has {count}."}
    e = session.explain([place], by_feature, edits, pairs=True, feature_groups=groups)
    assert e.conflict_pairs is not None
    amounts = e.conflict_pairs[0].double().cpu()
    names = [*e.names(), "the constants of the model"]
    sizes = amounts.sum(0) + amounts.sum(1)
    sizes[[i for i, name in enumerate(names) if not name]] = -1
    kept = [i for i in sizes.argsort(descending=True, stable=True)[:SHOWN].tolist() if sizes[i] > 0]
    return {
        "target": e.target_name(),
        "names": [names[i] for i in kept],
        "amounts": [[amounts[i, j].item() for j in kept] for i in kept],
        "told": [[number(amounts[i, j].item()) for j in kept] for i in kept],
        "sentences": [_sentence(*pair) for pair in e.pairs(most=PAIRS)],
    }


def regions(shape: Sequence[int]) -> dict[str, list[int]]:
    """The nine regions of a picture with the places of their pixels."""
    mask = region_mask(shape).flatten()
    return {name: (mask == i).nonzero()[:, 0].tolist() for i, name in enumerate(region_names())}


def _sentence(up: str, down: str, amount: float) -> str:
    one, two = ("the constants of the model" if name == "(bias)" else name for name in (up, down))
    if up == down:
        itself = "themselves" if up == "(bias)" else "itself"
        return f"{one} worked against {itself}: {number(amount)} up by one way was cancelled by another."
    return f"{one} pushed up, {two} pushed down: {number(amount)} of each cancelled."
