"""Norms, distances, products, logarithms of sums: against the same written out, for all carriers, and naive twins."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import naive
from cafexai import CAFE
from engine.test_composed import pair, same, traced

PARTS = ("positive", "negative", "combined", "bias_positive", "bias_negative", "baseline_output")


def equal(one, other, x, starts):
    """Both models have the same scores, by every carrier."""
    for netting in ("path", "feature", "unit"):
        for start in starts:
            e, f = (CAFE(model, variant="published", netting=netting).explain(x, start) for model in (one, other))
            for part in PARTS:
                torch.testing.assert_close(getattr(e, part), getattr(f, part), atol=1e-9, rtol=1e-7)
            assert (e.completeness_error.abs() <= 1e-10 * (1 + e.combined.abs().sum(-1).reshape(len(e), -1).sum(1))).all()


LAYER = nn.Linear(4, 5).double()
K5 = torch.linspace(-1, 1, 5, dtype=torch.float64)
MASK = K5.new_tensor([0, -torch.inf, 0, 0, -torch.inf])
INDEX = torch.tensor([[0, 1, 1, 2, 0]])

WRITTEN_OUT = {
    "norm": (lambda h: h.norm(dim=1), lambda h: h.square().sum(1).sqrt()),
    "norm of order 1": (lambda h: torch.norm(h, 1, 1), lambda h: h.abs().sum(1)),
    "norm of order 3": (lambda h: h.norm(3, 1), lambda h: (h.abs() ** 3).sum(1) ** (1 / 3)),
    "largest norm": (lambda h: torch.linalg.vector_norm(h, torch.inf, 1), lambda h: h.abs().amax(1)),
    "smallest norm": (lambda h: torch.linalg.vector_norm(h, -torch.inf, 1), lambda h: h.abs().amin(1)),
    "Frobenius norm": (lambda h: torch.linalg.matrix_norm(h[:, :4].view(-1, 2, 2)), lambda h: h[:, :4].square().sum(1).sqrt()),
    "linalg.norm": (lambda h: torch.linalg.norm(h, dim=1, keepdim=True)[:, 0], lambda h: h.square().sum(1).sqrt()),
    "over its norm": (lambda h: (h / h.norm(dim=1, keepdim=True)) @ K5, lambda h: F.normalize(h) @ K5),
    "distance": (lambda h: F.pairwise_distance(h, K5[None], eps=0), lambda h: (h - K5).square().sum(1).sqrt()),
    "distances": (
        lambda h: torch.cdist(h[:, None], torch.tanh(h)[:, None], 1.0)[:, 0, 0], lambda h: (h - torch.tanh(h)).abs().sum(1)
    ),
    "cosine": (lambda h: F.cosine_similarity(h, K5[None]), lambda h: F.normalize(h) @ F.normalize(K5, dim=0)),
    "prod": (lambda h: h[:, :3].prod(1), lambda h: h[:, 0] * h[:, 1] * h[:, 2]),
    "prod of one": (lambda h: h[:, :1].prod(1, keepdim=True)[:, 0], lambda h: h[:, 0]),
    "cumprod": (lambda h: h[:, :3].cumprod(1).sum(1), lambda h: torch.stack(
        [h[:, 0], h[:, 0] * h[:, 1], h[:, 0] * h[:, 1] * h[:, 2]], 1).sum(1)),
    "log of a sum of exponentials": (lambda h: h.exp().sum(1).log(), lambda h: h.logsumexp(1)),
    "log of a shifted sum": (
        lambda h: (h - h.amax(1, keepdim=True).detach()).exp().sum(1, keepdim=True).log()[:, 0],
        lambda h: (h - h.amax(1, keepdim=True).detach()).logsumexp(1),
    ),
    "logaddexp": (lambda h: torch.logaddexp(h[:, 0], h[:, 1]), lambda h: h[:, :2].logsumexp(1)),
    "masked": (lambda h: (h + MASK).logsumexp(1), lambda h: h[:, [0, 2, 3]].logsumexp(1)),
    "log_softmax": (lambda h: (h - h.logsumexp(1, keepdim=True)) @ K5, lambda h: h.log_softmax(1) @ K5),
    "softmax": (lambda h: ((h - h.logsumexp(1, keepdim=True)).exp() * h).sum(1), lambda h: (h.softmax(1) * h).sum(1)),
    "bounds": (
        lambda h: h.clamp(torch.tanh(h) - 0.1, K5 + 0.5).sum(1),
        lambda h: torch.minimum(torch.maximum(h, torch.tanh(h) - 0.1), K5 + 0.5).sum(1),
    ),
    "a bounded constant": (lambda h: K5.clamp(min=h[:, :1]).sum(1), lambda h: torch.maximum(h[:, :1], K5).sum(1)),
    "einsum of three": (
        lambda h: torch.einsum("bi,ij,bj->b", h, K5.outer(K5), torch.tanh(h)),
        lambda h: torch.einsum("bj,bj->b", h @ K5.outer(K5), torch.tanh(h)),
    ),
    "largest of a group": (
        lambda h: torch.zeros(len(h), 3).scatter_reduce_(1, INDEX.expand(len(h), -1), h, "amax", include_self=False).sum(1),
        lambda h: torch.stack([torch.maximum(h[:, 0], h[:, 4]), torch.maximum(h[:, 1], h[:, 2]), h[:, 3]], 1).sum(1),
    ),
    "product of a group": (
        lambda h: torch.ones(len(h), 3).scatter_reduce(1, INDEX.expand(len(h), -1), h, "prod", include_self=False).sum(1),
        lambda h: torch.stack([h[:, 0] * h[:, 4], h[:, 1] * h[:, 2], h[:, 3]], 1).sum(1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_the_same_as_written_out(name):
    one, other = WRITTEN_OUT[name]
    torch.manual_seed(0)
    x, start = torch.randn(3, 4), torch.randn(3, 4)
    start[:, 1] = x[:, 1]
    starts = (start,) if name == "over its norm" else (None, start)
    equal(lambda v: one(LAYER(v)), lambda v: other(LAYER(v)), x, starts)


def test_products_and_norms_have_naive_twins():
    x = pair(2, 3)
    columns = [naive.lin(lambda v, i=i: v[:, i], x) for i in range(3)]
    same(traced(lambda v: v.prod(1), x), functools.reduce(naive.mul, columns))
    squares = naive.lin(lambda v: v.sum(1), naive.act(torch.square, x))
    same(
        traced(lambda v: v.norm(dim=1) * 1.5, x),
        naive.lin(lambda v: v * 1.5, naive.act(lambda v: v.clamp_min(0).sqrt(), squares)),
    )


@pytest.mark.parametrize("two_ways", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_packed_sequences_are_each_sequence_alone(kind, two_ways):
    torch.manual_seed(0)
    net, lengths = kind(3, 2, 2, batch_first=True, bidirectional=two_ways), [2, 4, 3]

    def packed(x):
        out, state = net(pack_padded_sequence(x, torch.tensor(lengths), True, enforce_sorted=False))
        padded, _ = pad_packed_sequence(out, True, padding_value=0.5)
        state = state[0] if kind is nn.LSTM else state
        return (padded * 2).sum((1, 2)) + state.transpose(0, 1).flatten(1).square().sum(1)

    def alone(x, length):
        out, state = net(x[:, :length])
        state = state[0] if kind is nn.LSTM else state
        padding = 0.5 * 2 * (max(lengths) - length) * out.shape[-1]
        return (out * 2).sum((1, 2)) + state.transpose(0, 1).flatten(1).square().sum(1) + padding

    x, start = torch.randn(3, 4, 3), torch.randn(3, 4, 3)
    for netting in ("path", "feature", "unit"):
        for reference in (None, start):
            e = CAFE(packed, variant="published", netting=netting).explain(x, reference)
            for row, length in enumerate(lengths):
                part = None if reference is None else reference[row : row + 1]
                f = CAFE(functools.partial(alone, length=length), variant="published", netting=netting).explain(
                    x[row : row + 1], part
                )
                for name in PARTS:
                    torch.testing.assert_close(getattr(e, name)[row], getattr(f, name)[0], atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("two_ways", [False, True])
def test_projected_states(two_ways):
    """The cell equations, followed by a linear map of the state."""
    torch.manual_seed(0)
    net = nn.LSTM(3, 4, proj_size=2, batch_first=True, bidirectional=two_ways)

    def unrolled(x):
        outputs = []
        for suffix, order in (("", range(3)), ("_reverse", (2, 1, 0)))[: 1 + two_ways]:
            weights = [
                getattr(net, part + "_l0" + suffix) for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
            ]
            h, memory, made = torch.zeros(len(x), 2), torch.zeros(len(x), 4), {}
            for t in order:
                gates = F.linear(x[:, t], weights[0], weights[2]) + F.linear(h, weights[1], weights[3])
                i, f, g, o = gates.chunk(4, 1)
                memory = torch.sigmoid(f) * memory + torch.sigmoid(i) * torch.tanh(g)
                h = made[t] = F.linear(torch.sigmoid(o) * torch.tanh(memory), weights[4])
            outputs.append(torch.stack([made[t] for t in range(3)], 1))
        return torch.cat(outputs, -1).flatten(1) @ torch.linspace(-1, 1, 6 * (1 + two_ways))

    x, start = torch.randn(2, 3, 3), torch.randn(2, 3, 3)
    equal(lambda v: net(v)[0].flatten(1) @ torch.linspace(-1, 1, 6 * (1 + two_ways)), unrolled, x, (None, start))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("last", [False, True])
def test_bags_by_offsets_are_bags_by_rows(mode, last):
    torch.manual_seed(0)
    bag, head = nn.EmbeddingBag(20, 3, mode=mode, padding_idx=0, include_last_offset=last), nn.Linear(3, 1)
    ids, start = torch.randint(1, 20, (3, 4)), torch.randint(1, 20, (3, 4))
    ids[0, 1:3] = start[0, 1:3] = 0
    offsets = torch.arange(0, 13 if last else 12, 4)
    weights = torch.rand(3, 4) if mode == "sum" else None

    def flat(x):
        shares = None if weights is None else weights[: len(x)].flatten()
        return head(torch.tanh(bag(x.flatten(), offsets[: len(x) + last], shares)))

    by_rows = nn.EmbeddingBag(20, 3, mode=mode, padding_idx=0, _weight=bag.weight)  # its rows need no last offset
    equal(flat, lambda x: head(torch.tanh(by_rows(x, None, weights))), ids, (None, start))


def test_bags_of_different_sizes():
    bag = nn.EmbeddingBag(20, 3, mode="max")
    ids = torch.randint(1, 20, (1, 5))
    e = CAFE(lambda x: bag(x[0], torch.tensor([0, 2, 2])).sum()[None]).explain(ids)
    table = bag.weight.detach()[ids[0]]
    expected = table[:2].amax(0).sum() + table[2:].amax(0).sum()  # the bag in the middle is empty
    torch.testing.assert_close(e.output, expected[None])
    torch.testing.assert_close(e.combined.sum(), expected)


@pytest.mark.parametrize("low", [-torch.inf, torch.finfo(torch.float64).min])
def test_what_a_mask_puts_out_never_is_the_largest(low):
    mask, layer = torch.tensor([0.0, 0, 0, low, low]).double(), nn.Linear(4, 5).double()
    x, start = torch.randn(3, 4).double(), torch.randn(3, 4).double()
    equal(lambda v: (layer(v) + mask).amax(1), lambda v: layer(v)[:, :3].amax(1), x, (None, start))
    equal(lambda v: layer(v).masked_fill(mask < 0, low).max(1).values, lambda v: layer(v)[:, :3].amax(1), x, (None, start))


def test_sequences_side_by_side():
    layer, x, start = nn.Linear(4, 5).double(), torch.randn(3, 4).double(), torch.randn(3, 4).double()

    def padded(v):
        parts = [torch.tanh(layer(v[:, :, None].expand(-1, -1, 4)))[:, :n].transpose(0, 1) for n in (2, 4)]
        return nn.utils.rnn.pad_sequence(parts, padding_value=0.5).permute(2, 1, 0, 3).flatten(1).square().sum(1)

    def written_out(v):
        h = torch.tanh(layer(v[:, :, None].expand(-1, -1, 4)))
        return torch.cat([F.pad(h[:, :2], (0, 0, 0, 2), value=0.5), h], 1).flatten(1).square().sum(1)

    equal(padded, written_out, x, (None, start))


def test_out_that_is_none_is_no_argument():
    layer, x = nn.Linear(4, 5).double(), torch.randn(3, 4).double()
    equal(lambda v: torch.mean(layer(v), dim=1, out=None), lambda v: layer(v).mean(1), x, (None,))


def test_an_expert_that_gets_nothing():
    layer, x = nn.Linear(4, 4).double(), torch.randn(3, 4).double()

    def routed(v):
        h = layer(v)
        none = h[torch.zeros(0, dtype=torch.long)]
        none = none * torch.rsqrt(none.square().mean(-1, keepdim=True) + 1e-6)
        return h.index_add(0, torch.zeros(0, dtype=torch.long), none).sum(1)

    equal(routed, lambda v: layer(v).sum(1), x, (None,))


def test_views_of_what_lies_otherwise_in_memory():
    """What is inside may lie otherwise than the value of the model, of which a view can be taken."""
    x = pair(2, 3, 4)
    across = naive.Pair(*(part.transpose(1, 2) for part in (x.reference, x.positive, x.negative)))
    flat = naive.Pair(*(part.reshape(2, 12) for part in (across.reference, across.positive, across.negative)))
    same(traced(lambda v: v.view(2, 12), across), flat)
