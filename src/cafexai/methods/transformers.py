"""Rules for transformers that cost one backward pass: CP-LRP, AttnLRP and GIM.

Each replaces the gradient of the model by coefficients of its own. A score is the coefficient times the distance to the
baseline, by default the input itself. In all three the scale of a norm is a constant and its mean a linear map.
They differ elsewhere:

| | softmax | product of two values | activation function |
| --- | --- | --- | --- |
| CP-LRP (Ali et al. 2022) | a constant | halves | phi(a) / a |
| AttnLRP (Achtibat et al. 2024) | its gradient at the input | halves | phi(a) / a |
| GIM (Edin et al. 2025) | its gradient at logits / 2 | halves in attention, else its gradient | its gradient |

Halves of P V and of Q K' are the factors 1/4, 1/4 and 1/2 of queries, keys and values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._carriers.signed import Multiplied, SignedScores
from .._core.backward import Passed
from .._core.math_functions import ONE_TO_ONE, Function, derivative
from .._core.row_index import behind_product
from .._core.run import Settings
from .._engine.batches import carry_out
from .._engine.job import Job
from .._engine.model import Subject
from .._engine.request import Question, Request
from .._inputs.prepare import Inputs
from .case import Case, method
from .deeplift import RelevanceScores
from .propagation import propagate


@method(aimed=False)
def cp_lrp(case: Case) -> Tensor:
    """CP-LRP: attention weights and the scales of norms are constants; relevance passes activation functions as it is."""
    return _distribute(case, _settings("cp_lrp"))


@method(aimed=False)
def attn_lrp(case: Case) -> Tensor:
    """AttnLRP: like CP-LRP, and queries and keys are relevant by the gradient of the softmax."""
    return _distribute(case, _settings("attn_lrp"))


@method(aimed=False)
def gim(case: Case, *, temperature: float = 2.0) -> Tensor:
    """GIM: the gradient with constant scales of norms, a softened softmax and products in attention in halves.

    Args:
        temperature: The logits of a softmax are divided by it in the backward pass.
    """
    if not temperature > 0:
        raise ValueError(f"gim(..., temperature={temperature!r}): the temperature must be a number above 0.")
    return _distribute(case, _settings("gim", temperature))


def _settings(name: str, temperature: float = 2.0) -> Settings:
    """How one of the three propagates; only GIM has a temperature."""
    frozen = Settings(RelevanceScores, norm_mean="linear")
    if name == "cp_lrp":
        return frozen
    followed = dataclasses.replace(frozen, attention="local")
    if name == "attn_lrp":
        return followed
    return dataclasses.replace(followed, carrier=GradientScores, softmax_temperature=temperature)


def layer_coefficients(name: str, model: Any, x: Tensor, layer: str, target: Any = None) -> Tensor:
    """The coefficients of CP-LRP, AttnLRP or GIM for the output of a module inside the model, shaped like it."""
    given, question = Inputs((x,), False, None), Question(layer=layer)
    job = Job(Subject(model), given, [(None,)], _settings(name), Request(target=target), question)
    (chunks,) = carry_out(job, lambda passed: (_coefficients(passed),), lambda parts: parts[0]).values()
    return torch.cat(chunks)


def _distribute(case: Case, settings: Settings) -> Tensor:
    """The coefficient of every element times its distance to the (mean) baseline."""
    coefficients = propagate(dataclasses.replace(case, baselines=[None]), settings, _coefficients)
    return coefficients * (case.x - torch.stack(case.starts).mean(0))


def _coefficients(passed: Passed) -> Tensor:
    leaves = [leaf.scores.delta for leaf in passed.run.leaves]
    (slope,) = torch.autograd.grad(passed.chosen.delta.sum(), leaves, allow_unused=True, materialize_grads=True)
    return slope


class GradientScores(SignedScores):
    """The value with the slope of the network, but for what its settings and ``product`` change."""

    has_ledger = False  # the scores of GIM add up to nothing that biases could have a part of

    def _through(self, phi: Function) -> tuple[None, Tensor]:
        value = self.delta.detach()
        return None, Multiplied.apply(phi(value), self.delta, derivative(phi, value))

    def product(self, other: Any, fn: Callable[[Tensor, Tensor], Tensor], routing: bool = False, aligned: bool = False) -> Any:
        """Sums of products, as in attention, in halves; a gate, element by element, by its gradient."""
        if fn not in ONE_TO_ONE:
            return super().product(other, fn, routing, aligned)
        mine, yours = self.value, other.value
        delta = fn(self.delta, yours) + fn(mine, other.delta) - fn(mine, yours)
        made = (None, delta, behind_product(self, other, fn, delta))
        return self._carry_product(other, fn, (mine, yours), made)
