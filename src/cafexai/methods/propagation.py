"""Methods that run on our engine: CAFE itself, DeepLIFT and LRP, on the model as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from .._core.backward import Passed
from .._core.run import C, Settings
from .._core.tolerance import tolerance
from .._core.value import Scores
from .._core.variant import Variant
from .._engine.batches import carry_out
from .._engine.job import Job
from .._engine.model import Subject
from .._engine.request import Request
from .._inputs.perturbations import DataNoise
from .._inputs.prepare import Inputs
from ..blocks.cut import alternate_groups
from ..cafe import CAFE
from ..errors import UnsupportedOperation
from ..explanation import Explanation
from ..refinement.refine import Refine
from .case import Case, method
from .deeplift import RelevanceScores, RescaleScores, RevealCancelScores


@method(aimed=False)
def cafe(
    case: Case,
    *,
    c: C = 0.5,
    variant: str | Variant = "default",
    **options: Any,
) -> Tensor:
    """The net scores of ``CAFE(model, c, variant, ...)``; ``CAFE(model).explain`` has positive and negative ones.

    Args:
        c: The conflict sensitivity, as in ``CAFE``.
        variant: The variant, as in ``CAFE``.
        **options: Single options of the variant, such as ``flows="peak"``.
    """
    return CAFE(case.model, c, variant, **options).attribute(case.x, case.stack, case.wanted)


@method(aimed=False)
def cafe_published(case: Case, *, c: C = 0.5) -> Tensor:
    """The combined scores of CAFE as in the paper, for models of any depth.

    Args:
        c: The conflict sensitivity, as in ``CAFE``.
    """
    return CAFE.published(case.model, c).attribute(case.x, case.stack, case.wanted)


@method(aimed=False)
def cafe_refined(
    case: Case,
    *,
    refine: int = 20,
    c: C = 0.5,
    variant: str | Variant = "default",
    ridge: float = 1.0,
    seed: int = 0,
    background: Tensor | None = None,
) -> Tensor:
    """CAFE's net scores, corrected by ``refine`` evaluations per row: ``refined`` + ``absent``.

    The rows are perturbed by the noise of ``background``.

    Args:
        feature_groups: Groups of columns that are one category: they move together.
        refine: Evaluations of the model per row.
        c: The conflict sensitivity, as in ``CAFE``.
        variant: The variant, as in ``CAFE``.
        ridge: The weight of small corrections against a good fit.
        seed: Decides the draws.
        background: Rows that the noise is taken from; None takes x.
    """
    data = case.x if background is None else background.to(case.x)
    data = data if len(data) > 1 else torch.cat([data, *(one[:1] for one in case.starts)])
    how = Refine(refine, DataNoise(data, case.groups), ridge, seed)
    cafe = CAFE(case.model, c, variant)
    e = cafe.refine(cafe.explain(case.x, case.stack, case.wanted), how)
    assert e.refinement is not None
    return cast(Tensor, e.refined) + cast(Tensor, e.refinement.absent)


@method(aimed=False)
def cafe_blocks(case: Case, *, c: C = 0.5, variant: str | Variant = "default") -> Tensor:
    """The net scores of ``CAFE(model).explain_blocks``: close to Shapley values.

    Args:
        feature_groups: Groups of elements that share a block.
        c: The conflict sensitivity, as in ``CAFE``.
        variant: The variant, as in ``CAFE``.
    """
    return cast(Tensor, _in_blocks(case, c, variant).combined)


@method(aimed=False)
def cafe_if_missing(case: Case, *, c: C = 0.5, variant: str | Variant = "default") -> Tensor:
    """``if_missing`` of ``CAFE(model).explain_blocks``: what the output would lose without a feature, or group.

    Args:
        feature_groups: Groups of elements that share a block.
        c: The conflict sensitivity, as in ``CAFE``.
        variant: The variant, as in ``CAFE``.
    """
    return cast(Tensor, _in_blocks(case, c, variant).if_missing)


def _in_blocks(case: Case, c: C, variant: str | Variant) -> Explanation:
    grouped = int(case.groups.max()) + 1 < case.groups.numel()
    blocks = alternate_groups(case.groups.cpu()) if grouped else None
    return CAFE(case.model, c, variant).explain_blocks(case.x, case.stack, case.wanted, blocks=blocks)


@method(baselines=False, aimed=False)
def lrp(case: Case) -> Tensor:
    """LRP-0, without a baseline. Biases keep their part of the relevance."""
    return propagate(case, Settings(RelevanceScores))


@method(aimed=False)
def deeplift_rescale(case: Case) -> Tensor:
    """DeepLIFT, Rescale rule, for any elementwise function, functional or reused."""
    return _deeplift(case, RescaleScores)


@method(aimed=False)
def deeplift_revealcancel(case: Case) -> Tensor:
    """DeepLIFT, RevealCancel rule: what cancels is shared out by the mean over both orders."""
    return _deeplift(case, RevealCancelScores)


def propagate(given: Case, settings: Settings, finish: Callable[[Passed], Tensor] = lambda passed: _net(passed)) -> Tensor:
    """The scores that a carrier gives, averaged over the baselines."""
    stack = [(one,) for one in given.baselines]
    job = Job(Subject(given.model), Inputs((given.x,), False, None), stack, settings, Request(target=given.wanted))
    (chunks,) = carry_out(job, lambda passed: (finish(passed),), lambda parts: torch.stack(parts).mean(0)).values()
    return torch.cat(chunks)


def _net(passed: Passed) -> Tensor:
    return passed.run.settings.carrier.net(passed).net[0]


def _deeplift(given: Case, carrier: type[Scores]) -> Tensor:
    def finish(passed: Passed) -> Tensor:
        _refuse_incomplete(given, passed)
        return _net(passed)

    return propagate(given, Settings(carrier, biases_in_reference=True), finish)


def _refuse_incomplete(given: Case, passed: Passed) -> None:
    """A choice that the model makes by comparing, or a denominator, is frozen: the reference then may be another model's."""
    choices = sorted({key.operation for key in passed.run.frozen if key.kind in ("comparison", "choice")})
    if not choices:
        return
    with torch.no_grad(), Subject(given.model).guard_state():
        start = given.model(passed.baselines[0].to(given.x.dtype))
    apart = torch.inf
    if passed.final is None and isinstance(start, Tensor):
        places = (torch.arange(len(start)), *passed.target.unbind(1)) if start.ndim > 1 else slice(None)
        reference = passed.chosen.reference
        start = start[places].to(passed.chosen.delta.dtype)
        found = torch.zeros_like(start) if reference is None else reference
        scale = max(float(start.abs().max()), float(passed.chosen.value.abs().max()), 1e-30)
        apart = float((found - start).abs().max()) / scale
    if not apart <= 100 * tolerance(given.x.dtype):
        raise UnsupportedOperation(
            f"{given.name}(...): the model decides by {', '.join(choices)}, which is taken as a constant of the current row: "
            "the scores would not add up to f(x) - f(baseline). Write it as one elementwise function (torch.relu, "
            "torch.clamp), or declare the module: cafexai.elementwise_module."
        )
