"""Whether scores sum to model(x) - model(baseline) for models with attention, and what is frozen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import liveliness
import torch
from specimen import Reader, Specimen
from torch import Tensor
from torch.overrides import TorchFunctionMode

from cafexai import CAFE

OF_CHANGE, OF_OUTPUT = 1e-4, 1e-2  # how far a sum may miss: of the change, or of this part of the largest output
ATTENTION = ("softmax", "attention")  # words in the names of calls
OPEN = ("softmax", "attention", "norm", "rsqrt")  # words in the names of what must not be frozen


class Calls(TorchFunctionMode):
    """The names of the calls of torch that a model makes."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(getattr(function, "__name__", ""))
        return function(*args, **(kwargs or {}))


def hold(build: Callable[[], Specimen], runs: Callable[[], None]) -> dict[str, Any]:
    """The record of one model: what the sums miss of model(x) - model(baseline), and the names of what is frozen."""
    torch.manual_seed(0)
    try:
        specimen = build()
        specimen.model.eval()
        reader = Reader(specimen).eval()
        with Calls() as calls:
            plain = liveliness.outputs(specimen)
    except Exception as error:
        return {"verdict": "not run", "why": f"{type(error).__name__}: {error}"[:300]}
    runs()
    record = {"attention": any(word in name for name in calls.names for word in ATTENTION)}
    try:
        return record | _held(reader, tuple(specimen.inputs.values()), dict(specimen.constants), plain)
    except Exception as error:
        return record | {"verdict": "refused", "why": f"{type(error).__name__}: {error}"[:300]}


def _held(reader: Reader, inputs: tuple[Tensor, ...], constants: dict[str, Any], plain: Tensor) -> dict[str, Any]:
    baselines = tuple(torch.zeros_like(x) if x.is_floating_point() else liveliness.elsewhere(x) for x in inputs)
    torch.manual_seed(0)
    e = CAFE(reader).explain(inputs, baselines, additional_forward_args=constants or None)
    rows = len(plain)
    at_baseline = e.checks.model_at_baseline
    if e.meta.final is None:
        torch.manual_seed(0)
        with torch.no_grad():
            at_baseline = reader(*baselines, **constants)[torch.arange(rows), e.target.reshape(rows, -1)[:, 0]]
    if at_baseline is None:
        return {"verdict": "not known", "why": "a final softmax or sigmoid is left out, and nothing is frozen"}
    at_baseline = at_baseline.double()
    sums = sum(part.double().reshape(rows, -1).sum(1) for part in e.combined)
    change = e.output.double() - at_baseline
    scale = torch.maximum(change.abs(), OF_OUTPUT * torch.maximum(plain.double().abs().amax(1), e.output.double().abs()))
    misses = ((sums - change).abs() / scale.clamp_min(1e-30)).max()
    frozen = sorted(dict.fromkeys(line.split(" in ")[0] for line in e.frozen))
    own_part = (at_baseline - e.baseline_output.double()).abs() / scale.clamp_min(1e-30)
    return {
        "verdict": "holds" if misses <= OF_CHANGE else "misses",
        "misses": float(f"{float(misses):.3g}"),
        "frozen": frozen,
        "frozen part": float(f"{float(own_part.max()):.3g}"),
        "of attention": [name for name in frozen if any(word in name for word in OPEN)],
    }
