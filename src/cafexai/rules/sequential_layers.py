"""Modules of torch that are known without following their calls: linear layers, common activations, and chains of them.

A module with a hook, a subclass, another forward, a parametrisation, or whose function has another rule by now is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._core.math_functions import pointwise
from .registry import TABLE

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
_shipped: dict[Any, Any] = {}


class NotKnown(Exception):
    """The calls of the module have to be followed."""


def ship() -> None:
    """Remember the rules as they are shipped; called once all of them are in the table."""
    _shipped.update({function: TABLE[function] for function, _ in _CALLS.values() if function is not None})


def layers_of(module: Any, names: dict[int, str]) -> list[Any]:
    """The linear layers (path, weight, bias) and activations (path, function) of a module, in order.

    ``names``: the path of each module by its id.
    """
    kind, path = type(module), names.get(id(module))
    if path is None or kind not in _CALLS or kind.forward is not _FORWARDS[kind]:  # no path: a function, or put in later
        raise NotKnown
    inside = vars(module)
    if inside["_forward_hooks"] or inside["_forward_pre_hooks"] or "forward" in inside or "_call_impl" in inside:
        raise NotKnown
    if kind is nn.Sequential:
        return [layer for child in inside["_modules"].values() for layer in layers_of(child, names)]
    function, settings = _CALLS[kind]
    if function is not None and TABLE.get(function) is not _shipped[function]:  # the user has one of his own
        raise NotKnown
    if kind is nn.Linear:
        return [(path, *_weights(inside["_parameters"]))]
    if kind in _NOTHING or function is None:
        return []
    own = {name: inside[name] for name in settings}
    if any(type(own[name]) is not word for name, word in settings.items()):
        raise NotKnown
    return [(path, torch.relu if kind is nn.ReLU else pointwise(function, (), own))]


def _weights(own: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    """Those of a linear layer as torch makes it: nothing added, nothing replaced."""
    if own.keys() != {"weight", "bias"}:
        raise NotKnown
    weight, bias = own["weight"], own["bias"]
    if type(weight) is not nn.Parameter or weight.layout is not torch.strided or weight.ndim != 2:
        raise NotKnown
    if bias is None:
        return _constant(weight), None
    if type(bias) is not nn.Parameter or bias.shape != weight.shape[:1]:
        raise NotKnown
    if bias.dtype is not weight.dtype or bias.device != weight.device:
        raise NotKnown
    return _constant(weight), _constant(bias)


def _constant(own: Tensor) -> Tensor:
    """Without a graph; what was made in inference mode cannot be kept for the backward pass."""
    return own.detach().clone() if own.is_inference() else own.detach()
