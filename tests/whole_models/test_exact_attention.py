"""Models with attention in float32: scores sum to model(x) - model(baseline), and no softmax, attention or norm is frozen."""

import pytest
import torch
from test_architectures import prepared
from torch import nn

from architectures import ARCHITECTURES
from cafexai import CAFE

ATTENDING = [name for name in ARCHITECTURES if any(word in name for word in ("ransformer", "Bert", "GPT", "Llama", "ViT"))]


def assert_exact(model, inputs, references, **options):
    """To 1e-4 of the change of the output, or of 1 % of the largest output if that is more."""
    e = CAFE(model).explain(inputs, references, target=1, **options)

    def outputs(values):
        with torch.no_grad():
            found = model(*values) if isinstance(values, tuple) else model(values)
        return found if isinstance(found, torch.Tensor) else found[options["output"]]

    here, there = outputs(inputs), outputs(references)
    change = (here - there)[:, 1].double()
    scores = e.combined if isinstance(e.combined, tuple) else (e.combined,)
    found = sum(part.double().flatten(1).sum(1) for part in scores)
    limit = 1e-4 * torch.maximum(change.abs(), 1e-2 * here.abs().max().double())
    assert ((found - change).abs() <= limit).all(), ((found - change) / limit).abs().max()
    assert e.bias.abs().max() == 0
    assert not [line for line in e.frozen if any(word in line for word in ("softmax", "attention", "norm", "rsqrt", "div"))]


@pytest.mark.parametrize("name", ATTENDING)
def test_architectures(name):
    model, inputs, references, options = prepared(name, torch.float32)
    assert_exact(model, inputs, references, **options)


class Routed(nn.Module):
    """A mixture of experts: weights of a softmax over all, or over the two largest, which an index routes."""

    def __init__(self, most=None):
        super().__init__()
        self.most, self.gate = most, nn.Linear(6, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)) for _ in range(4))

    def forward(self, x):
        outputs = torch.stack([expert(x) for expert in self.experts], 1)
        logits = self.gate(x)
        if self.most is not None:
            logits, chosen = logits.topk(self.most, -1)
            outputs = outputs.gather(1, chosen[..., None].expand(-1, -1, 3))
        return (logits.softmax(-1)[..., None] * outputs).sum(1)


class Rotary(nn.Module):
    """Queries and keys turned by their places, and attention written out or by torch's function."""

    def __init__(self, written):
        super().__init__()
        self.written, self.project, self.head = written, nn.Linear(8, 24), nn.Linear(8, 3)

    def forward(self, x):
        q, k, v = self.project(x).chunk(3, -1)
        angles = torch.arange(x.shape[1])[:, None] / 10 ** torch.arange(4)
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
        q, k = (part * cos + torch.cat([-part[..., 4:], part[..., :4]], -1) * sin for part in (q, k))
        if self.written:
            weights = (q @ k.mT / 8**0.5).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1) > 0, -torch.inf).softmax(-1)
            return self.head((weights @ v).mean(1))
        return self.head(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).mean(1))


@pytest.mark.parametrize(
    "build", [Routed, lambda: Rotary(True), lambda: Rotary(False)], ids=["experts", "rotary", "rotary, sdpa"]
)
def test_gates_and_rotary_embeddings(build):
    torch.manual_seed(0)
    model = build().eval()
    x, start = torch.randn(2, 3, 6) if isinstance(model, Routed) else torch.randn(2, 3, 5, 8)
    assert_exact(model, x, start)


def test_what_an_index_routes_stays_frozen_and_listed():
    torch.manual_seed(0)
    e = CAFE(Routed(2).eval()).explain(torch.randn(3, 6), torch.randn(3, 6), target=1)
    assert e.completeness_error.abs().max() < 1e-4
    assert all("softmax" not in line for line in e.frozen)
