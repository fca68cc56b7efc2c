"""DeepLIFT (Shrikumar et al. 2017) with its Rescale and RevealCancel rules, and LRP, on whatever the engine can follow.

DeepLIFT's reference is the model at the reference input, biases included. Where the engine freezes a value at the current
input (attention patterns, the statistics of a norm), the reference passes through the frozen model too: the scores then
add up to f(x) minus the output of that frozen model at the reference.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .._carriers.signed import Multiplied, SignedScores
from .._core.math_functions import divide, slope


class RescaleScores(SignedScores):
    """The Rescale rule: the multiplier of a function is its change by the change of its argument."""

    def _through(self, phi: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        start = self.start
        at_start = phi(start)
        change = phi(self.value) - at_start
        multiplier = slope(phi, start, self.value, self.delta.detach(), change)
        return at_start, Multiplied.apply(change, self.delta, multiplier)


class RevealCancelScores(SignedScores):
    """The RevealCancel rule: positive and negative part each get their mean effect over the two orders of adding them."""

    slack = 16.0  # both parts can be far larger than what is left of them at the features

    def _through(self, phi: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        total = self.total
        positive, negative = (total + self.delta) / 2, (self.delta - total) / 2
        start = self.start
        at_start, at_value = phi(start), phi(self.value)
        up, down = positive.detach().clamp_min(0), negative.detach().clamp_max(0)
        after_up, after_down = phi(start + up), phi(start + down)
        of_up = ((after_up - at_start) + (at_value - after_down)) / 2
        of_down = ((after_down - at_start) + (at_value - after_up)) / 2
        multipliers = divide(of_up, up), divide(of_down, down)
        return at_start, Multiplied.apply(at_value - at_start, positive, negative, *multipliers)


class RelevanceScores(SignedScores):
    """LRP-0: relevance passes an elementwise function as it is, so its multiplier is phi(a) / a; biases keep their share."""

    def _through(self, phi: Callable[[Tensor], Tensor]) -> tuple[None, Tensor]:
        value = self.delta.detach()
        result = phi(value)
        delta = Multiplied.apply(result, self.delta, divide(result, value))
        alone = torch.where(value == 0, result, torch.zeros_like(result))  # of an argument 0 nothing can be relevant
        if bool(alone.any()):
            self.run.biases.watch((delta,), alone, self.rows, self.run.path)
        return None, delta
