"""Whether a model with random weights says anything of its input, and weights with which it does."""

from __future__ import annotations

import torch
from specimen import Reader, Specimen
from torch import Tensor, nn

HARDLY = 1e-3  # of the output: what moves it less is lost in the rounding of what follows
GAINS = (1.0, 2.0**0.5, 2.0)  # ReLU halves what comes in


class Lifeless(ValueError):
    """The output is not finite, or the same whatever comes in."""


def outputs(specimen: Specimen) -> Tensor:
    """The outputs of a model, whose weights are drawn anew if the input hardly moves them."""
    plain, moved = _both(specimen)
    for gain in GAINS:
        if _moves(plain, moved) >= HARDLY:
            break
        enliven(specimen.model, gain)
        plain, moved = _both(specimen)
    if not _moves(plain, moved) > 0:
        raise Lifeless("the output is not finite, or does not depend on the input")
    return plain


def enliven(model: nn.Module, gain: float) -> None:
    """Weights that keep the size of what they meet, times ``gain``: many begin so small, or at 0, that an input is lost on the way."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                drawn = torch.randn(parameter.shape, generator=generator) * gain * parameter[0].numel() ** -0.5
                parameter.copy_(drawn.to(parameter))


def elsewhere(x: Tensor) -> Tensor:
    """Other values of an input, near these."""
    return x * 0.9 + 0.1 if x.is_floating_point() else x.flip(0)


def _both(specimen: Specimen) -> tuple[Tensor, Tensor]:
    reader, inputs = Reader(specimen).eval(), tuple(specimen.inputs.values())
    torch.manual_seed(0)  # an explanation draws what the next call would draw
    with torch.no_grad():
        return reader(*inputs, **specimen.constants), reader(*map(elsewhere, inputs), **specimen.constants)


def _moves(plain: Tensor, moved: Tensor) -> float:
    """By how much an output is moved, of its size; 0 if one of them is not finite."""
    if plain.shape != moved.shape or not torch.isfinite(plain).all() or not torch.isfinite(moved).all():
        return 0.0
    return float((plain - moved).abs().max() / plain.abs().max().clamp_min(1e-30))
