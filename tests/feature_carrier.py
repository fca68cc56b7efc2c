"""A sketch of a second carrier (paths of one feature are netted first), to hold the rules to their few primitives.

One signed contribution per feature, and a last one for all biases, with their sum equal to delta. No rule knows it.
"""

from __future__ import annotations

import torch

from cafexai.activation import flows
from cafexai.scores import Scores


class FeatureScores(Scores):
    def __init__(self, run, reference, shares):
        self.run = run
        self.reference = reference
        self.shares = shares  # (features + 1, *shape of the value)
        self.delta = shares.sum(0)
        self.rows = None

    @classmethod
    def of_input(cls, run, x, reference):
        delta = x if reference is None else x - reference
        flat = delta.flatten(1)
        shares = torch.zeros(flat.shape[1] + 1, *flat.shape, dtype=x.dtype)
        for feature in range(flat.shape[1]):
            shares[feature, :, feature] = flat[:, feature]
        return cls(run, reference, shares.view(-1, *delta.shape))

    def copy(self):
        return FeatureScores(self.run, self.reference, self.shares)

    def worst_sign(self):
        return 0.0

    @classmethod
    def join(cls, run, fn, parts, aligned=False):
        count = next(len(p.shares) for p in parts if isinstance(p, Scores))

        def shares(part):
            if isinstance(part, Scores):
                return part.shares
            return torch.cat([torch.zeros(count - 1, *part.shape), part[None]])

        def reference(part):
            return part.reference if isinstance(part, Scores) and part.reference is not None else torch.zeros(part.shape)

        moved = torch.vmap(lambda *tensors: fn(list(tensors)))(*(shares(p) for p in parts))
        references = fn([reference(p) for p in parts])
        if isinstance(moved, torch.Tensor):
            return cls(run, references, moved)
        return tuple(cls(run, r, m) for r, m in zip(references, moved, strict=True))

    def linear(self, fn, *constants, bias=None, bias_dims=0, aligned=False):
        bias = bias() if callable(bias) else bias
        rest = (*constants, None) if bias is not None else constants
        shares = torch.vmap(lambda v: fn(v, *rest))(self.shares)
        reference = None if self.reference is None else fn(self.reference, *rest)
        if bias is not None:
            amount = bias.reshape((*bias.shape, *(1,) * bias_dims))
            shape = torch.broadcast_shapes(shares.shape[1:], amount.shape)
            shares = shares.expand(-1, *shape).clone()
            shares[-1] += amount
            reference = None if reference is None else reference.expand(shape)
        return FeatureScores(self.run, reference, shares)

    def add(self, other, alpha=1):
        if self.reference is None and other.reference is None:
            reference = None
        else:
            zero = torch.zeros(())
            mine, yours = (zero if s.reference is None else s.reference for s in (self, other))
            reference = (mine + alpha * yours).expand(torch.broadcast_shapes(self.shape, other.shape))
        return FeatureScores(self.run, reference, self.shares + alpha * other.shares)

    def elementwise(self, phi, keeps_zero=False, routing=False):
        positive, negative = self.shares.clamp_min(0).sum(0), (-self.shares).clamp_min(0).sum(0)
        reference = torch.zeros_like(self.delta) if self.reference is None else self.reference
        at_reference = phi(reference)
        change, along, against, _ = flows(self.delta, positive + negative, reference, at_reference, phi, self.run.c)
        net = along + against
        rising = self.delta >= 0
        up = torch.where(positive > 0, (change * rising + net) / positive, 0)
        down = torch.where(negative > 0, (net - change * ~rising) / negative, 0)
        return FeatureScores(self.run, at_reference, torch.where(self.shares > 0, up, down) * self.shares)

    def mix(self, weights, dims, reference):
        return FeatureScores(self.run, reference, (self.shares * weights).sum([d + 1 for d in dims], keepdim=True))

    def product(self, other, fn, routing=False):
        mine, yours = (s.value / 2 if s.reference is None else (s.value + s.reference) / 2 for s in (self, other))
        shares = torch.vmap(lambda v: fn(v, yours))(self.shares) + torch.vmap(lambda v: fn(mine, v))(other.shares)
        none = self.reference is None or other.reference is None
        return FeatureScores(self.run, None if none else fn(self.reference, other.reference), shares)
