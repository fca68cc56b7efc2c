"""Token ids for methods that need gradients: the vectors of the embedding layer take the place of the ids."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from .._core.tolerance import gap, tolerance
from .._inputs.baselines import expand_baseline

CHANGED = 0.2  # of the tokens that ``other_tokens`` replaces


class Embedded(nn.Module):
    """A model of the vectors of its tokens, (rows, tokens, width), instead of their ids."""

    def __init__(self, model: nn.Module, layer: str) -> None:
        super().__init__()
        self.model, self.layer = model, layer

    def forward(self, vectors: Any) -> Any:
        """The output of the model where its embedding layer gives these vectors."""
        handle = self.model.get_submodule(self.layer).register_forward_hook(lambda *_: vectors)
        try:
            return self.model(torch.zeros(tuple(vectors.shape[:2]), dtype=torch.long, device=vectors.device))
        finally:
            handle.remove()

    def embed(self, ids: Tensor) -> Tensor:
        """The vectors of ids."""
        with torch.no_grad():
            found: Tensor = self.model.get_submodule(self.layer)(ids)
        return found.detach()


def embedded_model(name: str, model: Any, ids: Tensor) -> Embedded | None:
    """The model of vectors, which gives what the model gives; None if these are no token ids of an embedding layer."""
    if not isinstance(model, nn.Module) or ids.ndim != 2 or ids.dtype not in (torch.int32, torch.int64):
        return None
    layers: list[str] = []
    handles = [
        part.register_forward_pre_hook(lambda _, args, at=at: layers.append(at) if args and _same(args[0], ids) else None)
        for at, part in model.named_modules()
        if isinstance(part, nn.Embedding)
    ]
    output = None
    try:
        with contextlib.suppress(Exception), torch.no_grad():  # numbers for a layer that takes no integers
            output = model(ids) if handles else None
    finally:
        for handle in handles:
            handle.remove()
    if len(layers) != 1 or not isinstance(output, Tensor):
        return None
    found = Embedded(model, layers[0])
    with torch.no_grad():
        again = found(found.embed(ids))
    if gap(again, output) > tolerance(output.dtype):
        raise ValueError(
            f"{name}(model, ids): the model reads token ids beside its layer {layers[0]!r}, such as for a mask of padding, so "
            "their vectors do not give its output. Give rows of one length without padding, or a model of vectors."
        )
    return found


def _same(given: Any, ids: Tensor) -> bool:
    return isinstance(given, Tensor) and given.shape == ids.shape and bool((given == ids).all())


def other_tokens(vectors: Tensor, generator: torch.Generator) -> Tensor:
    """Rows with a fifth of their tokens replaced by tokens that are drawn from all rows."""
    places = vectors.shape[:2]
    drawn = torch.randint(places.numel(), places, generator=generator).to(vectors.device)
    changed = (torch.rand(places, generator=generator) < CHANGED).to(vectors.device)
    return torch.where(changed[..., None], vectors.flatten(0, 1)[drawn], vectors)


def embedded_baseline(name: str, model: Embedded, ids: Tensor, baselines: Any) -> Tensor | None:
    """The vectors of the ids that rows are compared with; None for zero vectors."""
    if baselines is None:
        return None
    given = torch.as_tensor(baselines, device=ids.device)
    if given.is_floating_point() or given.ndim > 2:
        raise ValueError(f"{name}(model, ids, baselines=...): give token ids: one, or one per token. None is a zero vector.")
    return model.embed(expand_baseline(given, ids, name))
