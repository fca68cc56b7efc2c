"""Methods that run on our engine: CAFE itself, DeepLIFT and LRP, on the model as it is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..backward import distribute
from ..batches import Task, carry_out
from ..explain import CAFE, with_gradients
from ..inputs import Inputs
from ..law import tolerance
from ..registry import UnsupportedOperation
from ..request import Passed, Request
from ..scores import Scores
from .case import Case, case
from .deeplift import RelevanceScores, RescaleScores, RevealCancelScores


def cafe(
    model: Any,
    x: Any,
    *,
    target: Any = None,
    baselines: Any = None,
    feature_mask: Any = None,
    c: float | Mapping[str, float] = 0.5,
    netting: str = "path",
    biases: str = "scores",
) -> Tensor:
    """The combined scores of CAFE; ``CAFE(model).explain`` has them apart, with the biases."""
    given = case("cafe", model, x, baselines, feature_mask)
    return CAFE(given.model, c, netting, biases=biases).attribute(given.x, given.stack, target)


def deeplift_rescale(model: Any, x: Any, *, target: Any = None, baselines: Any = None, feature_mask: Any = None) -> Tensor:
    """DeepLIFT, Rescale rule, for any elementwise function, functional or reused."""
    given = case("deeplift_rescale", model, x, baselines, feature_mask)
    return _deeplift(given, RescaleScores, target)


def deeplift_revealcancel(model: Any, x: Any, *, target: Any = None, baselines: Any = None, feature_mask: Any = None) -> Tensor:
    """DeepLIFT, RevealCancel rule: what cancels is shared out by the mean over both orders."""
    given = case("deeplift_revealcancel", model, x, baselines, feature_mask)
    return _deeplift(given, RevealCancelScores, target)


def lrp(model: Any, x: Any, *, target: Any = None, baselines: Any = None, feature_mask: Any = None) -> Tensor:
    """LRP-0; it knows no baseline. Biases keep their part of the relevance."""
    given = case("lrp", model, x, None, feature_mask)
    return carried(given, RelevanceScores, target)


@with_gradients
def carried(given: Case, carrier: type[Scores], target: Any, check: Callable[[Passed], None] = lambda passed: None) -> Tensor:
    """The scores, averaged over the baselines; ``check`` sees every pass before it is forgotten."""
    explainer = CAFE(given.model)
    request = Request(target, carrier=carrier, total=len(given.x))
    task = Task(explainer.subject, Inputs((given.x,), False, None), [(one,) for one in given.baselines], (), request)

    def finish(passed: Passed) -> Tensor:
        check(passed)
        return distribute(passed, "delta", keep=False).features[0]

    return torch.cat([torch.stack([features for (features,) in against]).mean(0) for against in carry_out(task, finish)])


ROUTING = """
    softmax log_softmax layer_norm group_norm instance_norm rms_norm rsqrt normalize local_response_norm
""".split()  # frozen by design: what flows through them is attributed, not what set them


def _deeplift(given: Case, carrier: type[Scores], target: Any) -> Tensor:
    return carried(given, carrier, target, functools.partial(_refuse_incomplete, given))


def _refuse_incomplete(given: Case, passed: Passed) -> None:
    """A choice that the model makes by comparing, or a denominator, is frozen: the reference then may be another model's."""
    frozen = {operation for operation, _ in passed.run.frozen}
    choices = sorted(op for op in frozen if op not in ROUTING and "attention" not in op and "index" not in op)
    if not choices:
        return
    with torch.no_grad():
        start = given.model(passed.baselines[0].to(given.x.dtype))
    logits = any("final" in note for note in passed.notes)
    apart = torch.inf
    if not logits and isinstance(start, Tensor):
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
