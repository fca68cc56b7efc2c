"""One softmax in many spellings: each is recognised, frozen, and explained as torch.softmax is."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cafexai import CAFE


def total(e):
    return e.sum(-1, keepdim=True)


def by_hand(e):
    whole = e[..., 0:1]
    for place in range(1, e.shape[-1]):
        whole = whole + e[..., place : place + 1]
    return whole


def on_exponentials(spelling):
    return lambda z: spelling(z.exp())


def on_shifted(spelling):
    return lambda z: spelling((z - z.amax(-1, keepdim=True)).exp())


SPELLINGS = {
    "softmax": lambda z: torch.softmax(z, -1),
    "F.softmax": lambda z: F.softmax(z, dim=-1),
    "exp of log_softmax": lambda z: F.log_softmax(z, -1).exp(),
    "exp / sum": on_exponentials(lambda e: e / total(e)),
    "exp(z - max) / sum": on_shifted(lambda e: e / total(e)),
    "exp(z - logsumexp)": lambda z: (z - z.logsumexp(-1, keepdim=True)).exp(),
    "e * reciprocal(sum)": on_exponentials(lambda e: e * torch.reciprocal(total(e))),
    "e * sum ** -1": on_exponentials(lambda e: e * total(e) ** -1),
    "e / sum.expand_as(e)": on_exponentials(lambda e: e / total(e).expand_as(e)),
    "torch.div": on_exponentials(lambda e: torch.div(e, e.sum(-1).unsqueeze(-1))),
    "sum by einsum": on_exponentials(lambda e: e / torch.einsum("...i->...", e)[..., None]),
    "e / (e @ ones)": on_exponentials(lambda e: e / (e @ torch.ones(e.shape[-1], 1, dtype=e.dtype))),
    "exp2 of scaled logits": lambda z: (lambda e: e / total(e))(torch.exp2(z * math.log2(math.e))),
    "math.e ** z": lambda z: (lambda e: e / total(e))(math.e**z),
    "F.normalize(e, p=1)": on_exponentials(lambda e: F.normalize(e, p=1, dim=-1)),
    "sum written out": on_exponentials(lambda e: e / by_hand(e)),
    # and some more
    "sum of unbind": on_shifted(lambda e: e / sum(e.unbind(-1))[..., None]),
    "logsumexp, unsqueezed": lambda z: (z - z.logsumexp(-1).unsqueeze(-1)).exp(),
    "e @ matrix of ones": on_exponentials(lambda e: e / (e @ torch.ones(e.shape[-1], e.shape[-1], dtype=e.dtype))),
    "2 ** z": lambda z: (lambda e: e * total(e).pow(-1))(2 ** (z / math.log(2))),
    "cast between": on_exponentials(lambda e: e.double() / e.double().sum(-1, keepdim=True)),
}
VARIANTS = {
    "published": {"netting": "path", "flows": "peak", "biases": "scores", "norms": "frozen"},
    "unit": {"netting": "unit", "flows": "mean", "biases": "reference", "norms": "open"},
    "feature": {"netting": "feature", "flows": "peak", "biases": "reference", "norms": "frozen"},
    "open": {"variant": "default"},
}


class Attention(nn.Module):
    """A softmax that mixes values; ``causal``: of no later position."""

    def __init__(self, softmax, causal=False):
        super().__init__()
        self.causal = causal
        torch.manual_seed(0)
        self.q, self.k, self.v, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.softmax = softmax
        self.double()

    def forward(self, x):
        logits = self.q(x) @ self.k(x).transpose(1, 2)
        if self.causal:
            logits = logits + torch.full_like(logits[0], -torch.inf).triu(1)
        pattern = self.softmax(logits)
        return self.head(F.gelu(pattern @ self.v(x)).mean(1))


def explained(model, x, variant, baselines):
    return CAFE(model, 0.5, **{"variant": "published", **VARIANTS[variant]}).explain(x, baselines, 1)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_inside_a_model(spelling, variant):
    x = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for baselines in (None, 0.3):
        found, expected = (explained(Attention(SPELLINGS[name]), x, variant, baselines) for name in (spelling, "softmax"))
        assert any("softmax" in line for line in found.frozen) is (variant != "open")
        assert not any(word in line for line in found.frozen for word in ("denominator", "normalize"))
        for part in ("positive", "negative", "combined", "bias", "output", "baseline_output"):
            torch.testing.assert_close(getattr(found, part), getattr(expected, part), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_behind_a_mask_of_minus_infinity(spelling):
    """Hidden keys have no part in it; the first position sees itself alone."""
    x = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for variant in ("published", "open"):
        found, expected = (explained(Attention(SPELLINGS[name], True), x, variant, 0.3) for name in (spelling, "softmax"))
        for part in ("positive", "negative", "combined", "bias", "output", "baseline_output"):
            torch.testing.assert_close(getattr(found, part), getattr(expected, part), rtol=1e-10, atol=1e-12)


def test_the_dimension_is_found_where_one_end_does_not_tell():
    """Logits of 0 at the input: both dimensions give the same weights there, but not at the baseline."""
    start = torch.randn(1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x, end = torch.zeros_like(start), torch.arange(9, dtype=torch.float64).reshape(3, 3)
    for dim in (1, 2):
        found = CAFE(lambda z, dim=dim: (z.log_softmax(dim).exp() * end).sum((1, 2))).explain(x, start)
        expected = CAFE(lambda z, dim=dim: (z.softmax(dim) * end).sum((1, 2))).explain(x, start)
        torch.testing.assert_close(found.combined, expected.combined, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_as_the_output(spelling, variant):
    """It is left out, and its logit explained."""
    torch.manual_seed(0)
    layer, x = nn.Linear(4, 3).double(), torch.randn(3, 4, dtype=torch.float64)
    found = explained(lambda v: SPELLINGS[spelling](layer(v)), x, variant, None)
    expected = explained(lambda v: torch.softmax(layer(v), -1), x, variant, None)
    assert found.meta.final == "softmax"
    for part in ("positive", "negative", "combined", "bias"):
        torch.testing.assert_close(getattr(found, part), getattr(expected, part), rtol=1e-10, atol=1e-12)
