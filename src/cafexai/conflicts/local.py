"""The local units of a model: a linear or convolutional layer directly followed by an activation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..inputs import prepare
from ..registry import find
from ..scores import Run
from ..subject import Subject
from ..trace import module_paths

_CONVOLUTIONS = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}


@dataclass(frozen=True)
class Layer:
    """All units of one layer, as linear layers: every unit sees every row of ``inputs``."""

    name: str
    inputs: Tensor  # (rows, features): for convolutions, one row per place
    weight: Tensor  # (units, features)
    bias: Tensor  # (units,)
    activation: str
    phi: Callable[[Tensor], Tensor]


class _Recorder(TorchFunctionMode):
    """Remembers linear results that an elementwise function takes as they are."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.results: dict[int, tuple[Tensor, str, Any, Any, Any]] = {}
        self.layers: list[Layer] = []

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        rule = find(func)
        name = rule.name if rule is not None else ""
        taken = self.results.pop(id(args[0]), None) if args else None
        if taken is not None and taken[0] is args[0] and name in ACTIVATIONS:
            options = {key: value for key, value in kwargs.items() if key != "inplace"}
            self.layers.append(_layer(taken, name, func, args[1:], options))
        result = func(*args, **kwargs)
        if func in (F.linear, torch.conv1d, torch.conv2d, torch.conv3d) and isinstance(result, Tensor):
            self.results[id(result)] = (result, self.run.path, func, args, kwargs)
        return result


ACTIVATIONS = frozenset(
    "relu relu6 gelu silu mish tanh sigmoid softplus logsigmoid softsign hardswish hardsigmoid hardtanh elu celu selu "
    "leaky_relu".split()
)


def local_layers(model: Any, x: Any, c: float = 0.5) -> list[Layer]:
    """The layers of local units that a forward pass meets, in float64."""
    subject = Subject(model, c, "bias")
    subject.ready()
    given = prepare(x, subject.model, None)
    run = Run(given.rows, subject.sensitivity)
    recorder = _Recorder(run)
    with torch.no_grad(), subject.kept(), recorder, module_paths(run, subject.names):
        subject.model(*(tensor.clone() for tensor in given.tensors))
    return recorder.layers


def _layer(taken: Any, name: str, func: Any, args: Any, options: Any) -> Layer:
    _, path, linear, called, named = taken
    parts = dict(zip(("input", "weight", "bias", "stride", "padding", "dilation", "groups"), called, strict=False), **named)
    inputs, weight, bias = (None if parts.get(k) is None else parts[k].detach().double() for k in ("input", "weight", "bias"))
    assert inputs is not None
    assert weight is not None
    if linear is F.linear:
        rows = inputs.reshape(-1, inputs.shape[-1])
    else:
        rows, weight = _patches(inputs, weight, parts, _CONVOLUTIONS[linear])
    bias = torch.zeros(len(weight), dtype=torch.float64, device=weight.device) if bias is None else bias

    def phi(value: Tensor) -> Tensor:
        result: Tensor = func(value.clone(), *args, **options)
        return result

    return Layer(path or "(model)", rows, weight, bias, name, phi)


def _patches(inputs: Tensor, weight: Tensor, parts: dict[str, Any], spatial: int) -> tuple[Tensor, Tensor]:
    """A convolution as a linear layer on patches: found by what it does to each element of a patch."""
    if parts.get("groups", 1) != 1 or spatial == 3 or isinstance(parts.get("padding", 0), str):
        raise ValueError("local units of grouped, three-dimensional or padding='same' convolutions are not taken apart")
    if spatial == 1:
        inputs, weight = inputs[:, :, None], weight[:, :, None]

    def both(option: str, default: int) -> tuple[int, int]:
        value = parts.get(option, default)
        value = (value, value) if isinstance(value, int) else tuple(value) * (2 if len(value) == 1 and spatial == 2 else 1)
        return (default, value[0]) if spatial == 1 else (value[0], value[1])

    options = {"stride": both("stride", 1), "padding": both("padding", 0), "dilation": both("dilation", 1)}
    if spatial == 1:
        options["padding"] = (0, options["padding"][1])
    columns = F.unfold(inputs, weight.shape[2:], **options)
    return columns.transpose(1, 2).reshape(-1, columns.shape[1]), weight.flatten(1)
