"""A session: while it is open the model must not change, and what depends on its weights alone is kept between calls."""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch import Tensor, nn

from .._core.session_cache import SessionCache
from ..errors import ModelChanged

ADVICE = "Leave the session before you change the model, and open another one after that."


class OpenSession:
    """What is kept of a model, and how its weights were when that began."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._owned = _tensors_of(model)
        self._places = {name: _place_of(tensor) for name, tensor in self._owned.items()}
        self._versions = [_version(tensor) for tensor in self._owned.values()]
        self._checksums = {name: _checksum(tensor) for name, tensor in self._owned.items()}
        self.cache = SessionCache(list(self._owned.values()))
        self.depth = 0  # how many blocks use it

    def check_versions(self, call: str) -> None:
        """Raise if a weight was written to by a call that torch counts."""
        versions = [_version(tensor) for tensor in self._owned.values()]
        if versions != self._versions:
            names = [name for name, old, new in zip(self._owned, self._versions, versions, strict=True) if old != new]
            raise ModelChanged(f"{call}(...): {_told(names)} changed inside a session. {ADVICE}")

    def check_contents(self) -> None:
        """Raise if a weight is another one than at the beginning, or has other values.

        Raises:
            ModelChanged: Scores of the session may be those of the old weights.
        """
        now = _tensors_of(self._model)
        names = sorted(now.keys() ^ self._owned.keys())
        for name in now.keys() & self._owned.keys():
            tensor = now[name]
            same = _place_of(tensor) == self._places[name] and _checksum(tensor) == self._checksums[name]
            names += [] if same else [name]
        if names:
            raise ModelChanged(
                f"session(): {_told(names)} changed inside the session. Scores that were computed in it may belong to the "
                f"weights before the change: discard them. {ADVICE}"
            )


def _told(names: list[str]) -> str:
    return f"{names[0]!r}{f' and {len(names) - 1} more tensors' * (len(names) > 1)} of the model"


def _tensors_of(model: Any) -> dict[str, Tensor]:
    """Parameters and buffers by name; a function has none."""
    if not isinstance(model, nn.Module):
        return {}
    found = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor for name, tensor in found if not nn.parameter.is_lazy(tensor)}


def _place_of(tensor: Tensor) -> Any:
    """Where and what it is."""
    strided = tensor.layout is torch.strided
    return tensor.data_ptr() if strided else id(tensor), tensor.shape, tensor.dtype, tensor.device


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _checksum(tensor: Tensor) -> int:
    """Of the values, bit by bit; of a sparse tensor, its version."""
    if tensor.layout is not torch.strided or tensor.is_meta:
        return _version(tensor)
    plain = tensor.detach().as_subclass(Tensor).cpu().resolve_conj().resolve_neg().contiguous()
    return zlib.crc32(plain.view(-1).view(torch.uint8).numpy().data) if plain.numel() else 0
