"""Every explanation that is returned adds up beside the change of the output, on models where influence is huge as well."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from architectures import ARCHITECTURES, adds_up
from cafexai import CAFE, UnsupportedOperation
from cafexai.methods import METHODS
from whole_models.test_architectures import prepared


@pytest.fixture(autouse=True)
def single_precision():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before)


def explained(model, x, *arguments, c=0.5, netting="path", biases="scores", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CAFE(model, c, "published", netting=netting, biases=biases).explain(x, *arguments, **options)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_all_architectures_add_up_by_feature(name):
    """By path: tests/whole_models/test_architectures.py."""
    model, inputs, references, options = prepared(name, torch.float32)
    adds_up(explained(model, inputs, netting="feature", target=1, **options))
    adds_up(explained(model, inputs, references, c=1.0, netting="feature", biases="reference", target=1, **options))


class SpelledOut(nn.Module):
    """Attention with its softmax written as exp / sum, in several ways."""

    def __init__(self, softmax, width=8, scale=4.0):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.head = nn.Linear(width, 2)
        self.softmax, self.scale = softmax, scale

    def forward(self, x):
        pattern = self.softmax(self.scale * (self.q(x) @ self.k(x).transpose(1, 2)))
        return self.head(F.gelu(pattern @ self.v(x)).mean(1))


def _in_place(a):
    a = a.exp()
    a /= a.sum(-1, keepdim=True)
    return a


def _masked(a):
    mask = torch.ones(a.shape[-2:], dtype=torch.bool).tril()
    e = a.exp().masked_fill(~mask, 0)
    return e / e.sum(-1, keepdim=True).clamp_min(1e-12)


def _by_index(a):
    """As graph networks do: all entries in one dimension, grouped by an index."""
    flat, index = a.flatten(), torch.arange(a.numel()) // a.shape[-1]
    groups = a.numel() // a.shape[-1]
    top = torch.zeros(groups).scatter_reduce_(0, index, flat.detach(), "amax", include_self=False)
    e = (flat - top[index]).exp()
    total = torch.zeros(groups).scatter_add_(0, index, e) + 1e-16
    return (e / total.index_select(0, index)).view(a.shape)


SOFTMAXES = {
    "exp / sum": lambda a: (lambda e: e / e.sum(-1, keepdim=True))(a.exp()),
    "maximum subtracted": lambda a: (lambda e: e / e.sum(-1, keepdim=True))((a - a.amax(-1, keepdim=True)).exp()),
    "values of max": lambda a: (lambda e: e / e.sum(-1)[..., None])(torch.exp(a - a.max(-1, keepdim=True).values)),
    "maximum detached": lambda a: (lambda e: e / e.sum(-1, keepdim=True))((a - a.detach().amax(-1, keepdim=True)).exp()),
    "times the inverse": lambda a: (lambda e: e * (1 / e.sum(-1, keepdim=True)))(a.exp()),
    "log_softmax": lambda a: torch.log_softmax(a, -1).exp(),
    "in place": _in_place,
}


@pytest.mark.parametrize("netting", ["path", "feature"])
@pytest.mark.parametrize("softmax", SOFTMAXES)
def test_exp_over_its_sum_is_the_softmax_it_is(softmax, netting):
    x = torch.randn(3, 5, 8)
    model, same = SpelledOut(SOFTMAXES[softmax]), SpelledOut(lambda a: torch.softmax(a, -1))
    for baselines in (None, torch.randn(1, 5, 8)):
        e = explained(model, x, baselines, netting=netting, target=1)
        expected = explained(same, x, baselines, netting=netting, target=1)
        adds_up(e)
        for part in ("positive", "negative", "bias", "output"):
            torch.testing.assert_close(getattr(e, part), getattr(expected, part), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("netting", ["path", "feature"])
@pytest.mark.parametrize("softmax", [_masked, _by_index])
def test_masked_and_scattered_sums_of_exponentials_are_softmaxes_too(softmax, netting):
    x = torch.randn(1, 5, 8)
    e = explained(SpelledOut(softmax), x, netting=netting, target=0)
    adds_up(e)
    assert any("softmax (exp / sum)" in line for line in e.frozen)
    assert e.positive.sum() + e.negative.sum() < 10


@pytest.mark.parametrize("softmax", SOFTMAXES)
def test_as_the_output_a_softmax_spelled_out_is_left_out(softmax):
    x, layer = torch.randn(3, 4), nn.Linear(4, 3)
    e = explained(lambda v: SOFTMAXES[softmax](layer(v)), x, target=2)
    logit = explained(layer, x, target=2)
    assert e.meta.final == "softmax"
    torch.testing.assert_close(e.output, logit.output)
    torch.testing.assert_close(e.combined, logit.combined)


QUOTIENTS = {
    "odds": lambda e: e[:, :1] / e[:, 1:].sum(1, keepdim=True),
    "small odds": lambda e: 1e-6 * e[:, :1] / e[:, 1:].sum(1, keepdim=True),
    "root of the sum": lambda e: e / e.sum(1, keepdim=True).sqrt(),
    "more than the terms": lambda e: (e + 3) / e.sum(1, keepdim=True),
    "weighted sum": lambda e: e / (e @ torch.tensor([1.0, 2.0, 3.0, 4.0]))[:, None],
    "sum so far": lambda e: e / e.cumsum(1),
}


@pytest.mark.parametrize("name", QUOTIENTS)
def test_other_quotients_of_exponentials_are_no_softmax(name):
    def model(x):
        return QUOTIENTS[name](x.exp()).sum(1) + 0.1 * x[:, 0]

    e = explained(model, torch.randn(3, 4))
    assert not any("softmax" in line for line in e.frozen)
    assert any("denominator" in line for line in e.frozen)


def test_a_sigmoid_spelled_out_is_no_softmax():
    def gate(x):
        e = x.exp()
        return (e / (1 + e)).sum(1)

    e = explained(gate, torch.randn(3, 4))
    assert not any("softmax" in line for line in e.frozen)
    assert e.combined.abs().min() > 0


@pytest.mark.parametrize("netting", ["path", "feature"])
def test_graph_attention_of_a_package(netting):
    geometric = pytest.importorskip("torch_geometric.nn", reason="PyTorch Geometric is not installed")
    edges = torch.tensor([[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 3, 1]])
    torch.manual_seed(0)
    first, second = geometric.GATConv(4, 8, heads=2), geometric.GATConv(16, 3)
    e = explained(lambda x: second(F.elu(first(x[0], edges)), edges)[:1], torch.randn(1, 5, 4), netting=netting, target=0)
    adds_up(e)
    assert (e.positive.sum() + e.negative.sum()).item() < 100 * e.output.abs().item()


SQUARED_RELU = {"Nemotron": {"num_key_value_heads": 2}, "Arcee": {"num_key_value_heads": 2}, "Persimmon": {},
                "BitNet": {"num_key_value_heads": 2}, "Jais2": {"num_key_value_heads": 2}, "Fuyu": {}}  # fmt: skip


@pytest.mark.parametrize("name", SQUARED_RELU)
def test_transformers_with_squared_relu(name):
    transformers = pytest.importorskip("transformers")
    size = {
        "vocab_size": 60,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
    }
    torch.manual_seed(0)
    more = SQUARED_RELU[name]
    if name == "Fuyu":
        more = {"patch_size": 4, "text_config": {"model_type": "persimmon", **size}}
    model = getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, f"{name}Config")(**size, **more)).eval()
    codes = torch.randint(3, 60, (2, 7))
    options = {"output": lambda out: out.logits[:, -1], "target": 3, "additional_forward_args": {"use_cache": False}}
    for netting in ("path", "feature"):
        adds_up(explained(model, codes, netting=netting, **options))


class Mamba(nn.Module):
    """A selective scan as in a default Mamba block."""

    def __init__(self, width, states=16):
        super().__init__()
        torch.manual_seed(0)
        inner, self.states, self.rank = 2 * width, states, width // 16
        self.enter = nn.Linear(width, 2 * inner, bias=False)
        self.convolution = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.parameters_of = nn.Linear(inner, self.rank + 2 * states, bias=False)
        self.step = nn.Linear(self.rank, inner)
        self.leave = nn.Linear(inner, width, bias=False)
        self.log_a = nn.Parameter(torch.arange(1, states + 1).float().log().repeat(inner, 1))
        self.d = nn.Parameter(torch.ones(inner))

    def forward(self, x):
        u, gate = self.enter(x).chunk(2, -1)
        u = F.silu(self.convolution(u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        step, b, c = self.parameters_of(u).split([self.rank, self.states, self.states], -1)
        step, a = F.softplus(self.step(step)), -self.log_a.exp()
        state, found = 0, []
        for t in range(x.shape[1]):
            now = step[:, t, :, None]
            state = (now * a).exp() * state + now * b[:, t, None] * u[:, t, :, None]
            found.append((state * c[:, t, None]).sum(-1))
        return self.leave((torch.stack(found, 1) + self.d * u) * F.silu(gate))[:, -1]


def test_a_selective_scan_is_refused_where_no_precision_resolves_it_and_adds_up_by_feature():
    x = torch.randn(1, 8, 64)
    with pytest.raises(UnsupportedOperation, match=r'(?s)do not add up.*Instead: CAFE\(model, variant="feature"\)'):
        explained(Mamba(64), x, target=0)
    adds_up(explained(Mamba(64), x, netting="feature", target=0))
    adds_up(explained(Mamba(16), x[..., :16], target=0))


class Opposed(nn.Module):
    """Two closed units of equal inputs whose weights, far larger than what is left, cancel each other."""

    def __init__(self, large):
        super().__init__()
        torch.manual_seed(0)
        self.weights, self.large = nn.Parameter(torch.randn(50)), large

    def forward(self, x):
        one, other = (torch.relu((x * self.weights).sum(1) - 100) for _ in range(2))
        return x[:, 0] + self.large * one - self.large * other


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("asked", ["explain", "attribute"])
def test_influence_that_unit_netting_forgets_is_no_lost_path(dtype, asked):
    x = torch.randn(2, 50).to(dtype)
    adds_up(explained(Opposed(1e3).to(dtype), x, c=1.0, netting="unit"))
    with pytest.raises(UnsupportedOperation, match=r"grows to .*e\+2\d, of which nearly all cancels.*Instead: a smaller c"):
        getattr(CAFE(Opposed(1e20).to(dtype), 1.0, "published", netting="unit"), asked)(x)


def test_influence_beyond_the_range_of_numbers_is_no_lost_path():
    wide, x = Mamba(64).double(), torch.randn(1, 8, 64).double()
    with torch.no_grad():
        for part in (wide.enter, wide.convolution, wide.parameters_of, wide.step, wide.leave):
            part.weight *= 5
    with pytest.raises(UnsupportedOperation, match=r"larger than torch\.float64 can hold\. Instead: a smaller c"):
        explained(wide, x, netting="feature", target=0)
    adds_up(explained(wide, x, netting="unit", target=0))
    with pytest.raises(UnsupportedOperation, match=r"larger than torch\.float64 can hold\. Instead: a smaller c"):
        explained(Opposed(1e308).double(), torch.randn(2, 50).double(), c=1.0, netting="unit")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_moved_feature_and_an_output_of_exactly_0_are_no_lost_path(dtype):
    for seed in range(60):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 2)).to(dtype)
        x = torch.randn(4, 6, dtype=dtype)
        baseline = x.clone()
        baseline[:, seed % 6] = torch.randn(4, dtype=dtype)
        for netting in ("path", "feature"):
            e = explained(model, x, baseline, 3, target_layer="3", biases="reference", netting=netting)
            assert e.completeness_error.abs().max() <= 1e-6
    METHODS["deeplift_rescale"](model, x, baselines=baseline, target=1)


def revin(x, body, head):
    mean, scale = x.mean(1, keepdim=True), torch.sqrt(x.var(1, keepdim=True) + 1e-5)
    return head(body((x - mean) / scale) * scale + mean)


def by_power(x, body, head):
    return head(body(x * torch.pow(x.pow(2).mean(-1, keepdim=True) + 1e-6, -0.5)))


def by_inverse(x, body, head):
    return head(body(x * (1 / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))))


def with_entropy(x, body, head):
    mask = torch.softmax(body(x), -1) * torch.sigmoid(body(x))
    return head(mask * x), (-mask * torch.log(mask + 1e-15)).sum()


def by_angle(x, body, head):
    return head(torch.acos(torch.tanh(body(x))))


@pytest.mark.parametrize("netting", ["path", "feature"])
@pytest.mark.parametrize("forward", [revin, by_power, by_inverse, with_entropy, by_angle])
def test_what_is_finite_in_the_model_is_explained(forward, netting):
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6)), nn.Linear(6, 1)
    x = torch.randn(3, 6)
    for baselines in (None, torch.randn(1, 6)):
        output = 0 if forward is with_entropy else None
        adds_up(explained(lambda v: forward(v, body, head), x, baselines, netting=netting, output=output))


def test_what_is_not_finite_is_named_if_it_reaches_the_output():
    with pytest.raises(ValueError, match="log is not finite at 0"):
        explained(lambda x: torch.log(x).sum(1), torch.rand(2, 3) + 1)
    with pytest.raises(ValueError, match="model itself, model\\(x\\), is not finite"):
        explained(lambda x: torch.sqrt(x).sum(1), -torch.ones(2, 3))


def test_a_norm_of_values_that_are_nearly_equal_loses_digits_here_too():
    """What is explained is as far from the exact output as the model is, elsewhere: rounding, and no wrong rule."""

    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.body = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(8, 8), nn.Tanh())])
            self.head = nn.Linear(8, 2)

        def forward(self, v):
            return self.head(F.layer_norm(1 + 1e-3 * self.body(v), (8,), eps=1e-20))

    x = torch.randn(3, 8)
    with pytest.raises(UnsupportedOperation, match=r"loses its own digits[\s\S]*model\.double"):
        CAFE(Flat().float()).explain(x.float(), target=0)
    e = CAFE(Flat().double()).explain(x.double(), target=0)
    assert e.completeness_error.abs().max() < 1e-6


@pytest.mark.parametrize("large", [1e6, 1e8])
def test_a_model_that_loses_its_own_digits_is_told_from_a_wrong_rule(large):
    layer = nn.Linear(3, 2)
    x = torch.randn(4, 3)

    class Lossy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, v):
            return torch.relu(self.layer((v + large) - large))

    for way in ({}, {"netting": "unit", "biases": "reference"}):
        cafe = CAFE(Lossy().float(), variant="published", **way)
        for explained in (cafe.explain, cafe.attribute):
            with pytest.raises(UnsupportedOperation, match=r"loses its own digits[\s\S]*model\.double"):
                explained(x.float(), target=0)
        e = CAFE(Lossy().double(), variant="published", **way).explain(x.double(), target=0)
        assert e.completeness_error.abs().max() < 1e-6


def test_a_reference_far_larger_than_the_value_costs_no_digits():
    """What is 1 at x is 1e6 at the reference: reference + delta in float32 would miss the output of the model."""
    torch.manual_seed(0)
    layer = nn.Linear(2, 1).float()
    x = torch.tensor([[1e-5, 2e-5], [3e-5, -1e-5]], dtype=torch.float32)

    def model(x):
        return torch.tanh(layer(x / x.detach()))

    e = CAFE(model, variant="published", biases="reference").explain(x, 10.0, check="output")
    assert any("float64" in note for note in e.notes)
    torch.testing.assert_close(e.output, model(x)[:, 0].detach().to(e.output.dtype), rtol=1e-5, atol=0)
    change = (e.output - e.baseline_output).double()
    torch.testing.assert_close(e.combined.double().sum(1), change, rtol=1e-4, atol=1e-6)
