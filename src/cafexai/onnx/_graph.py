"""The graph of a file as plain records, with the questions that are asked of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

OURS = "cafexai"  # the domain of operators that were put back from their parts


@dataclass
class Node:
    """One operator: names of what it takes ("" where nothing is given) and of what it gives."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    scope: str = ""  # the path of the module that it was exported from
    version: int = 0  # of the operators of its domain
    domain: str = ""
    origin: str = ""  # the call that it was exported from, where the file says so

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.attributes.get(name, default)

    @property
    def kind(self) -> str:
        """The operator as people name it."""
        return f"{self.domain}.{self.op}" if self.domain else self.op


@dataclass(frozen=True)
class Declared:
    """What is known of a value without running anything: None where it is not."""

    kind: Any = None  # a torch dtype
    shape: tuple[int | None, ...] | None = None


@dataclass
class Graph:
    """Operators in their order, constants by name, and what the file says of values."""

    inputs: list[str]
    outputs: list[str]
    nodes: list[Node]
    constants: dict[str, Tensor]
    declared: dict[str, Declared] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    put_back: dict[str, int] = field(default_factory=dict)  # what exporters had taken apart -> how often
    _makers: dict[str, Node] | None = None
    _users: dict[str, list[Node]] | None = None

    def maker(self, value: str, *ops: str) -> Node | None:
        """The node that gives a value, if it is one of these operators."""
        if self._makers is None:
            self._makers = {name: node for node in self.nodes for name in node.outputs if name}
        node = self._makers.get(value)
        return node if node is not None and (not ops or (node.op in ops and not node.domain)) else None

    def users(self, value: str) -> list[Node]:
        """The nodes that take a value; a node that takes it twice is there twice."""
        if self._users is None:
            self._users = {}
            for node in self.nodes:
                for name in node.inputs:
                    self._users.setdefault(name, []).append(node)
        return self._users.get(value, [])

    def only_user(self, value: str, *ops: str) -> Node | None:
        """The one node that takes a value, where there is one and the value is no output."""
        users = self.users(value)
        if len(users) != 1 or value in self.outputs or users[0].domain or users[0].op not in ops:
            return None
        return users[0]

    def number(self, value: str) -> float | None:
        """A constant that is a single number."""
        constant = self.constants.get(value)
        return float(constant) if constant is not None and constant.numel() == 1 else None

    def rank(self, value: str) -> int | None:
        """How many dimensions a value has."""
        if value in self.constants:
            return self.constants[value].ndim
        shape = self.declared.get(value, Declared()).shape
        return None if shape is None else len(shape)

    def replace(self, old: Iterable[Node], new: Node, what: str = "") -> None:
        """One node in place of several, where the last of them stood."""
        gone = {id(node) for node in old}
        place = max(index for index, node in enumerate(self.nodes) if id(node) in gone)
        self.nodes[place] = new
        self.nodes = [node for node in self.nodes if id(node) not in gone]
        if what:
            self.put_back[what] = self.put_back.get(what, 0) + 1
        self.mark_changed()

    def constant(self, name: str, value: Tensor) -> str:
        """A further constant, under this name or one like it."""
        while name in self.constants or name in self.declared:
            name += "_"
        self.constants[name] = value
        return name

    def mark_changed(self) -> None:
        """Nodes are not what they were."""
        self._makers = self._users = None

    def prune(self) -> None:
        """Leave out what no output needs."""
        needed, kept = set(self.outputs), []
        for node in reversed(self.nodes):
            if needed.intersection(filter(None, node.outputs)):
                node.outputs = [name if name in needed else "" for name in node.outputs]
                kept.append(node)
                needed.update(node.inputs)
        self.nodes = kept[::-1]
        self.constants = {name: value for name, value in self.constants.items() if name in needed}
        self.mark_changed()
