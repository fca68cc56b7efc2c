"""The backward passes: the explained output is distributed over the features and, in the ledger, over the biases."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .law import LawBroken, all_finite, tolerance, warn, widest
from .request import Passed
from .scores import Leaf


class SumBroken(LawBroken):
    """The shares do not add up: a path was lost, or float32 is too small for the influence inside the model."""


@dataclass(frozen=True)
class Shares:
    """Who brought how much of one number per row."""

    features: list[Tensor]  # shaped like the explained inputs
    biases: dict[str, Tensor]  # layer -> (rows,)
    lack: Tensor  # (rows,): sum of all shares minus the whole


def check_range(passed: Passed) -> None:
    """Refuse at once what no backward pass can add up: totals that have left the range of their dtype."""
    if (influence := passed.chosen.influence) is not None and not all_finite(influence):
        raise SumBroken("explain(...): the influence inside the model is larger than this precision can hold.")


def distribute(passed: Passed, kind: str, keep: bool) -> Shares:
    """The shares in the "delta" or "total" of the explained output; checked to add up to it.

    The check can fail: features come from the gradient at the inputs, biases from the gradient at each bias.
    """
    leaves, whole = passed.run.leaves, getattr(passed.chosen, kind)
    terms = _terms(passed, kind, keep)
    biases, entries = passed.run.ledger.take()
    found: dict[int, Tensor] = {}
    for source, term in terms:
        found[source] = found[source] + term if source in found else term
    features = [
        found[source] if source in found else torch.zeros(x.shape, dtype=whole.dtype, device=whole.device)
        for source, x in enumerate(passed.inputs)
    ]
    exact = widest(whole.device)
    goal = whole.detach().to(exact)
    lack = _per_row(features[0], exact) - goal
    for share in features[1:]:
        lack = lack + _per_row(share, exact)
    if biases:
        lack = lack + torch.stack(list(biases.values())).to(whole.device).sum(0, dtype=exact)
    coarsest = max((leaf.scores.delta.dtype for leaf in leaves), key=lambda dtype: torch.finfo(dtype).eps)
    limit = tolerance(coarsest) * passed.chosen.slack
    if not (lack / goal).abs().max().item() <= limit:  # mostly it is that small, and nothing else need be asked
        _check_sum(passed, goal, lack, terms, entries, limit)
    return Shares(features, biases, lack)


def _terms(passed: Passed, kind: str, keep: bool) -> list[tuple[int, Tensor]]:
    """What each tensor of each leaf brought to the features of which input."""
    of_part = [(leaf, tensor) for leaf in passed.run.leaves for tensor in leaf.scores.parts]
    if passed.run.back is not None:
        one = torch.zeros_like(passed.scores.delta)
        one.scatter_(1, passed.target.to(one.device), 1)
        gradients = passed.run.back(*((one, None) if kind == "delta" else (None, one)), keep)
    else:  # from the sum: with weights of its own, torch first loads its symbolic shapes, which takes a third of a second
        whole = getattr(passed.chosen, kind).sum()
        gradients = torch.autograd.grad(whole, [tensor for _, tensor in of_part], retain_graph=keep, allow_unused=True)
    terms = [
        (leaf.source, _at_features(tensor.detach() * gradient, leaf, passed.inputs[leaf.source].shape))
        for (leaf, tensor), gradient in zip(of_part, gradients, strict=True)
        if gradient is not None
    ]
    if not terms:
        raise ValueError("explain(...): the output does not depend on the input. It comes from constants of the model alone.")
    return terms


def _check_sum(
    passed: Passed, goal: Tensor, lack: Tensor, terms: list[tuple[int, Tensor]], entries: list[Tensor], limit: float
) -> None:
    """What is missing must be rounding: small beside all that was added up, without its signs."""
    exact = goal.dtype
    least = size = goal.abs() + passed.chosen.value.abs()
    for _, term in terms:
        size = size + _per_row(term.abs(), exact)
    if entries:
        size = size + torch.stack(entries).to(size.device).abs().sum(0, dtype=exact)
    if (influence := passed.chosen.influence) is not None:  # no score can be larger, so no rounding either
        size = torch.minimum(size, 16 * (influence.detach() + least))
    worst = (lack.abs() / size.clamp_min(torch.finfo(exact).tiny)).max().item()
    if not worst <= limit:
        raise SumBroken(
            f"explain(...): the scores of features and biases miss the output by {worst:.3g} of all influence (allowed "
            f"{limit:.3g}): a path from the input was lost. Rows may influence each other, values may bypass the layer= that "
            "scores are asked for, or a rule is wrong."
        )


def _at_features(term: Tensor, leaf: Leaf, shape: torch.Size) -> Tensor:
    """The term in the shape of the input; all elements of an embedding belong to its code."""
    if leaf.places is None:
        return term
    term = term.flatten(leaf.places.ndim).sum(-1) if term.ndim > leaf.places.ndim else term
    own = leaf.places >= 0
    return term.new_zeros(shape.numel()).index_add_(0, leaf.places[own], term[own]).view(shape)


def _per_row(scores: Tensor, dtype: torch.dtype) -> Tensor:
    return (scores if scores.ndim == 2 else scores.reshape(len(scores), -1)).sum(1, dtype=dtype)


def warn_depth(passed: Passed) -> None:
    """Say so when so much cancels that positive - negative has few correct digits."""
    total = passed.chosen.total.detach().mean().item()
    change = passed.chosen.delta.detach().abs().mean().item()
    dtype = passed.chosen.delta.dtype
    rounding = torch.finfo(dtype).eps * total
    if rounding > 1e-3 * change > 0:
        warn(
            f"The total influence is {total / change:.3g} times the change of the output: in {dtype} positive and negative "
            f"are rounded to about {rounding:.2g}, against a change of the output of {change:.3g}. combined keeps its digits, "
            "positive - negative does not. The published scores grow with depth: compare them only within one model, lower "
            'c, start at a later layer, or use CAFE(model, netting="feature"), whose scores stay near the size of the output'
            + ("." if dtype == torch.float64 else "; float64 (model.double(), x.double()) keeps more digits.")
        )
