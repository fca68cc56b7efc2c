"""What exporters take apart is put back: scores depend on it, the output does not.

A GELU that is a division, an error function, a sum and two products has one score flow for each of these; as one function of
its input it has that of the activation rule. So the parts are found and made one node again. What is like such a thing and
cannot be put back is told in a note.
"""

from __future__ import annotations

from .._graph import Graph
from .functions import restore_functions
from .layers import note_folded, restore_layers
from .norms import restore_norms


def restore(graph: Graph) -> None:
    """Put back norms, functions and layers, in this order: the parts of a norm are like those of a function."""
    restore_norms(graph)
    restore_layers(graph)
    restore_functions(graph)
    note_folded(graph)
    graph.prune()
