"""Recurrent layers, unrolled into their cell equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._scores.value import Scores
from ..errors import UnsupportedOperation
from .arithmetic import add, multiply
from .linear import linear
from .shape import moved
from .table import rule

Cell = Callable[..., Any]


def _apply(phi: Callable[[Tensor], Tensor], x: Any, keeps_zero: bool) -> Any:
    return x.elementwise(phi, keeps_zero) if isinstance(x, Scores) else phi(x)


def _pieces(x: Any, count: int) -> Any:
    return moved(x, lambda v: v.chunk(count, -1))


def lstm_step(x: Any, state: tuple[Any, Any], w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None) -> tuple[Any, Any]:
    """i, f, o = sigmoid(...), g = tanh(...); c' = f c + i g; h' = o tanh(c')."""
    hidden, memory = state
    gates = add(linear(x, w_x, b_x), linear(hidden, w_h, b_h))
    i, f, g, o = _pieces(gates, 4)
    i, f, o = (_apply(torch.sigmoid, part, False) for part in (i, f, o))
    memory = add(multiply(f, memory), multiply(i, _apply(torch.tanh, g, True)))
    return multiply(o, _apply(torch.tanh, memory, True)), memory


def gru_step(x: Any, hidden: Any, w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None) -> Any:
    """r, z = sigmoid(...); n = tanh(x' + r h'); h' = n + z (h - n)."""
    r_x, z_x, n_x = _pieces(linear(x, w_x, b_x), 3)
    r_h, z_h, n_h = _pieces(linear(hidden, w_h, b_h), 3)
    reset, update = (_apply(torch.sigmoid, add(a, b), False) for a, b in ((r_x, r_h), (z_x, z_h)))
    new = _apply(torch.tanh, add(n_x, multiply(reset, n_h)), True)
    return add(new, multiply(update, add(hidden, multiply(new, -1))))


def _rnn_step(phi: Callable[[Tensor], Tensor]) -> Cell:
    def step(x: Any, hidden: Any, w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None) -> Any:
        return _apply(phi, add(linear(x, w_x, b_x), linear(hidden, w_h, b_h)), True)

    return step


STEPS: dict[str, Cell] = {
    "lstm": lstm_step, "gru": gru_step, "rnn_tanh": _rnn_step(torch.tanh), "rnn_relu": _rnn_step(torch.relu)
}  # fmt: skip


def _at(x: Any, time: int) -> Any:
    return moved(x, lambda v: v[time])


def _stacked(parts: list[Any], dim: int) -> Any:
    first = next((part for part in parts if isinstance(part, Scores)), None)
    if first is None:
        return torch.stack(parts, dim)
    return first.join(first.run, lambda *tensors: torch.stack(tensors, dim), parts)


def _side_by_side(a: Any, b: Any) -> Any:
    return a.join(a.run, lambda *tensors: torch.cat(tensors, -1), [a, b])


def _unrolled(name: str) -> Callable[..., Any]:
    step, two = STEPS[name], name == "lstm"

    def run(x: Any, start: list[Any], weights: list[Any], backwards: bool) -> tuple[Any, Any]:
        """One direction of one layer on (time, batch, features)."""
        state: Any = tuple(start) if two else start[0]
        outputs: list[Any] = []
        times = range(x.shape[0])
        for time in reversed(times) if backwards else times:
            state = step(_at(x, time), state, *weights)
            outputs.append(state[0] if two else state)
        return _stacked(outputs[::-1] if backwards else outputs, 0), state

    def apply(x: Any, second: Any, third: Any, *rest: Any) -> Any:
        if isinstance(third, (Tensor, Scores)) or len(rest) == 5:
            raise UnsupportedOperation("a packed sequence is not followed; pass the padded sequence instead")
        hidden, weights = second, list(third)
        has_biases, layers, dropout, training, bidirectional, batch_first = rest
        if training and dropout > 0:
            raise ValueError(f"explain(...): dropout inside {name} is active. Call model.eval() first.")
        starts = list(hidden) if two else [hidden]
        directions = 2 if bidirectional else 1
        each = len(weights) // (layers * directions)
        if each != (4 if has_biases else 2):
            raise UnsupportedOperation("a projection (proj_size) is not followed")
        if batch_first:
            x = _transposed(x)
        finals: list[list[Any]] = [[] for _ in starts]
        for layer in range(layers):
            outputs = []
            for direction in range(directions):
                place = layer * directions + direction
                begin = [_at(start, place) for start in starts]
                out, state = run(x, begin, weights[place * each : (place + 1) * each], direction == 1)
                outputs.append(out)
                for final, part in zip(finals, state if two else (state,), strict=True):
                    final.append(part)
            x = outputs[0] if directions == 1 else _side_by_side(*outputs)
        return (_transposed(x) if batch_first else x, *(_stacked(final, 0) for final in finals))

    return apply


def _transposed(x: Any) -> Any:
    return moved(x, lambda v: v.transpose(0, 1))


for _name in STEPS:
    rule(_name, in_place=False)(_unrolled(_name))
    rule(f"{_name}_cell", in_place=False)(STEPS[_name])
