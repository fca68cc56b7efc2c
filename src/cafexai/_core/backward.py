"""The backward pass: distributes the explained output over features and, by the bias ledger, over biases."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .completeness import check_range, check_sum, per_row, proportion
from .run import Leaf, Run
from .tolerance import widest

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
    against: Tensor | None = None  # like target: the output that is subtracted
    probabilities: Tensor | None = None  # shaped like scores, where outputs are logits
    class_names: tuple[str, ...] | None = None  # of the outputs

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
    notes: tuple[str, ...] = ()
    cut: list[Tensor] = dataclasses.field(default_factory=list)  # which elements of the inputs reached what the run cut off


def both_signs(passed: Passed, keep: bool = False) -> Outcome:
    """Two backward passes: one for the combined scores, one for the totals."""
    check_range(passed)
    cut = find_cut_off(passed)
    net = distribute(passed, 0, keep=True)
    total = distribute(passed, 1, keep)
    return split(passed, net, total.net, total.biases, cut)


def split(passed: Passed, net: Outcome, totals: list[Tensor], of_biases: Mapping[str, Tensor], cut: list[Tensor]) -> Outcome:
    """The outcome with both signs, from the combined scores and the totals of features and biases."""
    return Outcome(
        net.net,
        {
            layer or "(model)": torch.stack([halve(of_biases[layer] + n), halve(of_biases[layer] - n), n], 1)
            for layer, n in net.biases.items()
        },
        net.lack,
        positive=[halve(t + n) for t, n in zip(totals, net.net, strict=True)],
        negative=[halve(t - n) for t, n in zip(totals, net.net, strict=True)],
        notes=proportion(passed, net.net),
        cut=cut,
    )


def find_cut_off(passed: Passed) -> list[Tensor]:
    """Which elements of the inputs have a part in values that were cut off: those that influence flows back to."""
    run = passed.run
    if not run.cuts:
        return []
    ends = [(leaf, part) for leaf in run.leaves for part in leaf.scores.parts]
    whole = torch.stack([value.parts[-1].sum() for value in run.cuts]).sum()
    gradients = torch.autograd.grad(whole, [part for _, part in ends], retain_graph=True, allow_unused=True)
    run.biases.take()  # what flowed back to biases is of no interest
    found = [torch.zeros(x.shape, dtype=torch.bool, device=x.device) for x in passed.inputs]
    for (leaf, part), gradient in zip(ends, gradients, strict=True):
        if gradient is not None:
            found[leaf.source] |= at_features((part.detach() * gradient).abs(), leaf, passed.inputs[leaf.source].shape) > 0
    return found


def only_net(passed: Passed) -> Outcome:
    """One backward pass, for the combined scores."""
    check_range(passed)
    return distribute(passed, 0, keep=False)


def distribute(passed: Passed, part: int, keep: bool) -> Outcome:
    """One of the parts of the explained output (0: delta, 1: total) among features and biases; checked to add up to it.

    The check can fail: features come from the gradient at the inputs, biases from the gradient at each bias.
    """
    whole = passed.chosen.parts[part]
    terms = _terms(passed, part, keep)
    biases = passed.run.biases.take()
    found: dict[int, Tensor] = {}
    for source, term in terms:
        found[source] = found[source] + term if source in found else term
    features = [
        found[source] if source in found else torch.zeros(x.shape, dtype=whole.dtype, device=whole.device)
        for source, x in enumerate(passed.inputs)
    ]
    exact = widest(whole.device)
    goal = whole.detach().to(exact)
    lack = per_row(features[0], exact) - goal
    for share in features[1:]:
        lack = lack + per_row(share, exact)
    if biases:
        lack = lack + torch.stack(list(biases.values())).to(whole.device).sum(0, dtype=exact)
    check_sum(passed, goal, lack, (*features, *biases.values()))
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
        (leaf.source, at_features(tensor.detach() * gradient, leaf, passed.inputs[leaf.source].shape))
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


def at_features(term: Tensor, leaf: Leaf, shape: torch.Size) -> Tensor:
    """The term in the shape of the input; all elements of an embedding belong to its code."""
    if leaf.places is None:
        return term
    term = term.flatten(leaf.places.ndim).sum(-1) if term.ndim > leaf.places.ndim else term
    own = leaf.places >= 0
    return term.new_zeros(shape.numel()).index_add_(0, leaf.places[own], term[own]).view(shape)


def halve(doubled: Tensor) -> Tensor:
    """(total + net) / 2 or (total - net) / 2: rounding may leave a score a hair below 0."""
    return (doubled / 2).clamp_min(0)
