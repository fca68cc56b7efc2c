"""Layers that are made of several operations, against the same steps in the naive form."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import naive
from cafexai._carriers.path import PathScores
from cafexai._core.run import Run, Settings
from cafexai._core.tensors import Coded, Scored
from cafexai._engine.state_guard import StateGuard
from cafexai._engine.tracer import Trace


def pair(*shape):
    return naive.Pair(torch.randn(shape), torch.rand(shape), torch.rand(shape))


def scored(x, run):
    delta, total = ((x.positive + sign * x.negative).requires_grad_() for sign in (-1, 1))
    return Scored(PathScores(run, x.reference, delta, total, None), torch.float64)


def run_of(rows, norm_mean="bias"):
    return Run(rows, Settings(PathScores, lambda path: naive.C, norm_mean))


def traced(f, *pairs, rows=2, norm_mean="bias"):
    run = run_of(rows, norm_mean)
    arguments = [scored(x, run) for x in pairs]
    trace = Trace(run, dict, StateGuard(None))
    with trace:
        result = f(*arguments)
    assert not trace.problems, trace.problems[0]
    return result


def same(found, expected):
    state = found.state
    reference = torch.zeros(state.shape) if state.reference is None else state.reference
    torch.testing.assert_close(reference, expected.reference)
    torch.testing.assert_close((state.total + state.delta) / 2, expected.positive)
    torch.testing.assert_close((state.total - state.delta) / 2, expected.negative)


CELLS = {
    "lstm": (nn.LSTMCell, lambda x, s, w: naive.lstm_step(x, s, w)),
    "gru": (nn.GRUCell, lambda x, s, w: naive.gru_step(x, s[0], w)),
    "tanh": (nn.RNNCell, lambda x, s, w: naive.rnn_step(x, s[0], w, torch.tanh)),
    "relu": (lambda i, h: nn.RNNCell(i, h, nonlinearity="relu"), lambda x, s, w: naive.rnn_step(x, s[0], w, torch.relu)),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells(name):
    build, step = CELLS[name]
    cell, x, state = build(3, 2), pair(2, 3), [pair(2, 2), pair(2, 2)]
    weights = [p.detach() for p in (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)]
    expected = step(x, state, weights)
    if name == "lstm":
        found = traced(lambda v, h, c: cell(v, (h, c)), x, *state)
        for one, two in zip(found, expected, strict=True):
            same(one, two)
    else:
        same(traced(lambda v, h: cell(v, h), x, state[0]), expected)


LAYERS = {
    "lstm": nn.LSTM, "gru": nn.GRU, "tanh": nn.RNN, "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k)
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_recurrent_layers(name, bidirectional, layers):
    net = LAYERS[name](3, 2, layers, bidirectional=bidirectional)
    step = CELLS[name][1]
    sequence = [pair(2, 3) for _ in range(3)]
    x = naive.Pair(*(torch.stack([getattr(p, n) for p in sequence]) for n in ("reference", "positive", "negative")))
    found = traced(lambda v: net(v), x, rows=1)
    for layer in range(layers):
        outputs, finals = [], []
        for direction in range(2 if bidirectional else 1):
            suffix = f"_l{layer}" + ("_reverse" if direction else "")
            weights = [getattr(net, part + suffix).detach() for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            state = [None if name == "gru" else naive.constant(torch.zeros(2, 2))] * 2
            made = []
            for value in reversed(sequence) if direction else sequence:
                new = step(value, state, weights)
                state = list(new) if name == "lstm" else [new, new]
                made.append(state[0])
            outputs.append(made[::-1] if direction else made)
            finals.append(state)
        sequence = [naive.lin(lambda *v: torch.cat(v, -1), *parts) for parts in zip(*outputs, strict=True)]
    for time, value in enumerate(sequence):
        with Trace(found[0].state.run, dict, StateGuard(None)):
            same(found[0][time], value)
    with Trace(found[0].state.run, dict, StateGuard(None)):
        last = (found[1][0] if name == "lstm" else found[1])[-1]
        same(last, finals[-1][0])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 3, "vdim": 5}], ids=str
)
def test_multi_head_attention(options, masked):
    layer = nn.MultiheadAttention(4, 2, batch_first=True, **options).eval()
    for name, parameter in layer.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    q, k, v = pair(2, 3, 4), pair(2, 5, options.get("kdim", 4)), pair(2, 5, options.get("vdim", 4))
    masks = {}
    if masked:
        padding = torch.zeros(2, 5, dtype=torch.bool)
        padding[0, 3:] = True
        masks = {"key_padding_mask": padding, "attn_mask": torch.randn(3, 5)}
    found, weights = traced(lambda *parts: layer(*parts, **masks), q, k, v)
    plain_out, plain_weights = layer(q.value, k.value, v.value, **masks)
    torch.testing.assert_close(found.state.value, plain_out.detach())
    torch.testing.assert_close(weights, plain_weights.detach())
    _, pattern = layer(q.value, k.value, v.value, average_attn_weights=False, **masks)

    w_v = layer.v_proj_weight if layer.in_proj_weight is None else layer.in_proj_weight[8:]
    b_v = torch.zeros(4) if layer.in_proj_bias is None else layer.in_proj_bias[8:]
    b_o = torch.zeros(4) if layer.out_proj.bias is None else layer.out_proj.bias
    value = naive.lin(lambda t: t @ w_v.detach().T + b_v.detach(), v)
    extra = pattern.shape[-1] - 5

    def attend(t):
        if extra:
            last = layer.bias_v.detach().expand(2, 1, 4) if layer.bias_v is not None else torch.zeros(2, 1, 4)
            t = torch.cat([t, last], 1)
        heads = t.view(2, -1, 2, 2).transpose(1, 2)
        return (pattern.detach() @ heads).transpose(1, 2).reshape(2, 3, 4)

    mixed = naive.lin(attend, value)
    same(found, naive.lin(lambda t: t @ layer.out_proj.weight.detach().T + b_o.detach(), mixed))


def test_hand_written_attention_is_lazy_and_equal():
    q, k, v = pair(2, 3, 4), pair(2, 3, 4), pair(2, 3, 4)
    mask = torch.ones(3, 3).tril() == 0

    def written(a, b, c):
        scores = torch.matmul(a, b.transpose(1, 2)) / 2
        scores = scores.masked_fill(mask, float("-inf")) + 0.5
        assert scores.state.pending
        return torch.softmax(scores, -1) @ c

    def einsum(a, b, c):
        scores = torch.einsum("bqd,bkd->bqk", a, b) * 0.5 + torch.zeros(3, 3).masked_fill(mask, float("-inf"))
        assert scores.state.pending
        return torch.einsum("bqk,bkd->bqd", scores.softmax(-1), c)

    one = traced(written, q, k, v)
    two = traced(einsum, q, k, v)
    three = traced(lambda a, b, c: F.scaled_dot_product_attention(a, b, c, is_causal=True, scale=0.5), q, k, v)
    for other in (two, three):
        torch.testing.assert_close(one.state.delta, other.state.delta)
        torch.testing.assert_close(one.state.total, other.state.total)


def test_a_lazy_product_that_is_needed_after_all():
    a, b = pair(2, 3, 4), pair(2, 4, 3)
    found = traced(lambda u, v: torch.relu((u @ v).reshape(2, 9) * -2 + 1), a, b)
    whole = naive.product(torch.matmul, [a, b]).pair([a, b])
    same(found, naive.act(torch.relu, naive.lin(lambda t: t.reshape(2, 9) * -2 + 1, whole)))


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
@pytest.mark.parametrize(
    "options", [{"dim": 1}, {"dim": (1, 2), "correction": 0, "keepdim": True}, {"dim": -1, "unbiased": False}], ids=str
)
def test_spread(name, options):
    x = naive.Pair(10 * torch.randn(2, 3, 2), 0.01 * torch.rand(2, 3, 2), 0.01 * torch.rand(2, 3, 2))
    found = traced(lambda v: getattr(torch, name)(v, **options), x)
    dims = options["dim"]
    keep = options.get("keepdim", False)
    count = x.reference.numel() // x.reference.sum(dims).numel()
    divisor = count - options.get("correction", 1 if options.get("unbiased", True) else 0)
    squares = naive.act(torch.square, naive.lin(lambda v: v - v.mean(dims, keepdim=True), x))
    expected = naive.lin(lambda v: v.sum(dims, keepdim=keep) / divisor, squares)
    if name.startswith("std"):
        expected = naive.act(torch.sqrt, expected)
    if name.endswith("mean"):
        same(found[1], naive.lin(lambda v: v.mean(dims, keepdim=keep), x))
        found = found[0]
    same(found, expected)


@pytest.mark.parametrize(
    "layer", [nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.InstanceNorm1d(4, affine=True)], ids=lambda m: type(m).__name__
)
def test_the_mean_of_a_norm_as_a_linear_map(layer):
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    x = pair(2, 4, 4)
    found = traced(layer, x, norm_mean="linear")
    shape, dims = {"LayerNorm": ((2, 4, 4), (2,)), "GroupNorm": ((2, 2, 8), (2,)), "InstanceNorm1d": ((2, 4, 4), (2,))}[
        type(layer).__name__
    ]
    sigma = (x.value.view(shape).var(dims, correction=0, keepdim=True) + layer.eps).sqrt()
    w, b = (p.detach() if type(layer).__name__ == "LayerNorm" else p.detach()[:, None] for p in (layer.weight, layer.bias))

    def f(v):
        rows = v.view(shape)
        return ((rows - rows.mean(dims, keepdim=True)) / sigma).view(2, 4, 4) * w + b

    same(found, naive.lin(f, x))


def test_spelled_out_norms_are_of_the_linear_kind():
    x = pair(2, 3, 4)

    def layer_norm(v):
        mean = v.mean(-1, keepdim=True)
        return (v - mean) / torch.sqrt((v - mean).pow(2).mean(-1, keepdim=True) + 1e-5)

    def rms(v):
        return v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6)

    found = traced(layer_norm, x)
    torch.testing.assert_close(found.state.value, F.layer_norm(x.value, (4,)))
    reference = traced(lambda v: F.layer_norm(v, (4,)), x, norm_mean="linear")
    torch.testing.assert_close(found.state.delta, reference.state.delta)
    same(traced(rms, x), naive.lin(lambda v: v / (x.value.square().mean(-1, keepdim=True) + 1e-6).sqrt(), x))
    same(
        traced(lambda v: F.rms_norm(v, (4,), eps=1e-6), x),
        naive.lin(lambda v: v / (x.value.square().mean(-1, keepdim=True) + 1e-6).sqrt(), x),
    )


def coded(run, codes, reference=None):
    return Coded.of_input(run, codes, reference, 0)


LOOK_UPS = {
    "F.embedding": lambda c, w: F.embedding(c, w),
    "indexing": lambda c, w: w[c],
    "one_hot": lambda c, w: F.one_hot(c, 5).to(torch.float64) @ w,
    "moved": lambda c, w: F.embedding(c.t(), w).transpose(0, 1),
    "offset": lambda c, w: F.embedding((c + 2).clamp(0, 6).sub(2), w),
    "columns": lambda c, w: torch.stack([F.embedding(column, w) for column in c.unbind(1)], 1),
    "split": lambda c, w: torch.cat([F.embedding(part, w) for part in c.split(1, 1)], 1),
    "joined": lambda c, w: F.embedding(torch.cat([torch.full((2, 1), 3), c], 1), w)[:, 1:],
}


@pytest.mark.parametrize("name", LOOK_UPS)
@pytest.mark.parametrize("zero", [True, False])
def test_codes_are_explained_at_their_embedding(name, zero):
    codes, w = torch.tensor([[0, 1, 2], [4, 1, 0]]), torch.randn(5, 2)
    reference = None if zero else torch.tensor([[1, 1, 1], [0, 2, 2]])
    run = run_of(2)
    with Trace(run, dict, StateGuard(None)):
        found = LOOK_UPS[name](coded(run, codes, reference), w)
    start = torch.zeros(2, 3, 2) if zero else w[reference]
    change = w[codes] - start
    state = found.state
    torch.testing.assert_close(state.value, w[codes])
    torch.testing.assert_close(torch.zeros(2, 3, 2) if state.reference is None else state.reference, start)
    if name != "one_hot":  # there the weight is met on the way: both codes count
        torch.testing.assert_close(state.total, change.abs())
    assert run.batch == 2
    assert state.rows is None


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 0])
def test_embedding_bag(mode, padding):
    codes, w = torch.tensor([[1, 2, 0], [3, 0, 0]]), torch.randn(5, 2)
    run = run_of(2)
    layer = nn.EmbeddingBag.from_pretrained(w, mode=mode, padding_idx=padding)
    with Trace(run, dict, StateGuard(None)):
        found = layer(coded(run, codes))
    torch.testing.assert_close(found.state.value, layer(codes))
    kept = torch.ones(2, 3) if padding is None else (codes != padding).double()
    rows = naive.constant(w[codes])
    if mode == "max":
        hidden = (kept == 0)[..., None]
        same(found, naive.selection(lambda v: v.masked_fill(hidden, -torch.inf).amax(1), [rows], 1).pair([rows]))
        return
    weights = kept if mode == "sum" else kept / kept.sum(1, keepdim=True)
    same(found, naive.lin(lambda v: (v * weights[..., None]).sum(1), rows))


def test_embedding_bag_with_weights_per_sample():
    codes, w, weights = torch.tensor([[1, 2, 0], [3, 0, 0]]), torch.randn(5, 2), torch.randn(2, 3)
    run = run_of(2)
    with Trace(run, dict, StateGuard(None)):
        found = F.embedding_bag(coded(run, codes), w, mode="sum", per_sample_weights=weights)
    same(found, naive.lin(lambda v: (v * weights[..., None]).sum(1), naive.constant(w[codes])))
