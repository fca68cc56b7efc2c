"""Recurrent layers, unrolled into their cell equations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .._core.value import Scores
from .arithmetic import add, multiply
from .linear import linear
from .packed import stepwise
from .registry import rule
from .shape import move

Cell = Callable[..., Any]


def _apply(phi: Callable[[Tensor], Tensor], x: Any, keeps_zero: bool) -> Any:
    return x.elementwise(phi, keeps_zero) if isinstance(x, Scores) else phi(x)


def _pieces(x: Any, count: int) -> Any:
    return move(x, lambda v: v.chunk(count, -1))


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
    return move(x, lambda v: v[time])


def _stack(parts: list[Any], dim: int) -> Any:
    first = next((part for part in parts if isinstance(part, Scores)), None)
    if first is None:
        return torch.stack(parts, dim)
    return first.join(first.run, lambda *tensors: torch.stack(tensors, dim), parts)


def _side_by_side(a: Any, b: Any) -> Any:
    return a.join(a.run, lambda *tensors: torch.cat(tensors, -1), [a, b])


def _unroll(name: str) -> Callable[..., Any]:
    two = name == "lstm"

    def step_with(weights: list[Any], projection: Any) -> Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]:
        def step(x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
            new = STEPS[name](x, state if two else state[0], *weights)
            new = new if two else (new,)
            return new if projection is None else (linear(new[0], projection), *new[1:])

        return step

    def run(x: Any, state: tuple[Any, ...], step: Callable[..., Any], backwards: bool) -> tuple[Any, Any]:
        """One direction of one layer on (time, batch, features)."""
        outputs: list[Any] = []
        times = range(x.shape[0])
        for time in reversed(times) if backwards else times:
            state = step(_at(x, time), state)
            outputs.append(state[0])
        return _stack(outputs[::-1] if backwards else outputs, 0), state

    def layers_of(x: Any, sizes: Any, hidden: Any, weights: list[Any], settings: Sequence[Any]) -> Any:
        """All layers and directions, of sequences of one length, or packed with these sizes."""
        has_biases, layers, dropout, training, bidirectional = settings
        if training and dropout > 0:
            raise ValueError(f"explain(...): dropout inside {name} is active. Call model.eval() first.")
        starts = list(hidden) if two else [hidden]
        directions = 2 if bidirectional else 1
        each, usual = len(weights) // (layers * directions), 4 if has_biases else 2
        finals: list[list[Any]] = [[] for _ in starts]
        for layer in range(layers):
            outputs = []
            for direction in range(directions):
                place = layer * directions + direction
                begin = tuple(_at(start, place) for start in starts)
                own = weights[place * each : (place + 1) * each]
                step = step_with(own[:usual], own[usual] if each > usual else None)
                run_it = run if sizes is None else functools.partial(stepwise, sizes=sizes.tolist())
                out, state = run_it(x, begin, step=step, backwards=direction == 1)
                outputs.append(out)
                for final, part in zip(finals, state, strict=True):
                    final.append(part)
            x = outputs[0] if directions == 1 else _side_by_side(*outputs)
        return (x, *(_stack(final, 0) for final in finals))

    def apply(x: Any, second: Any, third: Any, *rest: Any) -> Any:
        if len(rest) == 6 and isinstance(rest[0], (list, tuple)):  # packed: data, sizes, state, weights
            return layers_of(x, second, third, list(rest[0]), rest[1:])
        result = layers_of(_transpose(x) if rest[-1] else x, None, second, list(third), rest[:-1])
        return (_transpose(result[0]) if rest[-1] else result[0], *result[1:])

    return apply


def _transpose(x: Any) -> Any:
    return move(x, lambda v: v.transpose(0, 1))


for _name in STEPS:
    rule(_name, in_place=False)(_unroll(_name))
    rule(f"{_name}_cell", in_place=False)(STEPS[_name])
