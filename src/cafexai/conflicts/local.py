"""The local units of a model: a linear or convolutional layer directly followed by an activation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..inputs import prepare, references
from ..paths import module_paths
from ..registry import find
from ..scores import Run
from ..subject import Subject

_CONVOLUTIONS = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}


@dataclass(frozen=True)
class Layer:
    """All units of one layer, as linear layers: every unit sees every row of ``inputs``."""

    name: str
    inputs: Tensor  # (rows, features): for convolutions, one row per place
    weight: Tensor  # (units, features)
    bias: Tensor  # (units,)
    activation: str
    reference: Tensor | None = None  # like inputs, of the model without its biases


class _Recorder(TorchFunctionMode):
    """Remembers linear results that an elementwise function takes as they are."""

    def __init__(self, run: Run, biases: bool = True) -> None:
        super().__init__()
        self.run = run
        self.biases = biases
        self.results: dict[int, tuple[Tensor, str, Any, Any, Any]] = {}
        self.layers: list[Layer] = []

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        rule = find(func)
        name = rule.name if rule is not None else ""
        taken = self.results.pop(id(args[0]), None) if args else None
        if taken is not None and taken[0] is args[0] and name in ACTIVATIONS:
            self.layers.append(_layer(taken, name))
        result = func(*args, **kwargs)
        if not self.biases and name in WITH_BIAS:
            result = result - func(torch.zeros_like(args[0]), *args[1:], **kwargs)  # a linear map has its bias at 0
        if func in (F.linear, torch.conv1d, torch.conv2d, torch.conv3d) and isinstance(result, Tensor):
            self.results[id(result)] = (result, self.run.path, func, args, kwargs)
        return result


ACTIVATIONS = frozenset(
    "relu relu6 gelu silu mish tanh sigmoid softplus logsigmoid softsign hardswish hardsigmoid hardtanh elu celu selu "
    "leaky_relu".split()
)


WITH_BIAS = frozenset("linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d batch_norm".split())


def local_layers(model: Any, x: Any, baselines: Any = None) -> list[Layer]:
    """The layers of local units that a forward pass meets, in float64, with their inputs at the baselines if given."""
    subject = Subject(model, 0.5, "bias")
    subject.ready()
    given = prepare(x, subject.model, None)
    found = _recorded(subject, given.tensors, True)
    if baselines is None:
        return found
    (reference,), *more = references(baselines, given, None, subject.model)
    if more or reference is None:
        raise ValueError("audit(..., baselines=...): give one baseline, in the shape of a single input.")
    at_reference = _recorded(subject, (reference,), False)
    return [dataclasses.replace(layer, reference=other.inputs) for layer, other in zip(found, at_reference, strict=True)]


def _recorded(subject: Subject, tensors: tuple[Tensor, ...], biases: bool) -> list[Layer]:
    run = Run(len(tensors[0]), subject.sensitivity)
    recorder = _Recorder(run, biases)
    with torch.no_grad(), subject.kept(), recorder, module_paths(run, subject.names):
        subject.model(*(tensor.clone() for tensor in tensors))
    return recorder.layers


def _layer(taken: Any, name: str) -> Layer:
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

    return Layer(path or "(model)", rows, weight, bias, name)


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
