"""CP-LRP, AttnLRP and GIM: against the gradient of a model whose operations are rewritten, and against GIM's own package."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import architectures
import models
from cafexai.methods import METHODS
from cafexai.models import FTTransformer

NAMES = ["cp_lrp", "attn_lrp", "gim"]


class Plain:
    """The operations of a transformer as they are."""

    norm = staticmethod(lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias))
    matmul = staticmethod(torch.matmul)
    softmax = staticmethod(lambda x: torch.softmax(x, -1))
    act = staticmethod(F.gelu)
    gate = staticmethod(torch.mul)


class CPLRP(Plain):
    """The same with other gradients, straight from the definition."""

    @staticmethod
    def norm(x, weight, bias):
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt().detach() * weight + bias

    @staticmethod
    def matmul(a, b):
        return (a.detach() @ b + a @ b.detach()) / 2

    @staticmethod
    def softmax(x):
        return torch.softmax(x, -1).detach()

    @staticmethod
    def act(x):
        return x * torch.where(x == 0, 0, F.gelu(x) / x).detach()

    @staticmethod
    def gate(a, b):
        return (a.detach() * b + a * b.detach()) / 2


class FrozenMatmul(CPLRP):
    """Of a constant pattern the values have all of the product."""

    @staticmethod
    def matmul(a, b):
        return a @ b if not a.requires_grad else CPLRP.matmul(a, b)


class AttnLRP(CPLRP):
    softmax = staticmethod(lambda x: torch.softmax(x, -1))


class GIM(CPLRP):
    act, gate = Plain.act, Plain.gate

    @staticmethod
    def softmax(x, temperature=2.0):
        soft = torch.softmax(x / temperature, -1) * temperature
        return torch.softmax(x, -1).detach() + soft - soft.detach()


TWINS = {"cp_lrp": FrozenMatmul, "attn_lrp": AttnLRP, "gim": GIM}


class Block(nn.Module):
    """Attention with two heads, a gate and a residual path; what its operations are can be changed."""

    def __init__(self, width=6, spelling="softmax", mask=None):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.gate, self.down = nn.Linear(width, 8), nn.Linear(width, 8), nn.Linear(8, width)
        self.weight, self.bias = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width))
        self.spelling, self.mask = spelling, mask

    def forward(self, x, ops=Plain):
        heads = [t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.qkv(ops.norm(x, self.weight, self.bias)).chunk(3, -1)]
        mixed = self.attend(*heads, ops)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        hidden = ops.norm(x, self.weight, self.bias)
        return x + self.down(ops.gate(ops.act(self.gate(hidden)), self.up(hidden)))

    def attend(self, q, k, v, ops):
        if self.spelling == "sdpa" and ops is Plain:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        logits = ops.matmul(q, k.mT) / math.sqrt(q.shape[-1])
        if self.mask is not None:
            logits = logits + self.mask
        if self.spelling == "exp" and ops is Plain:
            terms = (logits - logits.amax(-1, keepdim=True)).exp()
            return terms / terms.sum(-1, keepdim=True) @ v
        return ops.matmul(ops.softmax(logits), v)


class Net(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.blocks = nn.ModuleList(Block(**options) for _ in range(2))
        self.head = nn.Linear(6, 3)

    def forward(self, x, ops=Plain):
        for block in self.blocks:
            x = block(x, ops)
        return self.head(x).mean(1)


def twin(name, model, x, start, target):
    """The gradient of the rewritten model times the distance to the baseline."""
    point = x.clone().requires_grad_()
    output = model(point, TWINS[name])
    torch.testing.assert_close(output, model(x))  # only its gradient is another
    (slope,) = torch.autograd.grad(output[:, target].sum(), point)
    return slope * (x - start)


@pytest.mark.parametrize("spelling", ["softmax", "sdpa", "exp"])
@pytest.mark.parametrize("name", NAMES)
def test_they_equal_the_gradient_of_a_rewritten_model(name, spelling):
    model, x, start = Net(spelling=spelling).eval(), torch.randn(3, 4, 6), torch.randn(3, 4, 6)
    torch.testing.assert_close(METHODS[name](model, x, target=1), twin(name, model, x, 0, 1), atol=1e-10, rtol=1e-10)
    scores = METHODS[name](model, x, target=2, baselines=start)
    torch.testing.assert_close(scores, twin(name, model, x, start, 2), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("spelling", ["softmax", "sdpa"])
@pytest.mark.parametrize("least", [-torch.inf, torch.finfo(torch.float64).min])
@pytest.mark.parametrize("name", NAMES)
def test_masked_keys_have_no_part(name, least, spelling):
    mask = torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), least)
    model, x = Net(spelling=spelling, mask=mask).eval(), torch.randn(2, 4, 6)
    torch.testing.assert_close(METHODS[name](model, x, target=1), twin(name, model, x, 0, 1), atol=1e-10, rtol=1e-10)


def test_the_mean_of_several_baselines_counts():
    model, x, stack = Net().eval(), torch.randn(2, 4, 6), torch.randn(3, 1, 4, 6)
    for name in NAMES:
        expected = sum(METHODS[name](model, x, target=0, baselines=one) for one in stack) / 3
        torch.testing.assert_close(METHODS[name](model, x, target=0, baselines=stack), expected)


def test_gim_with_temperature_one_and_no_products_is_the_gradient():
    model, x = models.mlp(4, 8, 3, activation=nn.GELU), torch.randn(3, 4)
    torch.testing.assert_close(METHODS["gim"](model, x, target=1), METHODS["gradient_x_input"](model, x, target=1))
    with pytest.raises(ValueError, match="above 0"):
        METHODS["gim"](model, x, target=1, temperature=0.0)


@pytest.mark.parametrize("name", ["attn_lrp", "gim"])
def test_a_log_softmax_inside_goes_by_its_gradient(name):
    inner, outer = nn.Linear(4, 5), nn.Linear(5, 2)
    x = torch.randn(3, 4)
    scores = METHODS[name](lambda v: outer(torch.log_softmax(inner(v), -1)), x, target=1)
    point = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(outer(torch.log_softmax(inner(point), -1))[:, 1].sum(), point)
    torch.testing.assert_close(scores, slope * x)


def test_without_attention_and_norms_both_lrps_are_lrp():
    model, x = models.mlp(4, 8, 8, 3, activation=nn.GELU), torch.randn(3, 4)
    for name in ("cp_lrp", "attn_lrp"):
        torch.testing.assert_close(METHODS[name](model, x, target=1), METHODS["lrp"](model, x, target=1))


@pytest.mark.parametrize("name", NAMES)
def test_they_run_on_transformers_that_people_have(name):
    tables = FTTransformer((1,) * 6, outputs=2, width=16, heads=4, blocks=2).eval()
    assert METHODS[name](tables, torch.randn(3, 6), target=1).isfinite().all()
    layers = architectures.encoder(norm_first=True).eval()
    assert METHODS[name](layers, torch.randn(2, 5, 8), target=1).isfinite().all()


def test_gim_equals_its_package(monkeypatch):
    """The package scales the gradients of what is given to torch's attention, and those of torch's softmax."""
    package = pytest.importorskip("gim", reason="gim-explain is not installed")

    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.last = nn.LayerNorm(6), nn.LayerNorm(6)
            self.qkv, self.up, self.down = nn.Linear(6, 18), nn.Linear(6, 8), nn.Linear(8, 6)
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
            x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            return self.head(self.last(x + self.down(F.gelu(self.up(x))))).mean(1)

    def written_out(q, k, v):
        return F.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1) @ v

    model, x, start = Attending().eval(), torch.randn(2, 4, 6), torch.randn(2, 4, 6)
    ours = METHODS["gim"](model, x, target=1, baselines=start)
    monkeypatch.setattr(F, "scaled_dot_product_attention", written_out)
    point = x.clone().requires_grad_()
    with package.GIM(model):
        (slope,) = torch.autograd.grad(model(point)[:, 1].sum(), point)
    torch.testing.assert_close(ours, slope * (x - start), atol=1e-10, rtol=1e-10)
