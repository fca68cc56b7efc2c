"""Open attention in one step against the operations it is composed of, and what a model of many tokens keeps of it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cafexai import CAFE, Variant
from cafexai._carriers.feature import FeatureScores
from cafexai._carriers.unit import UnitScores
from cafexai._core.contract import Carrier
from cafexai._core.steps import JointlyInGraph
from cafexai.rules import open_attention, softmax

TOKENS, WIDTH, HEADS = 7, 8, 4


def _causal():
    return torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()


def _boolean():
    mask = torch.rand(3, 1, TOKENS, TOKENS, generator=torch.Generator().manual_seed(1)) > 0.4
    mask[0, :, 2] = False  # a query without any key
    mask[1, :, 3] = torch.arange(TOKENS) == 1  # one key
    return mask


class Attending(nn.Module):
    """Attention of a linear layer's queries, keys and values, and a head."""

    def __init__(self, groups=HEADS, **options):
        super().__init__()
        self.groups, self.options = groups, options
        size = WIDTH // HEADS
        self.project = nn.Linear(WIDTH, WIDTH + 2 * groups * size)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x):
        size = WIDTH // HEADS
        parts = self.project(x).split([WIDTH, self.groups * size, self.groups * size], -1)
        q, k, v = (part.unflatten(-1, (-1, size)).transpose(-3, -2) for part in parts)
        options = {
            name: value[: len(x)] if name == "attn_mask" and value.ndim == 4 else value for name, value in self.options.items()
        }
        out = F.scaled_dot_product_attention(q, k, v, enable_gqa=self.groups < HEADS, **options)
        return self.head(out.transpose(-3, -2).flatten(-2)).tanh().mean(-2)


class Multihead(nn.Module):
    def __init__(self, padding=False, weights=False, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, **options)
        self.padding, self.weights, self.first = padding, weights, options.get("batch_first", False)

    def forward(self, x):
        hidden = (torch.arange(TOKENS) > 4).expand(len(x), TOKENS) if self.padding else None
        parts = x if self.first else x.transpose(0, 1)
        out, weights = self.attention(parts, parts, parts, key_padding_mask=hidden)
        out = out if self.first else out.transpose(0, 1)
        return out.sum(1)[:, :2] + (weights[..., :2].square().sum(1) if self.weights else 0)


class Learned(nn.Module):
    """Queries that are parameters, and values that are."""

    def __init__(self, which):
        super().__init__()
        self.which, self.part = which, nn.Parameter(torch.randn(1, 3 if which == "query" else TOKENS, WIDTH))
        self.project = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x):
        parts = dict(zip(("query", "key", "value"), self.project(x).chunk(3, -1), strict=True))
        parts[self.which] = self.part.expand(len(x), -1, -1)
        return F.scaled_dot_product_attention(**parts).mean(1)[:, :2]


MODELS = {
    "plain": Attending,
    "causal": lambda: Attending(is_causal=True),
    "causal mask": lambda: Attending(attn_mask=_causal()),
    "boolean": lambda: Attending(attn_mask=_boolean()),
    "float": lambda: Attending(attn_mask=torch.randn(TOKENS, TOKENS)),
    "one row of a mask": lambda: Attending(attn_mask=torch.tensor([[0.0] * 5 + [-torch.inf] * 2])),
    "ALiBi": lambda: Attending(
        attn_mask=-torch.arange(TOKENS).sub(torch.arange(TOKENS)[:, None]).abs().to(torch.get_default_dtype())
    ),
    "scale": lambda: Attending(scale=2.0),
    "grouped query": lambda: Attending(groups=2),
    "multi query, causal": lambda: Attending(groups=1, is_causal=True),
    "multi-head": lambda: Multihead(batch_first=True),
    "multi-head, batch second": Multihead,
    "multi-head, padding": lambda: Multihead(padding=True, batch_first=True),
    "multi-head, weights used": lambda: Multihead(weights=True),
    "multi-head, constants": lambda: Multihead(add_bias_kv=True, add_zero_attn=True),
    "learned queries": lambda: Learned("query"),
    "learned keys": lambda: Learned("key"),
    "learned values": lambda: Learned("value"),
}


def composed(monkeypatch):
    for carrier in (UnitScores, FeatureScores):
        monkeypatch.setattr(carrier, "_carry_step", Carrier._carry_step)


@pytest.fixture(autouse=True)
def _restore_dtype():
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


SINGLE = ["plain", "boolean", "ALiBi"]
CASES = [(name, torch.float64) for name in MODELS] + [(name, torch.float32) for name in SINGLE]


@pytest.mark.parametrize("netting", ["unit", "feature"])
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_one_step_is_what_it_is_composed_of(name, netting, dtype, monkeypatch):
    torch.set_default_dtype(dtype)
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    x, start = torch.randn(2, 3, TOKENS, WIDTH)
    monkeypatch.setattr(open_attention, "BLOCK", 3 * HEADS * TOKENS * 2)  # two queries at a time
    cafe = CAFE(model, variant=Variant(netting=netting))
    near = {"rtol": 1e-9, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 1e-3, "atol": 2e-5}
    baseline = start[:1] if name in ("plain", "boolean", "multi-head, padding") else start  # one for all, or one for each
    e = cafe.explain(x, baseline, target=1)
    torch.testing.assert_close(e.combined.sum((1, 2)), e.output - e.baseline_output, **near)
    torch.testing.assert_close(e.baseline_output, model(baseline.expand_as(x))[:, 1].detach(), **near)
    assert e.frozen == ()
    composed(monkeypatch)
    other = cafe.explain(x, baseline, target=1)
    for part in ("combined", "positive", "negative"):
        torch.testing.assert_close(getattr(e, part), getattr(other, part), **near)


@pytest.mark.parametrize("flows", ["mean", "peak"])
@pytest.mark.parametrize("netting", ["unit", "feature"])
def test_an_activation_straight_behind_attention(netting, flows, monkeypatch):
    """It asks for all that was added up, which the step itself does not know."""
    torch.manual_seed(0)
    project = nn.Linear(WIDTH, 3 * WIDTH, dtype=torch.float64)

    def model(x):
        return F.scaled_dot_product_attention(*project(x).chunk(3, -1)).relu().sum((1, 2))

    x, start = torch.randn(2, 2, TOKENS, WIDTH, dtype=torch.float64)
    cafe = CAFE(model, variant=Variant(netting=netting, flows=flows))
    e = cafe.explain(x, start)
    torch.testing.assert_close(e.combined.sum((1, 2)), (model(x) - model(start)).detach(), rtol=1e-9, atol=1e-10)
    composed(monkeypatch)
    other = cafe.explain(x, start)
    for part in ("combined", "positive", "negative"):
        torch.testing.assert_close(getattr(e, part), getattr(other, part), rtol=1e-9, atol=1e-10)


def test_windows_of_several_rows():
    """Rows folded into windows, as in Swin: the windows of a row are its own."""
    torch.manual_seed(0)
    project = nn.Linear(WIDTH, 3 * WIDTH, dtype=torch.float64)

    def model(x):
        windows = x.unflatten(1, (2, -1)).flatten(0, 1)
        out = F.scaled_dot_product_attention(*project(windows).chunk(3, -1))
        return out.unflatten(0, (-1, 2)).flatten(1, 2).tanh().sum((1, 2))

    x, start = torch.randn(2, 3, 6, WIDTH, dtype=torch.float64)
    e = CAFE(model).explain(x, start)
    alone = [CAFE(model).explain(x[i : i + 1], start[i : i + 1]).combined for i in range(3)]
    torch.testing.assert_close(e.combined, torch.cat(alone), rtol=1e-9, atol=1e-10)


def test_no_pattern_is_kept(monkeypatch):
    """What the backward pass keeps grows with the tokens, not with their square."""
    torch.manual_seed(0)
    tokens, kept = 128, []
    model = Attending()
    make = JointlyInGraph.apply

    def watched(step, change, *deltas):
        kept.extend(tensor.untyped_storage().nbytes() // tensor.itemsize for tensor in step.tensors if tensor is not None)
        return make(step, change, *deltas)

    monkeypatch.setattr(JointlyInGraph, "apply", watched)
    monkeypatch.setattr(softmax, "log_mean", None)  # no pattern is made on another way
    CAFE(model).attribute(torch.randn(1, tokens, WIDTH), target=0)
    assert 0 < max(kept) <= tokens * 3 * WIDTH < tokens**2


def test_a_bias_of_the_logits_that_depends_on_the_input():
    torch.manual_seed(0)
    project, bias = nn.Linear(WIDTH, 3 * WIDTH, dtype=torch.float64), nn.Linear(WIDTH, TOKENS, dtype=torch.float64)
    layer = nn.MultiheadAttention(WIDTH, 2, batch_first=True, dtype=torch.float64)

    def function(x):
        return F.scaled_dot_product_attention(*project(x).chunk(3, -1), attn_mask=bias(x)).tanh().sum((1, 2))

    def module(x):
        return layer(x, x, x, attn_mask=bias(x).repeat_interleave(2, 0))[0].tanh().sum((1, 2))

    x, start = torch.randn(2, 3, TOKENS, WIDTH, dtype=torch.float64)
    for model in (function, module):
        e = CAFE(model).explain(x, start)
        assert e.frozen == ()
        torch.testing.assert_close(e.baseline_output, model(start).detach(), rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(e.combined.sum((1, 2)), (model(x) - model(start)).detach(), rtol=1e-9, atol=1e-10)


def naive(parts, starts, allowed, end):
    """Scores of queries, keys and values of one head for a linear head: queries one by one, over the keys that each may see."""
    (q, k, v), (q0, k0, v0) = parts, starts
    scale, scores = q.shape[-1] ** -0.5, [torch.zeros_like(part) for part in parts]
    for i in range(len(q)):
        keys = allowed[i].nonzero()[:, 0]
        if not len(keys):
            continue
        p, r = (scale * (a[i] @ b[keys].T) for a, b in ((q, k), (q0, k0)))
        p, r = p.softmax(0), r.softmax(0)
        mean = torch.where(p == r, p, (p - r) / (p.log() - r.log()))
        to_logits = mean * ((v + v0)[keys] / 2 @ end)
        to_logits = scale * (to_logits - mean * to_logits.sum() / mean.sum())
        scores[0][i] += to_logits @ ((k + k0)[keys] / 2) * (q - q0)[i]
        scores[1][keys] += to_logits[:, None] * (q + q0)[i] / 2 * (k - k0)[keys]
        scores[2][keys] += ((p + r) / 2)[:, None] * end * (v - v0)[keys]
    return scores


@pytest.mark.parametrize("variant", [Variant(), Variant(flows="peak"), Variant(netting="feature", flows="peak")])
@pytest.mark.parametrize("empty", [False, True])
def test_masks_and_rows_without_any_key_equal_their_naive_twin(variant, empty):
    torch.manual_seed(0)
    parts, starts, end = torch.randn(3, TOKENS, 4).double(), torch.randn(3, TOKENS, 4).double(), torch.randn(4).double()
    allowed = torch.rand(TOKENS, TOKENS) > 0.4
    allowed[2] = False
    if empty:
        allowed[:] = False

    def model(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed).nan_to_num(0).sum(1) @ end

    e = CAFE(model, variant=variant).explain(tuple(parts[:, None]), tuple(starts[:, None]))
    for found, expected in zip(e.combined, naive(parts, starts, allowed, end), strict=True):
        torch.testing.assert_close(found[0], expected, rtol=1e-10, atol=1e-12)
    assert not e.combined[0][0, 2].any()  # the query without a key


def test_permuted_keys_have_permuted_scores():
    torch.manual_seed(0)
    (parts, starts), bias = torch.randn(2, 3, 2, TOKENS, WIDTH).double(), torch.randn(TOKENS, TOKENS).double()
    end, order = torch.randn(WIDTH).double(), torch.randperm(TOKENS)

    def explained(order):
        def model(q, k, v):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias[:, order]).tanh().sum(1) @ end

        def moved(some):
            return some[0], some[1][:, order], some[2][:, order]

        return CAFE(model).explain(moved(parts), moved(starts)).combined

    plain, permuted = explained(torch.arange(TOKENS)), explained(order)
    torch.testing.assert_close(permuted[0], plain[0], rtol=1e-10, atol=1e-12)
    for place in (1, 2):
        torch.testing.assert_close(permuted[place], plain[place][:, order], rtol=1e-10, atol=1e-12)


def test_pairs_of_features_split_the_conflict():
    """At c = 1, peak flows: all that cancels is in some pair, as with frozen attention."""
    torch.manual_seed(0)
    layer, out = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 2)
    model = nn.Module()
    model.layer, model.out = layer, out
    model.forward = lambda x: out(F.gelu(x + layer(x, x, x)[0]).mean(1))
    model, x, start = model.double().eval(), torch.randn(2, 5, 4).double(), torch.randn(1, 5, 4).double()
    e = CAFE(model, 1.0, "feature", flows="peak").explain(x, start, 0, pairs=True)
    assert e.frozen == ()
    sides = e.positive.flatten(1).sum(1), e.negative.flatten(1).sum(1)
    torch.testing.assert_close(e.conflict_pairs.sum((1, 2)), torch.minimum(*sides), rtol=1e-8, atol=1e-9)
    alone = torch.cat(
        [CAFE(model, 1.0, "feature", flows="peak").explain(row[None], start, 0, pairs=True).conflict_pairs for row in x]
    )
    torch.testing.assert_close(e.conflict_pairs, alone)
