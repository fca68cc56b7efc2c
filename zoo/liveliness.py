"""Whether a model with random weights says anything of its input, and weights with which it does."""

from __future__ import annotations

import torch
from specimen import Reader, Specimen
from torch import Tensor, nn

HARDLY = 1e-3  # of the output: what moves it less is lost in the rounding of what follows
ROUNDING = 1e-6  # of the output: what moves it less says nothing
SMALL = 0.5
GAINS = (1.0, 2.0**0.5, 2.0)  # ReLU halves what comes in


class Lifeless(ValueError):
    """The output is not finite, or the same whatever comes in."""


def outputs(specimen: Specimen) -> Tensor:
    """The outputs of a model, whose weights are drawn anew if they are random and the input hardly moves the outputs."""
    plain, moves = _moved(specimen)
    found: dict[float, float] = {}
    while not specimen.trained and moves < HARDLY and len(found) < len(GAINS):
        gain = GAINS[len(found)]
        enliven(specimen, gain)
        plain, moves = _moved(specimen)
        found[gain] = moves
    if found and moves < HARDLY:
        enliven(specimen, max(GAINS, key=found.__getitem__))
        plain, moves = _moved(specimen)
    if moves < ROUNDING:
        raise Lifeless("the output is not finite, or does not depend on the input")
    return plain


def enliven(specimen: Specimen, gain: float) -> None:
    """Weights that keep the size of what they meet, times ``gain``: many begin so small that an input is lost on the way."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in specimen.model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(drawn * gain * parameter[0].numel() ** -0.5)
            elif parameter.ndim == 1 and "bias" not in name and parameter.abs().mean() < SMALL:  # scales
                parameter.copy_(1 + 0.1 * drawn)

    _settle_norms(specimen)


def _settle_norms(specimen: Specimen) -> None:
    """Batch norms take their means and variances from the rows, as training would give them."""
    every = (one for one in specimen.model.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm))
    norms = [norm for norm in every if norm.track_running_stats]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    try:
        if norms:
            with torch.no_grad():
                Reader(specimen)(*specimen.inputs.values(), **specimen.constants)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            norm.eval()
            norm.running_var.clamp_(min=float(norm.running_var.mean()))  # two rows are often equal by chance


def elsewhere(x: Tensor) -> Tensor:
    """Other values of an input: numbers near these, in a direction that no normalisation takes out; the codes of other rows."""
    if not x.is_floating_point():
        return x.flip(0)
    return x + 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(x)


def _moved(specimen: Specimen) -> tuple[Tensor, float]:
    """The outputs, and by how much another input moves them, of their size; 0 if one of them is not finite."""
    reader, inputs = Reader(specimen).eval(), tuple(specimen.inputs.values())
    torch.manual_seed(0)  # an explanation draws what the next call would draw
    with torch.no_grad():
        plain, moved = reader(*inputs, **specimen.constants), reader(*map(elsewhere, inputs), **specimen.constants)
    if plain.shape != moved.shape or not torch.isfinite(plain).all() or not torch.isfinite(moved).all():
        return plain, 0.0
    return plain, float((plain - moved).abs().max() / plain.abs().max().clamp_min(1e-30))
