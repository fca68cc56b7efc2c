"""Models that are a plain chain of torch's own layers, without following their calls.

Of few rows, most of the time of an explanation goes into following the calls of the model one by one, and into torch's graph
for the backward pass. What an ``nn.Sequential`` of linear layers and activations does is known without: its layers
(``rules/sequential_layers.py``) are taken as they stand, with the steps that the path carrier takes (``_core/steps.py``). The
result is held against the model's own output like any other. Everything else is followed call by call.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._carriers.path import PathScores
from .._carriers.totals import TotalScores
from .._carriers.unit import UnitScores
from .._core.activation import LARGE
from .._core.math_functions import over_rows
from .._core.run import Leaf, Run, Settings
from .._core.steps import Added
from .._core.tolerance import input_change
from .._torch import count_function_modes
from ..rules.sequential_layers import NotKnown, layers_of
from .job import Batch, Job
from .module_paths import hooks_of_others
from .tracer import usual_settings


def steps_of(job: Job, batch: Batch, settings: Settings) -> list[Any] | None:
    """The layers of the model, if they are all there is to it and no value is so large that it would need much memory."""
    x = batch.tensors[0]
    if len(batch.tensors) > 1 or batch.extra or batch.options or x.ndim != 2 or not _usual(job, settings):
        return None
    if hooks_of_others() or count_function_modes():
        return None
    if type(x) is not Tensor or x.dtype not in (torch.float32, torch.float64) or x.numel() > LARGE or not usual_settings():
        return None
    try:
        layers = layers_of(job.subject.model, job.subject.names)
    except NotKnown:
        return None
    weights = [layer[1] for layer in layers if len(layer) == 3]
    if any(w.dtype is not x.dtype or w.device != x.device or x.shape[0] * w.shape[0] > LARGE for w in weights):
        return None
    return layers if layers and len(layers[0]) == 3 else None


def _usual(job: Job, settings: Settings) -> bool:
    """Scores of the inputs are asked for, and nothing else."""
    if settings.carrier not in (PathScores, UnitScores) or settings.dtype is torch.float64:
        return False
    return (
        not job.question.check_each
        and job.request.against is None
        and job.question.layer is None
        and job.question.target_layer is None
        and job.request.output is None
    )


def along(run: Run, batch: Batch, layers: list[Any]) -> TotalScores:
    """The scored output; the steps of the backward pass are left with the run."""
    carrier: Any = run.settings.carrier
    (x,), (reference,) = batch.tensors, batch.references
    delta = input_change(x, reference)
    total = delta.abs()
    leaf = carrier(run, reference, delta, total, None)
    run.leaves.append(Leaf(leaf, 0))
    run.steps = []
    for path, *layer in layers:
        if len(layer) == 2:
            weight, bias = layer
            start, bias = (bias, None) if run.settings.biases_in_reference else (None, bias)
            step, arguments = leaf.linear_step(weight, not run.steps), _linear(run, path, delta, weight, bias)
            if reference is not None:
                give = F.linear if run.cache is None else run.linear_at_reference
                reference = over_rows(lambda r, w=weight, b=start, give=give: give(r, w, b), reference)  # type: ignore[misc]
            elif start is not None:
                reference = start.expand(len(delta), -1)
        else:
            rule = run.settings.flow_rule_at(path)
            step, before, behind, phi = carrier.activation(delta, reference, layer[0], True, rule)
            arguments, reference = (before, behind, phi, rule), behind
        delta, total, *saved = step.apply(delta, total, *arguments)
        run.steps.append((step, *saved))
    return carrier(run, reference, delta, total, None)


def _linear(run: Run, path: str, delta: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Any, ...]:
    """What a linear step takes."""
    added = None
    if bias is not None:
        run.biases.note_layer(path, delta)
        added = Added(run.biases, bias, path, masks=False)
    return weight, run.magnitudes, added, None if run.deltas is None else run.deltas.next(delta, weight, bias)
