"""Results that depend on the weights and the reference alone, kept between the calls of a session (``_engine/session.py``).

1. Absolute weights, of parameters and buffers only: what a model computes in its forward is new memory in each call.
2. What a layer gives at its reference. It is reused if the reference has the very same values as before, which are compared,
   so that no order of calls and no kind of baseline is assumed. A layer at which they differ once is not asked again.

Keys hold the memory, the version, the shape and the type of the weights. Nothing here is a shortcut of a check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

SMALLEST = 2**24  # elements that references may have at least, whatever the size of the model


def tensor_key(tensor: Tensor | None) -> Any:
    """Equal keys: the same memory, read in the same way, in the same version."""
    if tensor is None:
        return None
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor._version


class _Known(NamedTuple):
    """What a layer gave."""

    constants: tuple[Tensor | None, ...]  # held, so that no other tensor can take their place in memory
    reference: Tensor
    result: Tensor
    versions: tuple[int, int]


class SessionCache:
    """The kept results of one model.

    Args:
        owned: Its parameters and buffers.
    """

    def __init__(self, owned: Sequence[Tensor]) -> None:
        self._memory = {tensor.untyped_storage().data_ptr() for tensor in owned if tensor.layout is torch.strided}
        self._limit = max(SMALLEST, sum(tensor.numel() for tensor in owned))
        self._absolute: dict[Any, tuple[Tensor, Tensor]] = {}
        self._known: dict[Any, _Known | None] = {}
        self._size = 0

    def owns(self, tensor: Tensor) -> bool:
        """The tensor is, or is a part of, a parameter or buffer."""
        return (
            tensor.layout is torch.strided and not tensor.is_inference() and tensor.untyped_storage().data_ptr() in self._memory
        )

    def absolute(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """The absolute weight, which the model must own."""
        key = tensor_key(weight), dtype
        known = self._absolute.get(key)
        if known is None:
            known = self._absolute[key] = (weight, weight.detach().to(dtype).abs())
        return known[1]

    def at_reference(
        self, layer: Any, fn: Callable[[Tensor], Tensor], reference: Tensor, constants: tuple[Tensor | None, ...]
    ) -> Tensor:
        """``fn(reference)``, where ``fn`` is known by ``layer``, which can be compared, and by the ``constants``."""
        if reference.is_inference() or not all(constant is None or self.owns(constant) for constant in constants):
            return fn(reference)
        key = layer, tuple(map(tensor_key, constants)), reference.shape, reference.stride(), reference.dtype
        known = self._known.get(key)
        if known is None:
            return fn(reference) if key in self._known else self._keep(key, fn(reference), reference, constants)
        if known.versions != (known.reference._version, known.result._version) or not torch.equal(known.reference, reference):
            self._known[key] = None
            return fn(reference)
        return known.result

    def _keep(self, key: Any, result: Tensor, reference: Tensor, constants: tuple[Tensor | None, ...]) -> Tensor:
        self._size += reference.numel() + result.numel()
        if self._size > self._limit:  # many lengths of sequences, perhaps
            self._known.clear()
            self._size = 0
        elif not result.requires_grad and not result.is_inference():
            self._known[key] = _Known(constants, reference, result, (reference._version, result._version))
        return result
