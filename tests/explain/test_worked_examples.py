"""Examples of the paper with known answers, to 1e-9 in float64."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import models
import naive
from cafexai import CAFE
from cafexai._core.activation import flows
from cafexai._core.flow_rule import FlowRule


def explain(f, x, c, reference=None):
    return CAFE.published(f, c).explain(torch.tensor([x]), baselines=None if reference is None else torch.tensor([reference]))


def same(found, expected):
    torch.testing.assert_close(found.flatten(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-9)


def test_score_explosion_of_a_gelu_unit():
    def unit(x):
        return F.gelu(50 * x[:, 0] - 51 * x[:, 1])

    low = explain(unit, [2.0, 2.0], 0.0, [1.0, 1.0])
    same(low.positive, [0, 0.1586552539])
    same(low.negative, [0.0455002639, 0])
    high = explain(unit, [2.0, 2.0], 1.0, [1.0, 1.0])
    same(high.positive, [49.1586552539, 0.1586552539])
    same(high.negative, [0.0455002639, 49.1586552539])
    same(high.baseline_output, [-0.1586552539])


def test_flows_of_the_gelu_unit_of_the_figure():
    """Reference 0, positive inputs 0.5, negative inputs -1.5: the figure of the paper, and all eight flows."""

    def gelu(x):
        return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))

    at = {"ref": 0.0, "comb": gelu(-1.0), "pos": gelu(0.5), "neg": gelu(-1.5)}
    observed, cancelled_positive, cancelled_negative = at["comb"], at["pos"], at["neg"] - at["comb"]
    same(torch.tensor([observed, cancelled_positive, cancelled_negative]).round(decimals=4), [-0.1587, 0.3457, 0.0584])
    expected = {
        "peak++": cancelled_positive,
        "peak--": -observed + cancelled_positive,
        "peak+-": cancelled_negative,
        "peak-+": cancelled_negative,
        "linear++": 0.5 * -observed,
        "linear--": 1.5 * -observed,
        "linear+-": 0.0,
        "linear-+": 0.0,
    }
    twin = naive.flows(0.0, 0.5, 1.5, at.__getitem__)
    for name, value in expected.items():
        assert twin[name] == pytest.approx(value, abs=1e-12), name
    delta, total = torch.tensor([-1.0]), torch.tensor([2.0])
    for c in (0.0, 0.25, 1.0):
        change, along, against, _ = flows(delta, total, (), F.gelu, FlowRule(c=c))
        same(change, [observed])
        same(along, [(1 - c) * expected["linear++"] + c * expected["peak++"]])
        same(-against, [c * expected["peak+-"]])


def test_xnor():
    result = explain(lambda x: 1 - F.relu(x[:, 0] - x[:, 1]) - F.relu(x[:, 1] - x[:, 0]), [1.0, 1.0], 1.0)
    same(result.positive, [1, 1])
    same(result.negative, [1, 1])
    same(result.bias_positive, [1])
    same(result.bias_negative, [0])
    same(result.s_conf, [2])


@pytest.mark.parametrize(("second", "negative"), [(-1.01, 1.0), (-0.99, 0.99)])
def test_no_discontinuity_at_the_kink(second, negative):
    result = explain(lambda x: F.relu(x.sum(1)), [1.0, second], 1.0)
    same(result.positive, [1, 0])
    same(result.negative, [0, negative])


def test_overestimate_that_the_paper_names():
    result = explain(lambda x: F.relu(-F.relu(1 - x[:, 0])), [1.0], 1.0)
    same(result.combined, [1])
    same(result.bias, [-1])


def test_masked_by_non_monotonicity():
    result = explain(lambda x: F.gelu(x.sum(1)), [-2.0, -5.0], 1.0)
    assert result.positive.abs().max() < 1e-9
    assert result.negative.abs().max() < 1e-9


@pytest.mark.parametrize("bias", [False])
@pytest.mark.parametrize("widths", [(6, 16, 3), (6, 16, 16, 16, 3)])
def test_c_0_is_gradient_times_input_without_biases(widths, bias):
    model, x = models.mlp(*widths, bias=bias), torch.randn(20, 6)
    leaf = x.clone().requires_grad_()
    model(leaf)[:, 1].sum().backward()
    result = CAFE.published(model, 0.0).explain(x, target=1)
    torch.testing.assert_close(result.combined, leaf.grad * x, rtol=0, atol=1e-12)
    assert result.bias_by_layer == {}


def test_linear_model_is_weight_times_change():
    model, x, reference = nn.Linear(3, 1), torch.randn(5, 3), torch.randn(5, 3)
    result = CAFE.published(model).explain(x, baselines=reference)
    share = (model.weight * (x - reference)).detach()
    torch.testing.assert_close(result.positive, share.clamp_min(0))
    torch.testing.assert_close(result.negative, (-share).clamp_min(0))
    torch.testing.assert_close(result.bias, model.bias.detach().expand(5))
