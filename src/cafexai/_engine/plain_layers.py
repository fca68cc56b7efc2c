"""A plain run of the model that remembers what its large layers gave (``_core/layer_values.py``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .._core.foreign import pass_on
from .._core.layer_values import LayerValues
from .._core.run import Settings
from ..rules.linear import layer_of_call
from .job import Batch, Job

LARGE = 2**20  # parameters of a model from which on its layers may be worth it
_FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)  # other kernels run if they are watched


def pays(job: Job, batch: Batch, settings: Settings) -> bool:
    """Whether layers are multiplied at as many references as rows, and are the same in both runs."""
    question, model, rows = job.question, job.subject.model, len(batch.tensors[0])
    if rows > 1 and all(r is None or len(r) < rows or r.stride(0) == 0 for r in batch.references):
        return False
    if question.check_each or question.layer is not None or question.target_layer is not None or settings.carrier.by_feature:
        return False
    if any(x.is_floating_point() and x.dtype is not torch.promote_types(x.dtype, settings.dtype) for x in batch.tensors):
        return False
    if not isinstance(model, nn.Module) or sum(parameter.numel() for parameter in model.parameters()) < LARGE:
        return False
    return not any(isinstance(module, _FUSED) for module in model.modules())


class WatchLayers(TorchFunctionMode):
    """Remembers the results of layers."""

    def __init__(self, found: LayerValues) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = pass_on(func, args, kwargs)
        layer = layer_of_call(func, args, kwargs)
        if layer is not None and type(result) is Tensor:
            self.found.add(*layer, result)
        return result
