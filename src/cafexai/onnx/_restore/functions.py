"""Functions of one value: found by what they do, however they are written.

The nodes between a value and the place where all that was made of it meets again are run on points of the real line; if the
result is that of a function of torch, they are that function. So no spelling has to be known.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .._graph import OURS, Graph, Node
from .._operators import TABLE
from .._operators.elementwise import FUNCTIONS

_PARTS = frozenset(
    """Abs Add Sub Mul Div Neg Pow Sqrt Reciprocal Exp Log Erf Tanh Sigmoid Softplus HardSigmoid Clip Relu Max Min Sign
       Where Greater GreaterOrEqual Less LessOrEqual And Or Not Cast Elu LeakyRelu Identity""".split()
)
_CURVED = frozenset("Exp Log Erf Tanh Sigmoid Softplus HardSigmoid Clip Relu Where".split())
_MOST = 24  # nodes
_NEAR = 2e-6  # constants are written in single precision
_NOTHING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gelu", {}), ("gelu", {"approximate": "tanh"}), ("silu", {}), ("mish", {}), ("hardswish", {}), ("tanhshrink", {}),
    ("softsign", {}), ("selu", {}), ("logsigmoid", {}), ("elu", {}), ("celu", {}), ("leaky_relu", {}),
)  # fmt: skip


def restore_functions(graph: Graph) -> None:
    """Every group of nodes that is a known function becomes that one; what only looks like one is told."""
    odd: list[tuple[Node, list[Node]]] = []
    done: set[int] = set()
    for node in reversed(list(graph.nodes)):
        if node.op not in _PARTS or node.domain or id(node) in done:
            continue
        group = _restore_function(graph, node)
        if group:
            done |= {id(one) for one in group}
            continue
        like = next((group for source, group in _groups(graph, node) if _like_a_function(graph, source, group)), None)
        if like is not None:
            odd.append((node, like))
    # parts of what was put back, and of what is told already, are not told
    left: list[str] = []
    for node, group in odd:
        if done.isdisjoint(id(one) for one in group):
            done |= {id(one) for one in group}
            left.append(node.name or node.op)
    if left:
        some = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
        graph.notes.append(
            f"The ONNX file has functions of one value that are written out in parts ({some}) and are none that is known: "
            "their scores are those of the parts, and may differ from those of the model before its export."
        )


def _restore_function(graph: Graph, last: Node) -> list[Node]:
    """The nodes that have become one known function which ends here; none if it is not known."""
    for source, group in _groups(graph, last):
        known = _find_function(graph, source, group, last.outputs[0])
        if known is not None:
            name, settings = known
            new = Node(name, [source], list(last.outputs), settings, last.name, last.scope, last.version, OURS)
            graph.replace(group, new, name)
            return group
    return []


def _groups(graph: Graph, last: Node) -> Iterator[tuple[str, list[Node]]]:
    """Growing groups of nodes that end in this one and begin at a single value."""
    place = {id(node): number for number, node in enumerate(graph.nodes)}
    group = [last]
    while len(group) <= _MOST:
        inside = {id(node) for node in group}
        made = {name for node in group for name in node.outputs}
        open_ends = {name for node in group for name in node.inputs if name and name not in made}
        sources = {name for name in open_ends if name not in graph.constants}
        numbers = [graph.constants[name] for name in open_ends - sources]
        if any(one.numel() != 1 for one in numbers):
            return
        if len(sources) == 1 and len(group) > 1:
            (source,) = sources
            if all(one.ndim <= (graph.rank(source) or 1) for one in numbers):
                yield source, group
        makers = [maker for name in sources if (maker := graph.maker(name)) is not None]
        if len(makers) < len(sources) and len(sources) > 1 and not makers:
            return
        nearest = max(makers, key=lambda maker: place[id(maker)], default=None)
        if nearest is None or nearest.op not in _PARTS or nearest.domain or len(nearest.outputs) != 1:
            return
        value = nearest.outputs[0]
        if value in graph.outputs or any(id(user) not in inside for user in graph.users(value)):
            return
        group = [nearest, *group]


def _meets(graph: Graph, source: str, group: list[Node]) -> bool:
    """More than one way leads from the source to the end."""
    return sum(name == source for node in group for name in node.inputs) > 1


def _like_a_function(graph: Graph, source: str, group: list[Node]) -> bool:
    """It looks as if an exporter had taken it apart: a product of a value with something curved that is made of it."""
    return (
        _meets(graph, source, group)
        and any(node.op in _CURVED for node in group)
        and group[-1].op in ("Mul", "Div", "Where")
        and sum(name not in graph.constants for name in group[-1].inputs) > 1
    )


@functools.cache
def _points() -> Tensor:
    line = torch.linspace(-9, 9, 721, dtype=torch.float64)
    return torch.cat([line, torch.tensor([-30.0, -15.0, 1e-3, -1e-3, 15.0, 30.0], dtype=torch.float64)])


def _find_function(graph: Graph, source: str, group: list[Node], result: str) -> tuple[str, dict[str, Any]] | None:
    """The function of torch that the group is."""
    chain = [node.op for node in group] == ["Sigmoid", "Log"]
    if not (chain or _meets(graph, source, group)):
        return None
    found = _evaluate(graph, source, group, result)
    if found is None:
        return None
    for name, settings in (*_NOTHING, *_with_numbers(graph, group)):
        wanted = FUNCTIONS[name](_points(), **settings)
        if torch.allclose(found, wanted, rtol=_NEAR, atol=_NEAR):
            return name, settings
    return None


def _evaluate(graph: Graph, source: str, group: list[Node], result: str) -> Tensor | None:
    values: dict[str, Any] = {source: _points()}
    for node in group:
        given = [values[name] if name in values else _double(graph.constants.get(name)) for name in node.inputs]
        if node.op == "Cast":
            return None
        try:
            values[node.outputs[0]] = TABLE["", node.op](node, *given)
        except (RuntimeError, TypeError, ValueError):
            return None
    found = values[result]
    return found if found.dtype is torch.float64 and found.shape == _points().shape else None


def _double(constant: Any) -> Any:
    if constant is None or not constant.is_floating_point():
        return constant
    return constant.double().reshape(())


def _with_numbers(graph: Graph, group: list[Node]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Functions with a setting, which is one of the constants of the group."""
    numbers = {graph.number(name) for node in group for name in node.inputs if name in graph.constants}
    numbers |= {float(value) for node in group for value in node.attributes.values() if isinstance(value, (int, float))}
    for one in sorted({abs(number) for number in numbers if number is not None}):
        if one == 0:
            continue
        for name, setting in (("elu", "alpha"), ("celu", "alpha"), ("leaky_relu", "negative_slope")):
            yield name, {setting: one}
        for name in ("hardshrink", "softshrink"):
            yield name, {"lambd": one}
    for one in sorted(number for number in numbers if number is not None):
        for other in sorted(number for number in numbers | {0.0} if number is not None):
            yield "threshold", {"threshold": one, "value": other}
