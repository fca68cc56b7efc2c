"""What the studies of the truth share: attributions by name, and numbers of rows summed up."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..._inputs.perturbations import Masks
from ...cafe import CAFE
from ...errors import UnsupportedOperation
from ...methods import METHODS, Method
from ...refinement.refine import Refine
from .methods import large_scores

DEFAULT, PUBLISHED, RIVAL = "cafe", "cafe_published", "integrated_gradients"
FROZEN = "cafe attention=frozen"  # what the default was before attention was open
APART = (RIVAL, PUBLISHED, FROZEN)  # the methods that all others are compared with row by row
REFINED, EXACT = "cafe_refined", "shapley_exact"
BLOCKS, MISSING = "cafe_blocks", "cafe_if_missing"
QUARTER = tuple(f"{name} c=0.25" for name in (BLOCKS, MISSING))
EVALUATING = (REFINED, BLOCKS, MISSING, *QUARTER)  # they see the model with features removed
RIVALS = (RIVAL, "deeplift_rescale", "deeplift_revealcancel")
FEATURE = "cafe netting=feature norms=frozen"  # a carrier with a price per feature
VARIANTS = (
    "cafe netting=path flows=peak norms=frozen",
    "cafe flows=peak norms=frozen",
    "cafe norms=frozen",
    FEATURE,
)
CONSTANTS = tuple(f"cafe c={c}" for c in ("0", "0.25", "1"))  # c = 0.5 is the default itself
CANDIDATES = (DEFAULT, PUBLISHED, *VARIANTS, *CONSTANTS, *RIVALS)
CHEAP = tuple(name for name in CANDIDATES if name != FEATURE)
FINALISTS = (DEFAULT, PUBLISHED, "cafe norms=frozen", "cafe c=0", RIVAL, "deeplift_rescale")  # with all seeds

BACKWARD = ("gim", "attn_lrp", "cp_lrp")  # one backward pass, for models with attention
TRANSFORMERS = (DEFAULT, FROZEN, "cafe c=0.25", PUBLISHED, *RIVALS[:2], *BACKWARD)


def candidate(name: str) -> Method:
    """ "cafe norms=frozen c=0.25" is the default variant of CAFE with these options changed; others are METHODS."""
    method, *changes = name.split(" ")
    if not changes:
        return METHODS[method]
    options: dict[str, Any] = dict(change.split("=") for change in changes)
    constant = {"c": float(options.pop("c"))} if "c" in options else {}
    return functools.partial(METHODS[method], variant="default", **constant, **options)


def attribute_all(names: Iterable[str], model: Any, x: Tensor, **options: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The scores of all methods that do not refuse the model, and for each its seconds or why it refused."""
    scores: dict[str, Tensor] = {}
    notes: dict[str, Any] = {}
    for name in names:
        with large_scores():
            start = time.perf_counter()
            try:
                scores[name] = candidate(name)(model, x, **options).detach()
            except UnsupportedOperation as problem:
                notes[name] = {"refused": str(problem)}
                continue
            notes[name] = {"seconds": time.perf_counter() - start}
    return scores, notes


def evaluating(
    names: Collection[str], model: Any, x: Tensor, target: Any, groups: Tensor, baselines: Any = None, samples: int = 20
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The same for methods that put groups (tokens, cells) away, negative ones staying; refine has so many ``samples``."""
    scores: dict[str, Tensor] = {}
    notes: dict[str, Any] = {}
    _, numbers, sizes = groups.unique(return_inverse=True, return_counts=True)
    cafe = CAFE(model)

    def keep(name: str, of_groups: Any, start: float) -> None:
        scores[name] = torch.as_tensor(of_groups)[:, numbers].to(x) / sizes[numbers]  # metrics sum over a group
        notes[name] = {"seconds": time.perf_counter() - start}

    start = time.perf_counter()
    if REFINED in names:
        how = Refine(samples, Masks(0.0 if baselines is None else baselines[0], groups))
        keep(REFINED, cafe.refine(cafe.explain(x, baselines, target, feature_groups=numbers), how).refined, start)
    constants = {name: float(name.partition(" c=")[2] or 0.5) for name in names if name.split(" ")[0] in (BLOCKS, MISSING)}
    for c in dict.fromkeys(constants.values()):
        start = time.perf_counter()
        e = CAFE(model, c).explain_blocks(x, baselines, target, feature_groups=numbers)
        for name in (one for one, own in constants.items() if own == c):
            keep(name, e.combined if name.startswith(BLOCKS) else e.if_missing, start)
    return scores, notes


def summary(values: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Of each method: mean and standard error over the rows, and the same of its distance to each of ``APART``."""
    rivals = [values[name] for name in APART if name in values]
    return {name: [*_level(own), *(part for rival in rivals for part in _level(own - rival))] for name, own in values.items()}


def entry(notes: Mapping[str, Any], measured: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Any]:
    """What a task keeps of its methods: notes, and the summary of every measure."""
    found: dict[str, Any] = {name: dict(note) for name, note in notes.items()}
    for measure, values in measured.items():
        for name, numbers in summary(values).items():
            found[name][measure] = numbers
    return {"methods": found}


def _level(values: Tensor) -> tuple[float, float]:
    values = values.double()
    error = values.std().item() / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return values.mean().item(), error
