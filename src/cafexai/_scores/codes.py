"""Category codes and token ids as features: they are explained at the embedding that looks them up.

A code has no size, so its score is what the change of its embedding does, against the embedding of a reference code, or
against zeros; the scores of all elements of the embedding are summed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .rows import settle
from .run import Leaf, Run
from .value import Scores


class Coded(Tensor):
    """Integer codes of the input; each knows its place there and its reference code, through moves and offsets."""

    run: Run
    source: int
    width: int  # features per row
    places: Tensor  # the flat place in the input, -1 for constants that were joined to it
    reference: Tensor | None
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def of_input(run: Run, codes: Tensor, reference: Tensor | None, source: int) -> Coded:
        """The codes as the model gets them."""
        places = torch.arange(codes.numel(), device=codes.device).view(codes.shape)
        like = Coded.__new__(Coded)
        like.run, like.source, like.width = run, source, codes[0].numel()
        return like.changed(codes, places, reference)

    def changed(self, codes: Tensor, places: Tensor, reference: Tensor | None) -> Coded:
        """Other codes of the same input."""
        new = codes.detach().as_subclass(Coded)
        new.run, new.source, new.width = self.run, self.source, self.width
        new.places, new.reference = places.expand(codes.shape), reference
        return new

    def plain(self) -> Tensor:
        """The codes as a plain tensor."""
        return self.as_subclass(Tensor)

    def leaf(self, embed: Callable[[Tensor], Tensor]) -> Scores:
        """The embedded codes as a scored value in which explanations end."""
        value = self.run.wide(embed(self.plain()))
        reference = None if self.reference is None else self.run.wide(embed(self.reference))
        beyond = (1,) * (value.ndim - self.places.ndim)
        own = (self.places >= 0).view(*self.places.shape, *beyond)
        constant = None
        if not bool(own.all()):
            constant = value.masked_fill(own, 0)
            value, reference = value * own, None if reference is None else reference * own
        scores = self.run.settings.carrier.of_input(self.run, value, reference)
        if self.run.features is not None:
            scores.belongs(self.source, (self.places.clamp_min(0) % self.width).view(*self.places.shape, *beyond))
        if self.run.batch > 1:
            index = torch.where(self.places >= 0, self.places // self.width + 1, 0)
            scores.rows = settle(index.view(*index.shape, *beyond).expand(value.shape), self.run.batch)
        if not self.run.closed:
            self.run.leaves.append(Leaf(scores, self.source, self.places))
        return scores if constant is None else scores.add_constant(constant)
