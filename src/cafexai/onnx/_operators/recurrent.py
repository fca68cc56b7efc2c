"""LSTM, GRU and RNN: one layer, one or both directions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._graph import Node
from .registry import FormNotKnown, operator

_ROLES = ("", "weight_ih", "weight_hh", "bias", "", "initial_h", "initial_c")
_ORDERS = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}  # torch's gates among those of ONNX
_USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


@operator("LSTM", "GRU", "RNN", roles=_ROLES, main=True)
def recurrent(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    c: Any = None,
    peepholes: Any = None,
) -> tuple[Tensor, ...]:
    """(time, rows, features) -> all outputs (time, directions, rows, hidden), and the last states."""
    both, function = _check_attributes(node, peepholes)
    if lengths is not None and (type(lengths) is not Tensor or not bool((lengths == x.shape[0]).all())):
        raise FormNotKnown(f"{node.op} of sequences of different lengths")
    if node.get("layout", 0):
        raise FormNotKnown(f"{node.op} with layout 1")
    directions, hidden = w.shape[0], r.shape[-1]
    weights: list[Tensor] = []
    for d in range(directions):
        weights += [_gates(node.op, w[d], hidden), _gates(node.op, r[d], hidden)]
        if b is not None:
            weights += [_gates(node.op, part, hidden) for part in b[d].chunk(2)]
    backwards = node.get("direction", "forward") == "reverse"
    start = torch.zeros(directions, x.shape[1], hidden, dtype=w.dtype, device=w.device)
    states: Any = tuple(start if state is None else state for state in (h, c))
    given = x.flip(0) if backwards else x
    result = function(given, states if node.op == "LSTM" else states[0], weights, b is not None, 1, 0.0, False, both, False)
    out = result[0].flip(0) if backwards else result[0]
    out = out.reshape(*out.shape[:2], directions, hidden).permute(0, 2, 1, 3)
    return (out, *result[1:])


def _gates(op: str, weight: Tensor, hidden: int) -> Tensor:
    parts = weight.split(hidden)
    return torch.cat([parts[place] for place in _ORDERS[op]])


def _check_attributes(node: Node, peepholes: Any) -> tuple[bool, Any]:
    both = node.get("direction", "forward") == "bidirectional"
    usual = _USUAL[node.op] * (2 if both else 1)
    given = [name.capitalize() for name in node.get("activations") or usual]
    relu = node.op == "RNN" and set(given) == {"Relu"}
    if (given != usual and not relu) or peepholes is not None or node.get("clip") or node.get("input_forget", 0):
        raise FormNotKnown(f"{node.op} with other activations, peepholes, clip or input_forget")
    if node.op == "GRU" and not node.get("linear_before_reset", 0):
        raise FormNotKnown("GRU with linear_before_reset=0, which torch does not have")
    return both, {"LSTM": torch.lstm, "GRU": torch.gru}.get(node.op, torch.rnn_relu if relu else torch.rnn_tanh)
