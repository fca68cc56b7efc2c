"""What is known before any row is: constants are computed once, branches that are decided are taken."""

from __future__ import annotations

import dataclasses
import math

import torch

from ._graph import Graph, Node
from ._operators import TABLE
from ._operators.registry import MOST, FormNotKnown, TooLarge
from ._read import DTYPES

LARGEST = 2**24  # elements of a constant that is made here; larger ones are left to be made when the model runs
_MET = 2**31  # no constants are made of several that would be larger than this if every element met every other


def fold(graph: Graph) -> None:
    """Compute what depends on constants alone, and leave out what changes nothing."""
    kept: list[Node] = []
    same: dict[str, str] = {}  # values that are another value under a new name
    waiting = graph.nodes[::-1]
    while waiting:
        node = waiting.pop()
        node.inputs = [same.get(name, name) for name in node.inputs]
        if node.op == "If" and not node.domain and node.inputs[0] in graph.constants:
            waiting.extend(reversed(_take_branch(graph, node)))
        elif _changes_nothing(graph, node):
            same[node.outputs[0]] = node.inputs[0]
        elif not _compute(graph, node):
            kept.append(node)
    graph.nodes = kept
    for name, source in same.items():  # an output that is an input, a constant, or another output
        if name in graph.outputs:
            graph.nodes.append(Node("Identity", [source], [name]))
    graph.mark_changed()


def _compute(graph: Graph, node: Node) -> bool:
    """The node gives constants, which it has become."""
    function = TABLE.get((node.domain, node.op))
    given = [graph.constants.get(name) for name in node.inputs]
    lacking = any(value is None and name for name, value in zip(node.inputs, given, strict=True))
    if function is None or lacking or math.prod(one.numel() for one in given if one is not None and one.numel() > 2**12) > _MET:
        return False
    limit = MOST.set(LARGEST)
    try:
        with torch.no_grad():
            found = function(node, *given)
    except (TooLarge, FormNotKnown, RuntimeError, ValueError, TypeError, LookupError, ArithmeticError):
        return False  # told when the model runs, with the node
    finally:
        MOST.reset(limit)
    results = found if isinstance(found, tuple) else (found,)
    if sum(one.numel() for one in results) > max(LARGEST, sum(one.numel() for one in given if one is not None)):
        return False
    graph.constants.update({name: one for name, one in zip(node.outputs, results, strict=False) if name})
    return True


def _changes_nothing(graph: Graph, node: Node) -> bool:
    """It hands on what it gets."""
    if node.domain or node.outputs[0] in graph.outputs or node.inputs[:1] in ([], [""]):
        return False
    if node.op == "Identity":
        return node.inputs[0] not in graph.constants
    if node.op == "Dropout":
        drops = graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
        return (drops is None or not bool(drops)) and (len(node.outputs) < 2 or not graph.users(node.outputs[1]))
    if node.op == "Cast":
        known = graph.declared.get(node.inputs[0])
        return known is not None and known.kind is not None and known.kind == DTYPES.get(node.get("to"))
    return False


def _take_branch(graph: Graph, node: Node) -> list[Node]:
    """The nodes of the branch that the constant condition takes, giving what the node gave."""
    branch: Graph = node.get("then_branch" if bool(graph.constants[node.inputs[0]].any()) else "else_branch")
    own = {name for inner in branch.nodes for name in inner.outputs} | set(branch.constants)
    renamed = {name: f"{node.outputs[0]}/{name}" for name in own if name}
    graph.constants.update({renamed[name]: value for name, value in branch.constants.items()})
    nodes = [
        dataclasses.replace(
            inner,
            inputs=[renamed.get(name, name) for name in inner.inputs],
            outputs=[renamed.get(name, name) for name in inner.outputs],
        )
        for inner in branch.nodes
    ]
    last = [
        Node("Identity", [renamed.get(name, name)], [given], version=node.version)
        for name, given in zip(branch.outputs, node.outputs, strict=True)
    ]
    return nodes + last
