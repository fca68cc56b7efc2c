"""From contributions that are kept apart by feature to the pieces of an explanation: nothing flows back."""

from __future__ import annotations

import torch
from torch import Tensor

from .assemble import Piece, _half
from .backward import Shares, SumBroken
from .feature import Features
from .law import tolerance, widest
from .pairs import PairedScores, conflict_pairs
from .request import Passed

ALL_LAYERS = "(all layers)"


def pieces(passed: Passed, every_class: bool) -> list[Piece]:
    """The explanation of the target, or of each class."""
    return [piece(one) for one in (passed.aimed_at_each() if every_class else [passed])]


def piece(passed: Passed) -> Piece:
    """Positive and negative scores of every feature, and of all biases together."""
    chosen = passed.chosen
    net, total = chosen.shares, chosen.total
    bias = torch.stack([_half(total[-1] + net[-1]), _half(total[-1] - net[-1]), net[-1]], 1)
    return Piece(
        positive=_at_inputs(_half(total + net), passed),
        negative=_at_inputs(_half(total - net), passed),
        combined=_at_inputs(net, passed),
        inputs=passed.inputs,
        baselines=passed.baselines,
        bias_by_layer={ALL_LAYERS: bias},
        output=chosen.value,
        baseline_output=torch.zeros_like(chosen.value) if chosen.reference is None else chosen.reference,
        completeness_error=_lack(passed),
        target=passed.target,
        output_error=passed.output_error,
        frozen=[f"{operation} in {path or 'the model'} ({n}x)" for (operation, path), n in passed.run.frozen.items()],
        notes=passed.notes,
        pairs=passed.run.features.spread_pairs(conflict_pairs(passed)) if isinstance(chosen, PairedScores) else None,
    )


def shares(passed: Passed) -> Shares:
    """The combined scores."""
    net = passed.chosen.shares
    return Shares(_at_inputs(net, passed), {ALL_LAYERS: net[-1]}, _lack(passed))


def _lack(passed: Passed) -> Tensor:
    """Sum of all contributions minus the change of the output, which is carried by itself. (rows,)"""
    chosen = passed.chosen
    exact = widest(chosen.delta.device)
    lack = chosen.shares.sum(0, dtype=exact) - chosen.delta.detach().to(exact)
    size = chosen.shares.abs().sum(0, dtype=exact) + chosen.value.to(exact).abs()
    worst = (lack.abs() / size.clamp_min(torch.finfo(exact).tiny)).max().item()
    limit = tolerance(chosen.delta.dtype)
    if not worst <= limit:
        raise SumBroken(
            f"explain(...): the contributions of features and biases miss the output by {worst:.3g} of all influence (allowed "
            f"{limit:.3g}). Rows may influence each other, or a rule is wrong."
        )
    return lack


def _at_inputs(values: Tensor, passed: Passed) -> list[Tensor]:
    """(features + 1, rows) in the shape of the inputs; the scores of a group stand at its first element."""
    features: Features = passed.run.features
    index = features.index.to(values.device)
    first = torch.full((features.total,), len(index), device=values.device)
    first = first.scatter_reduce(0, index, torch.arange(len(index), device=values.device), "amin")
    flat = values.new_zeros(values.shape[1], len(index))
    flat[:, first] = features.spread(values)
    sizes = [x[0].numel() for x in passed.inputs]
    return [part.reshape(x.shape) for part, x in zip(flat.split(sizes, 1), passed.inputs, strict=True)]
