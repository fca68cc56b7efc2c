"""The tensors that the model sees while it is explained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from .codes import Coded
from .registry import UnsupportedOperation
from .scores import Scores

View = Callable[[Tensor], Tensor]


class Memory:
    """What a value and its views share, so that a write to one of them is seen by all."""

    def __init__(self, root: Scores) -> None:
        self.root = root
        self.version = 0
        self._writes: list[tuple[View, Scores]] = []

    def read(self) -> Scores:
        """The root with all writes to its views carried out."""
        for view, new in self._writes:
            shape = self.root.shape
            places = torch.arange(shape.numel(), device=self.root.delta.device).view(shape)
            index = view(places).flatten()

            def put(parts: Sequence[Tensor], index: Tensor = index, shape: torch.Size = shape) -> Tensor:
                return parts[0].flatten().index_copy(0, index, parts[1].flatten().to(parts[0].dtype)).view(shape)

            self.root = self.root.join(self.root.run, put, [self.root, new])
        self._writes.clear()
        return self.root

    def write(self, view: View | None, new: Scores) -> None:
        """Replace the root (no view) or a part of it."""
        self.version += 1
        if view is None:
            self.root = new
            self._writes.clear()
        else:
            self._writes.append((view, new))


class Scored(Tensor):
    """Stands for one value in the model's own forward pass. It has a shape but no numbers of its own."""

    _state: Scores
    memory: Memory
    view_of_root: View | None = None
    version = 0

    @staticmethod
    def __new__(cls, state: Scores, dtype: torch.dtype) -> Scored:
        """An empty tensor with the outside of the value."""
        like = state.template
        return torch.Tensor._make_wrapper_subclass(cls, like.shape, strides=like.stride(), dtype=dtype, device=like.device)

    def __init__(self, state: Scores, dtype: torch.dtype) -> None:
        self._state = state
        self.memory = Memory(state)

    @property
    def state(self) -> Scores:
        """The scored value, as it is now."""
        if self.version != self.memory.version:
            root = self.memory.read()
            self._state = root if self.view_of_root is None else root.reshape(self.view_of_root)
            self.version = self.memory.version
        return self._state

    def write(self, new: Scores) -> None:
        """An operation in place."""
        _ = self.state  # what was written through other views before comes first
        self.memory.write(self.view_of_root, new)
        self._state, self.version = new, self.memory.version

    def share(self, base: Scored, view: View) -> None:
        """Make this value a view of base."""
        outer = base.view_of_root
        self.memory = base.memory
        self.version = base.version
        self.view_of_root = view if outer is None else lambda v: view(outer(v))

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Reached only where the calls of the model cannot be seen: compiled code, scripts, other threads."""
        raise UnsupportedOperation(
            f"{func} was called on a value under explanation from where its calls cannot be followed: scripted or "
            "compiled code, a C++ extension, or another thread. Explain the original eager module instead."
        )


class Frozen(Tensor):
    """A softmax: a constant for whatever follows, that remembers its logits in case it is the output."""

    logits: Scores
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def of(value: Tensor, logits: Scores) -> Frozen:
        """The value as a constant with its logits."""
        frozen = value.detach().as_subclass(Frozen)
        frozen.logits = logits
        return frozen


_PLAIN = frozenset((int, float, bool, str, type(None), slice, type(...), torch.dtype, torch.device, torch.Size))


def is_plain(value: Any) -> bool:
    """A number, a word or the like, or a tuple of these: nothing that holds a tensor or can change."""
    return type(value) in _PLAIN or (type(value) is tuple and all(type(part) in _PLAIN for part in value))


def plain(values: Any) -> Any:
    """The same arguments with the plain numbers of scored values, copied so that nothing is overwritten."""
    if type(values) is tuple and all(map(is_plain, values)):
        return values

    def convert(value: Tensor) -> Tensor:
        if isinstance(value, Scored):
            return value.state.value.to(value.dtype, copy=True)
        return value.as_subclass(Tensor)

    return tree_map_only((Scored, Frozen, Coded), convert, values)
