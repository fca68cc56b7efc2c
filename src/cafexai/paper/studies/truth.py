"""What the studies of the truth on deep models share: attributions by name, and numbers of rows summed up."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterable, Mapping
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
REFINED, SAMPLED = "cafe_refined", "shapley_value_sampling"
EVALUATING = (REFINED, SAMPLED)  # they put features away themselves
RIVALS = (RIVAL, "deeplift_rescale", "deeplift_revealcancel")
DEEP = "unit mean reference open"  # the default variant, by its options
FEATURE = "feature mean reference frozen c=0.5"  # a carrier with a price per feature
VARIANTS = (
    "path peak reference frozen c=0.5",
    "unit peak reference frozen c=0.5",
    "unit mean reference frozen c=0.5",
    FEATURE,
)
CONSTANTS = tuple(f"{DEEP} c={c}" for c in ("0", "0.25", "1"))  # c = 0.5 is the default itself
CANDIDATES = (DEFAULT, PUBLISHED, *VARIANTS, *CONSTANTS, *RIVALS)
CHEAP = tuple(name for name in CANDIDATES if name != FEATURE)
FINALISTS = (DEFAULT, PUBLISHED, "unit mean reference frozen c=0.5", f"{DEEP} c=0", RIVAL, "deeplift_rescale")  # with all seeds


def candidate(name: str) -> Method:
    """ "unit mean reference open c=0.5" is CAFE with that netting, flows, biases, norms and constant; others are METHODS."""
    words, given, c = name.partition(" c=")
    if not given:
        return METHODS[name]
    options = dict(zip(("netting", "flows", "biases", "norms"), words.split(), strict=True))
    return functools.partial(METHODS["cafe"], c=float(c), **options)


def attributed(names: Iterable[str], model: Any, x: Tensor, **options: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
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
    names: Iterable[str], model: Any, x: Tensor, target: Any, groups: Tensor, baselines: Any = None, samples: int = 20
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The same for methods that put groups (tokens, cells) away, negative ones staying: so many draws, or orders, each."""
    scores: dict[str, Tensor] = {}
    notes: dict[str, Any] = {}
    _, numbers, sizes = groups.unique(return_inverse=True, return_counts=True)
    for name in names:
        start = time.perf_counter()
        if name == REFINED:
            how = Refine(samples, Masks(0.0 if baselines is None else baselines[0], groups))
            cafe = CAFE(model)
            of_group = cafe.refine(cafe.explain(x, baselines, target, feature_groups=numbers), how).refined
            found = torch.as_tensor(of_group)[:, numbers]
        else:
            own = {"target": target, "baselines": baselines, "feature_groups": numbers, "n_samples": samples}
            found = METHODS[name](model, x, **own).detach()
        scores[name] = found.to(x) / sizes[numbers]  # metrics sum over the elements of a group
        notes[name] = {"seconds": time.perf_counter() - start}
    return scores, notes


def summary(values: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Of each method: mean and standard error over the rows, and the same of its distance to Integrated Gradients."""
    return {name: [*_level(own), *_level(own - values[RIVAL])] for name, own in values.items()}


def entry(
    scores: Mapping[str, Tensor], notes: Mapping[str, Any], measured: Mapping[str, Mapping[str, Tensor]]
) -> dict[str, Any]:
    """What a task keeps of its methods: notes, and the summary of every measure."""
    found: dict[str, Any] = {name: dict(note) for name, note in notes.items()}
    for measure, values in measured.items():
        for name, numbers in summary(values).items():
            found[name][measure] = numbers
    same = torch.equal(scores[DEFAULT], scores[PUBLISHED]) if {DEFAULT, PUBLISHED} <= set(scores) else None
    return {"methods": found, "published": same}


def _level(values: Tensor) -> tuple[float, float]:
    values = values.double()
    error = values.std().item() / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return values.mean().item(), error
