"""A plain run of the model in which the results of its linear layers and convolutions are remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .._core.layer_values import LayerValues
from .._core.run import Settings
from ..rules.effects import Effect, effect_of_call
from ..rules.linear import layer_of_call
from ..rules.registry import TABLE, find
from .job import Batch, Job
from .state_guard import StateGuard

WORTH = 2**14  # elements of the inputs,
LARGE = 2**20  # or parameters of the model, from which on products cost more than watching for them
_FUSED = (
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.TransformerEncoder,
)  # torch computes them in other ways if watched


def pays(job: Job, batch: Batch, settings: Settings) -> bool:
    """Whether results of layers are worth remembering, and mean the same in an explained pass."""
    question, model = job.question, job.subject.model
    if question.check_each or question.layer is not None or question.target_layer is not None or len(job.sensitivities) > 1:
        return False
    if any(x.is_floating_point() and x.dtype is not torch.promote_types(x.dtype, settings.dtype) for x in batch.tensors):
        return False
    if settings.carrier.by_feature or not isinstance(model, nn.Module) or any(isinstance(m, _FUSED) for m in model.modules()):
        return False
    if sum(x.numel() for x in batch.tensors) >= WORTH:
        return True
    return sum(parameter.numel() for parameter in model.parameters()) >= LARGE


class WatchLayers(TorchFunctionMode):
    """Remembers results of layers; tells the state guard what is about to be written, as the tracer does."""

    def __init__(self, guard: StateGuard, found: LayerValues) -> None:
        super().__init__()
        self.guard = guard
        self.found = found

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        guard = self.guard
        if not guard.watching:
            effect, rule = effect_of_call(func, kwargs), TABLE.get(func) or find(func)
            if effect is Effect.FIRST:
                guard.save((*args, *kwargs.values())[:1])
            elif effect is Effect.ANY or (rule is not None and "draws" in rule.kinds):
                guard.needed = True
                guard.save(args[:1])
                with guard:
                    return func(*args, **kwargs)
        result = func(*args, **kwargs)
        layer = layer_of_call(func, args, kwargs)
        if layer is not None and type(result) is Tensor:
            self.found.add(*layer, result)
        return result
