"""Plain tensors of the model that receive scored values: other tensors stand in for them until the end of the pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from .._core.run import Run
from .._core.tensors import Scored, elements_at
from .._core.value import Scores
from ..errors import UnsupportedOperation


class StandIns:
    """What was exchanged, so that it can be given back."""

    def __init__(self, owned: Callable[[], dict[int, str]]) -> None:
        self.owned = owned  # makes the ids of the model's parameters and buffers, with their names
        self._undo: list[Callable[[], None]] = []

    def exchange(self, target: Any, new: Tensor) -> None:
        """Let a tensor be another one."""
        self._refuse_owned(target)
        if target._is_view():
            _refuse_view()
        torch.utils.swap_tensors(target, new)
        self._undo.append(lambda: torch.utils.swap_tensors(target, new))

    def exchange_view(self, run: Run, target: Any, new: Scores, dtype: torch.dtype) -> None:
        """Let the tensor that this is a view of be a scored value, with the new one in the places of the view."""
        base, place = target._base, (target.shape, target.stride(), target.storage_offset())
        self._refuse_owned(base)
        found = elements_at(base, *place)
        index = _refuse_view() if found is None else found

        def view(whole: Tensor) -> Tensor:
            return whole.flatten()[index]

        def put(whole: Tensor, part: Tensor) -> Tensor:
            return whole.flatten().index_copy(0, index.flatten(), part.flatten().to(whole.dtype)).view(whole.shape)

        before = run.wide(base.detach().clone()).nan_to_num(0.0, torch.inf, -torch.inf)  # it may have been empty
        whole = Scored(new.join(run, put, [before, new]), dtype)
        part = Scored(new, dtype)
        part.share(whole, view)
        torch.utils.swap_tensors(target, part)
        del part  # the old view, which holds the tensor that it is a view of
        self._undo.append(lambda: torch.utils.swap_tensors(target, base.as_strided(*place)))
        try:
            torch.utils.swap_tensors(base, whole)
        except RuntimeError:  # there are further views of it
            self._undo.pop()()
            _refuse_view()
        self._undo.append(lambda: torch.utils.swap_tensors(base, whole))

    def give_back(self) -> None:
        """Plain tensors are what they were before."""
        while self._undo:
            self._undo.pop()()

    def _refuse_owned(self, target: Any) -> None:
        if (name := self.owned().get(id(target))) is not None:
            raise ValueError(
                f"explain(...): the model writes a value that depends on its input into its own {name!r}. "
                "Explaining leaves a model as it is; let forward work on a copy (.clone())."
            )


def _refuse_view() -> NoReturn:
    raise UnsupportedOperation(
        "an operation in place writes a scored value into a view of a plain tensor; write into the tensor "
        "itself (y[:, 0] = ...), or build it with torch.cat or torch.stack"
    )
