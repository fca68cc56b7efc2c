"""A graph as a PyTorch module that calls ordinary functions of torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import ModelProblem
from ._check import compare_with_others
from ._graph import Graph, Node
from ._names import paths
from ._operators import ROLES, TABLE
from ._operators.registry import FormNotKnown, function_of


class Operation(nn.Module):
    """One operator with the constants that belong to it."""

    def __init__(self, node: Node, constants: dict[str, Tensor]) -> None:
        super().__init__()
        self.node = node
        roles = ROLES.get((node.domain, node.op), ())
        self.places: list[str | None] = []  # for each input the name of a constant of ours, or None where a value comes
        for place, name in enumerate(node.inputs):
            constant = constants.get(name)
            if constant is None:
                self.places.append("" if not name else None)
                continue
            own = roles[place] if place < len(roles) and roles[place] else f"input_{place}"
            if isinstance(constant, nn.Parameter):
                self.register_parameter(own, constant)
            else:
                self.register_buffer(own, constant)
            self.places.append(own)

    def forward(self, *values: Any) -> Any:
        """What the operator gives, a tuple where it gives several."""
        given, function = iter(values), function_of(self.node)
        taken = [next(given) if own is None else getattr(self, own) if own else None for own in self.places]
        while taken and taken[-1] is None:
            taken.pop()
        try:
            return function(self.node, *taken)
        except (FormNotKnown, TypeError, LookupError, ArithmeticError) as error:
            what = error if isinstance(error, FormNotKnown) else f"this form of it ({type(error).__name__}: {error})"
            raise ModelProblem(
                f"node {self.node.name or self.node.outputs[0]!r} of the ONNX file, {self.node.kind} (opset "
                f"{self.node.version}): {what} is not known. Export the model without it, or explain the PyTorch model itself."
            ) from error

    def extra_repr(self) -> str:
        """As it is printed."""
        settings = ", ".join(f"{name}={value}" for name, value in self.node.attributes.items() if not isinstance(value, Tensor))
        return f"{self.node.kind}{', ' if settings else ''}{settings}"


class _Step(NamedTuple):
    operation: Operation
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    last: tuple[str, ...]  # values that are not needed any more


class OnnxModel(nn.Module):
    """The model of an ONNX file; ``from_onnx`` makes it. ``input_names`` and ``output_names`` are those of the file.

    Args:
        graph: The graph of the file.
        path: The file that outputs are compared with; None compares with none.
    """

    def __init__(self, graph: Graph, path: Path | None = None) -> None:
        super().__init__()
        self.path = path  # the file that outputs are held against
        self.input_names = tuple(graph.inputs)
        self.output_names = tuple(graph.outputs)
        self.put_back = dict(graph.put_back)
        self.explanation_notes = tuple(graph.notes)
        self.rows = _find_fixed_rows(graph)
        self.sigmoids = {node.outputs[0] for node in graph.nodes if node.op == "Sigmoid"} & set(graph.outputs)
        constants = {name: _as_parameter(value) for name, value in graph.constants.items()}
        self._fixed = {name: constants[name] for name in graph.outputs if name in constants}
        self._steps: list[_Step] = []
        needed = set(graph.outputs)
        found = []
        for node, place in zip(reversed(graph.nodes), reversed(paths(graph)), strict=True):
            takes = tuple(name for name in node.inputs if name and name not in constants)
            last = tuple(dict.fromkeys(name for name in (*takes, *node.outputs) if name and name not in needed))
            needed.update(takes)
            found.append((place, _Step(Operation(node, constants), takes, tuple(node.outputs), last)))
        for place, step in reversed(found):
            _place(self, place, step.operation)
            self._steps.append(step)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The outputs of the model.

        Args:
            *inputs: Inputs in the order of the file.
            **named: Inputs by their names.

        Returns:
            The output; several as a dictionary by their names.
        """
        given = dict(zip(self.input_names, inputs, strict=False)) | named
        if set(given) != set(self.input_names) or len(inputs) > len(self.input_names):
            names = ", ".join([*(f"number {place}" for place, _ in enumerate(inputs)), *named])
            raise ValueError(
                f"the model takes the inputs {', '.join(self.input_names)} and was given {names}. Give all of them, in this "
                "order or by these names."
            )
        rows = len(next(iter(given.values()))) if given else 0
        if self.rows is None or rows == self.rows:
            results = self._run(dict(given))
        else:
            results = self._in_portions(given, rows, self.rows)
        if self.path is not None and all(type(one) is Tensor for one in given.values()):
            compare_with_others(self, self.path, given, dict(zip(self.output_names, results, strict=True)))
        return results[0] if len(results) == 1 else dict(zip(self.output_names, results, strict=True))

    def _run(self, values: dict[str, Any]) -> list[Any]:
        for operation, takes, gives, last in self._steps:
            found = operation(*[values[name] for name in takes])
            values.update(zip(gives, found if isinstance(found, tuple) else (found,), strict=False))
            for name in last:
                values.pop(name, None)
        values.pop("", None)
        return [self._fixed[name] if name in self._fixed else values[name] for name in self.output_names]

    def _in_portions(self, given: dict[str, Any], rows: int, each: int) -> list[Any]:
        """The model takes a fixed number of rows: as many at a time."""
        if rows % each:
            raise ValueError(
                f"the model was exported for {each} rows at a time, and these are {rows}. Give a multiple of {each}, with "
                f"batch_size={each}, or export it with a dynamic batch: torch.onnx.export(..., "
                'dynamic_axes={"input": {0: "rows"}}), or dynamic_shapes with dynamo=True.'
            )
        parts = [
            self._run({name: value[first : first + each] for name, value in given.items()}) for first in range(0, rows, each)
        ]
        return [torch.cat(same) for same in zip(*parts, strict=True)]


def _find_fixed_rows(graph: Graph) -> int | None:
    """How many rows the model takes at a time, where that is fixed."""
    sizes = [graph.declared[name].shape for name in graph.inputs if name in graph.declared]
    first = {shape[0] for shape in sizes if shape}
    return next(iter(first)) if len(first) == 1 and None not in first else None


def _as_parameter(value: Tensor) -> Tensor:
    return nn.Parameter(value, requires_grad=False) if value.is_floating_point() and value.numel() > 1 else value


def _place(root: nn.Module, path: str, operation: Operation) -> None:
    """Put a module where its path says, with modules in between as they are needed."""
    *above, own = path.split(".")
    holder = root
    for word in above:
        if word not in holder._modules:
            holder.add_module(word, nn.Module())
        inner = holder._modules[word]
        assert inner is not None
        holder = inner
    old = holder._modules.get(own)
    if old is not None:  # a place that was made for what is below it
        for name, inner in old._modules.items():
            operation.add_module(name, inner)
    holder._modules[own] = operation


def refuse_unknown(graph: Graph, source: str) -> None:
    """All operators that are not known, at once."""
    unknown: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if (node.domain, node.op) not in TABLE:
            unknown.setdefault(f"{node.kind} (opset {node.version})", []).append(node)
    if not unknown:
        return
    told = "; ".join(
        f"{kind} at node {', '.join(repr(node.name or node.outputs[0]) for node in nodes[:3])}"
        f"{f' and {len(nodes) - 3} more' if len(nodes) > 3 else ''}"
        for kind, nodes in unknown.items()
    )
    quantised = any("Quant" in kind or "Integer" in kind for kind in unknown)
    raise ModelProblem(
        f"{source}: operators that are not known: {told}. "
        + ("Export the model before it is quantised" if quantised else "Export the model without them")
        + ", or explain the PyTorch model itself: package.module:factory with --weights."
    )
