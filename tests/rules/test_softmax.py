"""Open attention: the softmax along its log-mean secant, held against the definition in float64."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from cafexai import CAFE, Variant
from cafexai.rules.softmax import log_mean


@pytest.fixture(autouse=True)
def _exact():
    before = torch.get_default_dtype()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def secant(p, r):
    """The definition: l = (P - P_r) / (log P - log P_r), and P - P_r = l (dL - sum l dL / sum l). (n, n)"""
    mean = torch.where(p == r, p, (p - r) / (p.log() - r.log()))
    return torch.diag(mean) - torch.outer(mean, mean) / mean.sum()


def naive(logits, reference, values, weight):
    """Net scores of logits that a linear head sums: weight . softmax(logits), one row."""
    p, r = logits.softmax(0), reference.softmax(0)
    return (weight @ secant(p, r)) * (logits - reference)


@pytest.mark.parametrize("seed", range(5))
def test_equals_its_naive_twin(seed):
    torch.manual_seed(seed)
    weight, x, start = torch.randn(6), 3 * torch.randn(1, 6), 3 * torch.randn(1, 6)
    e = CAFE(lambda v: (v.softmax(1) * weight).sum(1)).explain(x, start)
    torch.testing.assert_close(e.combined[0], naive(x[0], start[0], None, weight), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(e.combined.sum(1), (x.softmax(1) - start.softmax(1)) @ weight, rtol=1e-10, atol=1e-12)
    assert e.frozen == ()


def test_attention_equals_its_naive_twin():
    """Products in halves and the secant, written out for one query."""
    q, k, v, q0, k0, v0 = (torch.randn(1, 3) if i % 3 == 0 else torch.randn(4, 3) for i in range(6))
    scale, end = 3**-0.5, torch.randn(3)
    p, r = ((a @ b.T * scale).softmax(1)[0] for a, b in ((q, k), (q0, k0)))
    to_pattern = (v + v0) / 2 @ end
    to_logits = secant(p, r) @ to_pattern
    expected_q = scale * (to_logits @ ((k + k0) / 2)) * (q - q0)[0]
    expected_k = scale * to_logits[:, None] * (((q + q0) / 2) * (k - k0))
    expected_v = ((p + r) / 2)[:, None] * end * (v - v0)
    e = CAFE(lambda a, b, c: F.scaled_dot_product_attention(a, b, c)[:, 0] @ end).explain(
        (q[None], k[None], v[None]), (q0[None], k0[None], v0[None])
    )
    for found, expected in zip(e.combined, (expected_q, expected_k, expected_v), strict=True):
        torch.testing.assert_close(found[0].squeeze(), expected.squeeze(), rtol=1e-10, atol=1e-12)


@given(st.lists(st.floats(-40, 40), min_size=1, max_size=6), st.floats(-5, 5))
def test_blind_to_a_shift_and_symmetric(logits, shift):
    x = torch.tensor([logits], dtype=torch.float64)
    start = torch.linspace(-2, 3, x.shape[1], dtype=torch.float64)[None]
    weight = torch.linspace(1, 2, x.shape[1], dtype=torch.float64) ** 2

    def model(v):
        return (v.softmax(1) * weight).sum(1)

    e, back = CAFE(model).explain(x, start), CAFE(model).explain(start, x)
    torch.testing.assert_close(e.combined, -back.combined, rtol=1e-9, atol=1e-10)
    moved = CAFE(lambda v: model(v + shift)).explain(x, start)
    torch.testing.assert_close(e.combined, moved.combined, rtol=1e-9, atol=1e-10)
    order = torch.randperm(x.shape[1])
    again = CAFE(lambda v: (v.softmax(1) * weight[order]).sum(1)).explain(x[:, order], start[:, order])
    torch.testing.assert_close(again.combined, e.combined[:, order], rtol=1e-9, atol=1e-10)


def test_no_coefficient_is_above_1():
    p, r = torch.rand(1000, 7).softmax(1), (30 * torch.randn(1000, 7)).softmax(1)
    mean = log_mean(p, r, p.log() - r.log())
    assert (mean <= torch.maximum(p, r) + 1e-12).all()
    assert (mean >= torch.minimum(p, r) - 1e-12).all()


def test_log_mean_at_equal_close_and_vanishing_numbers():
    p = torch.tensor([0.5, 0.5, 0.0, 0.3], dtype=torch.float32)
    r = torch.tensor([0.5, 0.5 * (1 + 1e-7), 0.0, 0.0], dtype=torch.float32)
    difference = torch.tensor([0.0, -1e-7, float("nan"), float("inf")], dtype=torch.float32)
    found = log_mean(p, r, difference)
    torch.testing.assert_close(found, torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=torch.float32))


def test_at_equal_ends_it_is_the_jacobian_and_scores_vanish():
    x = torch.randn(2, 5)
    e = CAFE(lambda v: (v.softmax(1) * torch.eye(5)[0]).sum(1)).explain(x, x)
    assert not e.combined.any()
    close = CAFE(lambda v: (v.softmax(1) * torch.eye(5)[0]).sum(1)).explain(x, x - 1e-9 * torch.ones(5) * torch.arange(5))
    p = x.softmax(1)
    slope = p[:, :1] * (F.one_hot(torch.tensor(0), 5) - p)
    torch.testing.assert_close(close.combined / 1e-9, slope * torch.arange(5), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("causal", [False, True])
def test_masks_one_key_and_rows_without_any_key(dtype, causal):
    torch.set_default_dtype(dtype)
    layer = nn.Linear(4, 12)

    def model(x, mask):
        q, k, v = layer(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal and mask is None).sum((1, 2))

    x, start = torch.randn(2, 5, 4), torch.randn(2, 5, 4)
    mask = torch.rand(2, 5, 5) > 0.4
    mask[0, 2] = False  # a row without any key
    mask[1, 3] = torch.arange(5) == 1  # one key
    for one in (None,) if causal else (mask, torch.zeros(2, 5, 5).masked_fill(~mask, -torch.inf)):
        e = CAFE(lambda v, one=one: model(v, one).nan_to_num(0)).explain(x, start)
        assert e.combined.isfinite().all()
        torch.testing.assert_close(e.combined.sum((1, 2)), e.output - e.baseline_output, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_logits_do_not_underflow(dtype):
    x = torch.tensor([[200.0, -200.0, 0.0]], dtype=dtype)
    e = CAFE(lambda v: v.softmax(1)[:, 1] * 3 + v.softmax(1)[:, 0]).explain(x, -x)
    assert e.combined.isfinite().all()
    torch.testing.assert_close(e.combined.sum(1), e.output - e.baseline_output)


def test_multi_head_attention_is_the_written_one():
    layer = nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True).eval()
    x, start = torch.randn(3, 4, 8), torch.randn(3, 4, 8)
    end = torch.randn(8)
    e = CAFE(lambda v: (layer(v, v, v)[0] @ end).sum(1)).explain(x, start)
    at_baseline = (layer(start, start, start)[0] @ end).sum(1)
    assert e.frozen == ()
    torch.testing.assert_close(e.baseline_output, at_baseline.detach())
    torch.testing.assert_close(e.combined.sum((1, 2)), e.output - e.baseline_output)
    weights = CAFE(lambda v: (layer(v, v, v)[1] * torch.arange(6)).sum((1, 2))).explain(x, start)
    assert weights.combined.abs().max() > 1e-3  # weights that a model uses further have scores
    assert weights.frozen == ()


def test_frozen_where_the_variant_says_so():
    x = torch.randn(2, 5)
    for variant in (Variant.preset("published"), Variant(netting="path"), Variant(attention="frozen")):
        assert any("softmax" in line for line in CAFE(lambda v: (v.softmax(1) * v).sum(1), variant=variant).explain(x).frozen)
    with pytest.raises(ValueError, match=r'netting=.path. needs attention="frozen"'):
        Variant(netting="path", attention="open")


@pytest.mark.parametrize("end", [lambda v: v.softmax(1), lambda v: v.log_softmax(1)])
def test_a_final_softmax_is_left_out(end):
    layer, x = nn.Linear(4, 3), torch.randn(2, 4)
    e, logits = CAFE(lambda v: end(layer(v))).explain(x, target=1), CAFE(layer).explain(x, target=1)
    torch.testing.assert_close(e.combined, logits.combined)
    assert e.meta.final == "softmax"


def test_log_softmax_inside_a_model():
    x, start = torch.randn(2, 5), torch.randn(2, 5)
    weight = torch.randn(5)
    e = CAFE(lambda v: (v.log_softmax(1) * weight).sum(1)).explain(x, start)
    torch.testing.assert_close(e.combined.sum(1), (x.log_softmax(1) - start.log_softmax(1)) @ weight)
    assert e.frozen == ()
