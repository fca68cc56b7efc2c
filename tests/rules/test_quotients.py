"""Masked, scattered and scaled weights that are written out: open, and held against the definition in float64."""

import pytest
import torch
import torch.nn.functional as F

from cafexai import CAFE, Variant

WIDTH = 6
MASK = torch.tensor([[1, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]], dtype=torch.bool)  # rows of patterns
INDEX = torch.tensor([0, 1, 0, 2, 1, 0])  # groups


@pytest.fixture(autouse=True)
def _exact():
    before = torch.get_default_dtype()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def over_sum(e, more=0.0):
    return e / (e.sum(-1, keepdim=True) + more)


def shifted(x):
    return (x - x.amax(-1, keepdim=True)).exp()


def in_place(x):
    e = x.exp()
    e.masked_fill_(~MASK, 0)
    e[..., 0] = 0  # assigned
    e /= e.sum(-1, keepdim=True).clamp_min(1e-30)
    return e


def scattered(x, detached=False):
    """As PyTorch Geometric does: along one dimension, by an index."""
    like = x.detach() if detached else x
    top = x.new_zeros(*x.shape[:2], 3).scatter_reduce(2, INDEX.expand_as(x), like, "amax", include_self=False)
    e = (x - top[..., INDEX]).exp()
    total = x.new_zeros(*x.shape[:2], 3).scatter_add_(2, INDEX.expand_as(x), e) + 1e-16
    return e / total.index_select(2, INDEX)


def hidden(x):
    """Minus infinity; the row without any key is clamped."""
    e = x.masked_fill(~MASK, -torch.inf).exp()
    return e / e.sum(-1, keepdim=True).clamp_min(1e-30)


# model, mask, groups, and the constant in the denominator
FIRST = MASK & (torch.arange(WIDTH) > 0)
ALL, ONE = torch.ones(3, WIDTH, dtype=torch.bool), torch.zeros(WIDTH, dtype=torch.long)
SPELLINGS = {
    "exp * mask / sum": (lambda x: (lambda e: e / e.sum(-1, keepdim=True).clamp_min(1e-30))(x.exp() * MASK), MASK, ONE, 0),
    "where": (lambda x: over_sum(torch.where(MASK, x.exp(), 0), 1e-30), MASK, ONE, 0),
    "masked_fill": (lambda x: over_sum(shifted(x).masked_fill(~MASK, 0), 1e-30), MASK, ONE, 0),
    "times the inverse": (lambda x: (lambda e: e * (1 / (e.sum(-1, keepdim=True) + 1e-30)))(x.exp() * MASK), MASK, ONE, 0),
    "F.normalize": (lambda x: F.normalize(x.exp() * MASK, p=1, dim=-1), MASK, ONE, 0),
    "in place": (in_place, FIRST, ONE, 0),
    "minus infinity": (hidden, MASK, ONE, 0),
    "2 ** x": (lambda x: over_sum(torch.exp2(x / torch.log(torch.tensor(2.0)).item()) * MASK, 1e-30), MASK, ONE, 0),
    "by an index": (scattered, ALL, INDEX, 0),
    "by an index, detached": (lambda x: scattered(x, True), ALL, INDEX, 0),
    "constant": (lambda x: over_sum(x.exp(), 0.7), ALL, ONE, 0.7),
    "softmax1": (lambda x: (lambda e: e / (1 + e.sum(-1, keepdim=True)))(x.exp()), ALL, ONE, 1.0),
    "constant and mask": (lambda x: over_sum(x.exp() * MASK, 0.7), MASK, ONE, 0.7),
}


def secant(p, r):
    mean = torch.where(p == r, p, (p - r) / (p.log() - r.log()))
    return torch.diag(mean) - torch.outer(mean, mean) / mean.sum()


def naive(x, start, weight, mask, groups, constant):
    """Scores of one pattern: a softmax in every group, the constant being one more logit."""
    scores = torch.zeros_like(x)
    for group in groups.unique():
        places = ((groups == group) & mask).nonzero()[:, 0]
        if len(places):
            more = torch.tensor([constant]).log() if constant else torch.zeros(0)
            p, r = (torch.cat([v[places], more]).softmax(0) for v in (x, start))
            change = torch.cat([x[places] - start[places], torch.zeros(len(more))])
            scores[places] = (torch.cat([weight[places], torch.zeros(len(more))]) @ secant(p, r) * change)[: len(places)]
    return scores


@pytest.mark.parametrize("netting", ["unit", "feature"])
@pytest.mark.parametrize("name", SPELLINGS)
def test_equals_its_naive_twin(name, netting):
    model, mask, groups, constant = SPELLINGS[name]
    weight = torch.randn(3, WIDTH)
    x, start = 3 * torch.randn(2, 2, 3, WIDTH)
    e = CAFE(lambda v: (model(v) * weight).sum((1, 2)), variant=Variant(netting=netting)).explain(x, start)
    for row in range(2):
        expected = [naive(x[row, i], start[row, i], weight[i], mask[i], groups, constant) for i in range(3)]
        torch.testing.assert_close(e.combined[row], torch.stack(expected), rtol=1e-10, atol=1e-12)
    changes = ((model(x) - model(start)) * weight).sum((1, 2))
    torch.testing.assert_close(e.combined.sum((1, 2)), changes, rtol=1e-10, atol=1e-12)
    assert [line for line in e.frozen if "detach" not in line] == []


@pytest.mark.parametrize("name", SPELLINGS)
def test_single_precision_far_logits_and_equal_ends(name):
    torch.set_default_dtype(torch.float32)
    model, weight, x = SPELLINGS[name][0], torch.randn(3, WIDTH), 10 * torch.randn(2, 3, WIDTH)
    for start in (torch.zeros(2, 3, WIDTH), -x, x):
        e = CAFE(lambda v: (model(v) * weight).sum((1, 2))).explain(x, start)
        changes = ((model(x) - model(start)) * weight).sum((1, 2))
        torch.testing.assert_close(e.combined.sum((1, 2)), changes, rtol=1e-4, atol=1e-5)


def test_weights_that_are_scaled_to_a_sum_of_1_are_a_quotient_in_halves():
    """Experts that are chosen by a mask or by their weights; n = a / b changes by (da - n_bar db) / b_bar."""
    mask, weight = torch.tensor([1.0, 0, 1, 1, 0, 1]), torch.randn(WIDTH)
    x, start = torch.randn(2, 1, WIDTH)
    for epsilon in (0.0, 1e-9):
        e = CAFE(lambda v, more=epsilon: (over_sum(v.softmax(1) * mask, more) * weight).sum(1)).explain(x, start)
        p, r = (v.softmax(1)[0] for v in (x, start))
        b, s = (p * mask).sum() + epsilon, (r * mask).sum() + epsilon
        change = (torch.eye(WIDTH) - torch.outer((p * mask / b + r * mask / s) / 2, torch.ones(WIDTH))) * 2 / (b + s)
        expected = weight @ (change * mask) @ secant(p, r) * (x - start)[0]
        torch.testing.assert_close(e.combined[0], expected, rtol=1e-10, atol=1e-12)
        assert e.frozen == ()

    def chosen(v):
        best = v.softmax(1).topk(3, 1)
        return ((best.values / best.values.sum(1, keepdim=True)) * torch.arange(3)).sum(1)

    e = CAFE(chosen).explain(x, start)
    assert not any("denominator" in line or "softmax" in line for line in e.frozen)


def test_rows_joined_by_an_index_stay_frozen():
    """Entries of several rows in one group: what a row does there is not its own."""
    index = torch.tensor([0, 0, 1])

    def model(v):
        e = v.exp()
        total = torch.zeros(2, WIDTH).index_add(0, index, e)
        return ((e / total[index]) * v).sum(1)

    e = CAFE(model).explain(torch.randn(3, WIDTH), batch_size=3)
    assert any("softmax (exp / sum)" in line for line in e.frozen)


def test_frozen_where_the_variant_says_so():
    x = torch.randn(2, 3, WIDTH)
    for variant in (Variant.preset("published"), Variant(attention="frozen")):
        for name in ("exp * mask / sum", "by an index"):
            model = SPELLINGS[name][0]
            e = CAFE(lambda v, model=model: (model(v) * v).sum((1, 2)), variant=variant).explain(x)
            assert any("softmax (exp / sum)" in line for line in e.frozen)
