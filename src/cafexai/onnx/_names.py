"""Paths of modules for the nodes of a graph, as they were before the export where the file tells."""

from __future__ import annotations

import re
from collections import Counter

from torch import nn

from ._graph import Graph, Node
from ._operators import MAIN

_OWN = frozenset(dir(nn.Module()))


def paths(graph: Graph) -> list[str]:
    """One path for each node, all different: that of its module where it is the layer or function of it."""
    main = [(node.domain, node.op) in MAIN for node in graph.nodes]
    places = [_place(node) for node in graph.nodes]
    layers = Counter(place for place, chief in zip(places, main, strict=True) if chief)
    taken: Counter[str] = Counter()
    found = []
    for node, place, chief in zip(graph.nodes, places, main, strict=True):
        alone = chief and place and layers[place] == 1
        path = place if alone else f"{place}.{node.op}" if place else node.op
        taken[path] += 1
        found.append(path if taken[path] == 1 else f"{path}_{taken[path] - 1}")
    return found


def _place(node: Node) -> str:
    """The module that a node belongs to: that of its weights where these have kept their names, or its scope."""
    for name in node.inputs[1:3]:
        bare = name.split("/")[0]
        owner, _, last = bare.rpartition(".")
        if owner and last in ("weight", "bias") and owner.startswith(node.scope):
            return _clean(owner)
    return _clean(node.scope)


def _clean(path: str) -> str:
    """A path that a module can have."""
    words = [re.sub(r"\W", "_", word)[:80] for word in path.split(".")[:30] if word]
    return ".".join(f"{word}_" if word in _OWN else word for word in words)
