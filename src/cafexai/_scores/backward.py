"""What a forward pass leaves, and the way back: the explained output is distributed over features and, by the book, biases."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import SumBroken, warn
from .numbers import all_finite, tolerance, widest
from .run import Leaf, Run

if TYPE_CHECKING:
    from .value import Scores


@dataclass(frozen=True)
class Passed:
    """What the forward pass leaves for the backward passes."""

    run: Run  # with the leaves, in which the backward passes end
    inputs: list[Tensor]  # what the scores are shaped like
    references: list[Tensor | None]
    found: Tensor  # the output as the engine has it
    scores: Scores  # the output before a final sigmoid or softmax, as a scored value
    chosen: Scores  # the explained output as a scored value, one number per row
    target: Tensor  # (rows, dimensions of the output): which one that is
    expected: Tensor  # the output of the model as it is
    final: str | None  # the sigmoid or softmax at the end that is left out, by its kind
    notes: tuple[str, ...]

    @property
    def baselines(self) -> list[Tensor]:
        """The references, zeros included; codes without one are held against a zero embedding, which has no code."""
        return [_or_zeros(reference, x) for reference, x in zip(self.references, self.inputs, strict=True)]

    @property
    def output_error(self) -> float:
        """The largest |engine - model(x)|."""
        return float((self.found - self.expected).abs().max())


def _or_zeros(reference: Tensor | None, like: Tensor) -> Tensor:
    if reference is None:
        return torch.zeros_like(like) if like.is_floating_point() else torch.full_like(like, -1)
    return reference.detach().to(like.dtype)


@dataclass(frozen=True)
class Outcome:
    """The scores of one number per row: of the features, shaped like the inputs, and of the biases, by layer."""

    net: list[Tensor]
    biases: Mapping[str, Tensor]  # layer -> (rows, 3): positive, negative, net; (rows,) if only the net was asked for
    lack: Tensor  # (rows,): sum of all scores minus the whole
    positive: list[Tensor] = dataclasses.field(default_factory=list)  # both are empty if only the net was asked for
    negative: list[Tensor] = dataclasses.field(default_factory=list)
    pairs: Tensor | None = None  # (rows, features + 1, features + 1): who cancelled whom


def both_signs(passed: Passed, keep: bool = False) -> Outcome:
    """Two backward passes: one for the combined scores, one for the totals."""
    _check_range(passed)
    net = distribute(passed, 0, keep=True)
    total = distribute(passed, 1, keep)
    _warn_depth(passed)
    return Outcome(
        net.net,
        {
            layer or "(model)": torch.stack([halved(total.biases[layer] + n), halved(total.biases[layer] - n), n], 1)
            for layer, n in net.biases.items()
        },
        net.lack,
        positive=[halved(t + n) for t, n in zip(total.net, net.net, strict=True)],
        negative=[halved(t - n) for t, n in zip(total.net, net.net, strict=True)],
    )


def only_net(passed: Passed) -> Outcome:
    """One backward pass, for the combined scores."""
    _check_range(passed)
    return distribute(passed, 0, keep=False)


def _check_range(passed: Passed) -> None:
    """Refuse at once what no backward pass can add up: totals that have left the range of their dtype."""
    if len(passed.chosen.parts) > 1 and not all_finite(passed.chosen.parts[1]):
        raise SumBroken("explain(...): the influence inside the model is larger than this precision can hold.")


def distribute(passed: Passed, part: int, keep: bool) -> Outcome:
    """One of the parts of the explained output (0: delta, 1: total) among features and biases; checked to add up to it.

    The check can fail: features come from the gradient at the inputs, biases from the gradient at each bias.
    """
    leaves, whole = passed.run.leaves, passed.chosen.parts[part]
    terms = _terms(passed, part, keep)
    biases, entries = passed.run.biases.take()
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
    return Outcome(features, biases, lack)


def _terms(passed: Passed, part: int, keep: bool) -> list[tuple[int, Tensor]]:
    """What each tensor of each leaf brought to the features of which input."""
    of_part = [(leaf, tensor) for leaf in passed.run.leaves for tensor in leaf.scores.parts]
    if passed.run.steps is not None:
        gradients = _stepwise(passed, part, keep)
    else:  # from the sum: with weights of its own, torch first loads its symbolic shapes, which takes a third of a second
        whole = passed.chosen.parts[part].sum()
        gradients = torch.autograd.grad(whole, [tensor for _, tensor in of_part], retain_graph=keep, allow_unused=True)
    terms = [
        (leaf.source, _at_features(tensor.detach() * gradient, leaf, passed.inputs[leaf.source].shape))
        for (leaf, tensor), gradient in zip(of_part, gradients, strict=True)
        if gradient is not None
    ]
    if not terms:
        raise ValueError("explain(...): the output does not depend on the input. It comes from constants of the model alone.")
    return terms


def _stepwise(passed: Passed, part: int, keep: bool) -> tuple[Tensor | None, ...]:
    """Back along the steps of a chain, which are given up on the last way."""
    assert passed.run.steps is not None
    one = torch.zeros_like(passed.scores.delta)
    one.scatter_(1, passed.target.to(one.device), 1)
    gradients: tuple[Tensor | None, ...] = (one, None) if part == 0 else (None, one)
    left = passed.run.steps.copy() if keep else passed.run.steps
    while left:
        step, tensors, rest = left.pop()
        gradients = step.pull(gradients, tensors, rest)
    return gradients


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
    if len(passed.chosen.parts) > 1:  # no score can be larger than the total, so no rounding either
        size = torch.minimum(size, 16 * (passed.chosen.parts[1].detach() + least))
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


def halved(doubled: Tensor) -> Tensor:
    """(total + net) / 2 or (total - net) / 2: rounding may leave a score a hair below 0."""
    return (doubled / 2).clamp_min(0)


def _per_row(scores: Tensor, dtype: torch.dtype) -> Tensor:
    return (scores if scores.ndim == 2 else scores.reshape(len(scores), -1)).sum(1, dtype=dtype)


def _warn_depth(passed: Passed) -> None:
    """Say so when so much cancels that positive - negative has few correct digits."""
    change, total = (part.detach().abs().mean().item() for part in passed.chosen.parts)
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
