"""Models that are a plain chain of torch's own layers, without following their calls.

Of few rows, most of the time of an explanation goes into following the calls of the model one by one, and into torch's graph
for the way back. What an ``nn.Sequential`` of linear layers and activations does is known without: its layers are taken as
they stand, with the formulas that the rules use, and the result is held against the model's own output like any other.
Everything else, also a chain with a hook, a subclass or another rule, is followed call by call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as modules

from . import activation, fused, registry
from . import rules as _rules  # noqa: F401  (fills the table)
from .activation import applied, pulled
from .calls import usual_settings
from .path import PathScores
from .pointwise import Function, over_rows, pointwise
from .request import Batch, Request
from .scores import Leaf, Run
from .subject import Subject

# What each kind of module calls, and its settings; all activations are 0 at 0.
_CALLS: dict[type[nn.Module], tuple[Callable[..., Tensor] | None, dict[str, type]]] = {
    nn.Sequential: (None, {}),
    nn.Linear: (F.linear, {}),
    nn.ReLU: (F.relu, {}),
    nn.GELU: (F.gelu, {"approximate": str}),
    nn.SiLU: (F.silu, {}),
    nn.Tanh: (torch.tanh, {}),
    nn.ELU: (F.elu, {"alpha": float}),
    nn.LeakyReLU: (F.leaky_relu, {"negative_slope": float}),
    nn.Identity: (None, {}),
    nn.Dropout: (F.dropout, {}),  # in training, if anything is dropped, it is refused before
}
_NOTHING = (nn.Identity, nn.Dropout)
_FORWARDS = {kind: kind.forward for kind in _CALLS}
_RULES = {function: registry.find(function) for function, _ in _CALLS.values() if function is not None}


class Layer:
    """A linear layer on delta and total, and back."""

    def __init__(self, path: str, weight: Tensor, bias: Tensor | None) -> None:
        self.path, self.weight, self.bias = path, weight, bias

    def forward(self, run: Run, delta: Tensor, total: Tensor, reference: Tensor | None) -> Any:
        self.ledger = run.ledger
        self.size = None if self.bias is None else self.bias.abs()
        if self.bias is not None:
            self.ledger.note_layer(self.path, delta)
        if reference is not None:
            reference = over_rows(lambda r: F.linear(r, self.weight), reference)
        if run.deltas is None:
            delta = F.linear(delta, self.weight, self.bias)
        else:
            delta = run.deltas.next(delta, self.weight, self.bias)
        magnitude, keep = run.magnitudes.of(self.weight, delta)
        self.magnitude = magnitude if keep else None
        return delta, F.linear(total, magnitude, self.size), reference

    def backward(self, from_delta: Tensor | None, from_total: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        for gradient, bias in ((from_delta, self.bias), (from_total, self.size)):
            if gradient is not None and bias is not None:
                self.ledger.shares.append((self.path, gradient @ bias))
        to_delta = None if from_delta is None else from_delta @ self.weight
        if from_total is None:
            return to_delta, None
        return to_delta, from_total @ (self.weight.abs() if self.magnitude is None else self.magnitude)


class Activation:
    """The activation rule on delta and total, and back."""

    def __init__(self, path: str, phi: Function) -> None:
        self.path, self.phi = path, phi

    def forward(self, run: Run, delta: Tensor, total: Tensor, reference: Tensor | None) -> Any:
        behind = None if reference is None else over_rows(self.phi, reference)
        c, pays = run.sensitivity(self.path), fused.pays(delta, self.phi)
        delta, total, *self.maps = applied(delta, total, reference, behind, self.phi, c, pays)
        return delta, total, behind

    def backward(self, from_delta: Tensor | None, from_total: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        return pulled((from_delta, from_total), self.maps)


Stages = list[Layer | Activation]


class _NotAChain(Exception):
    """The calls of the model have to be followed."""


def stages_of(subject: Subject, batch: Batch, request: Request) -> Stages | None:
    """The layers of the model, if they are all there is to it and no value is so large that it would need much memory."""
    x = batch.tensors[0]
    if len(batch.tensors) > 1 or batch.extra or batch.options or x.ndim != 2 or not _usual(request):
        return None
    if modules._global_forward_hooks or modules._global_forward_pre_hooks or torch._C._len_torch_function_stack():
        return None
    if type(x) is not Tensor or x.dtype not in (torch.float32, torch.float64) or x.numel() > activation.LARGE:
        return None
    if not usual_settings():
        return None
    stages: Stages = []
    try:
        _collect(subject.model, subject.names, x, stages)
    except _NotAChain:
        return None
    return stages if any(isinstance(stage, Layer) for stage in stages) else None


def _usual(request: Request) -> bool:
    """Scores of the inputs are asked for, as published, and nothing else."""
    if request.carrier is not PathScores or request.double or request.biases_in_reference or request.check != "output":
        return False
    return request.layer is None and request.target_layer is None and request.output is None


def _collect(module: Any, names: dict[int, str], x: Tensor, stages: Stages) -> None:
    """The stages of a module and of all inside it."""
    kind, path = type(module), names.get(id(module))
    if path is None or kind not in _CALLS or kind.forward is not _FORWARDS[kind]:  # no path: a function, or put in later
        raise _NotAChain
    inside = vars(module)
    if inside["_forward_hooks"] or inside["_forward_pre_hooks"] or "forward" in inside or "_call_impl" in inside:
        raise _NotAChain
    function, settings = _CALLS[kind]
    if function is not None and registry.find(function) is not _RULES[function]:  # the user has one of his own
        raise _NotAChain
    if kind is nn.Sequential:
        for child in inside["_modules"].values():
            _collect(child, names, x, stages)
    elif kind is nn.Linear:
        stages.append(_layer(path, inside["_parameters"], x))
    elif kind not in _NOTHING and function is not None:
        own = {name: inside[name] for name in settings}
        if any(type(own[name]) is not word for name, word in settings.items()):
            raise _NotAChain
        stages.append(Activation(path, torch.relu if kind is nn.ReLU else pointwise(function, (), own)))


def _layer(path: str, own: dict[str, Any], x: Tensor) -> Layer:
    """A linear layer as torch makes it: nothing added, nothing replaced."""
    if own.keys() != {"weight", "bias"}:
        raise _NotAChain
    weight, bias = own["weight"], own["bias"]
    for part in (weight,) if bias is None else (weight, bias):
        if type(part) is not nn.Parameter or part.dtype is not x.dtype or part.device != x.device:
            raise _NotAChain
    if weight.layout is not torch.strided or weight.ndim != 2 or len(x) * len(weight) > activation.LARGE:
        raise _NotAChain
    if bias is not None and bias.shape != weight.shape[:1]:
        raise _NotAChain
    return Layer(path, weight.detach(), None if bias is None else bias.detach())


def along(run: Run, batch: Batch, stages: Stages) -> PathScores:
    """The scored output; the way back is left with the run."""
    (x,), (reference,) = batch.tensors, batch.references
    delta = x if reference is None else x - reference
    leaf = PathScores(run, reference, delta, delta.abs(), None)
    run.leaves.append(Leaf(leaf, 0))
    delta, total = leaf.parts
    for stage in stages:
        delta, total, reference = stage.forward(run, delta, total, reference)

    def back(from_delta: Tensor | None, from_total: Tensor | None, keep: bool) -> tuple[Tensor | None, Tensor | None]:
        gradients, left = (from_delta, from_total), stages.copy() if keep else stages
        while left:
            gradients = left.pop().backward(*gradients)
        return gradients

    run.back = back
    return PathScores(run, reference, delta, total, None)
