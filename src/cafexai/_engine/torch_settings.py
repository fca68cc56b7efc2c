"""What a model may switch in torch while it runs, and the engine switches back for its own calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


def usual_settings() -> bool:
    """Nothing is switched that the engine would have to switch back."""
    return (
        torch.is_grad_enabled()
        and not torch._C._is_any_autocast_enabled()
        and torch._C._autograd._top_saved_tensors_default_hooks(False) is None
    )


@contextlib.contextmanager
def engine_settings() -> Iterator[None]:
    """Gradients on, autocast and checkpointing off, whatever the model has switched meanwhile."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor))
        yield
