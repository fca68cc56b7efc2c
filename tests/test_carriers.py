"""The rules speak only the primitives of the scored value: a second carrier runs through them untouched."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import models
from cafexai import CAFE
from cafexai.scores import Run
from cafexai.tensors import Scored
from cafexai.trace import Trace
from feature_carrier import FeatureScores


def shares(model, x, reference, c):
    run = Run(len(x), lambda path: c)
    trace = Trace(run, FeatureScores, dict)
    with trace:
        output = model(Scored(FeatureScores.of_input(run, x, reference), x.dtype))
    assert not trace.problems
    return output.state


CASES = {
    "mlp": (lambda: models.mlp(4, 8, 8, 2, activation=nn.GELU), (3, 4)),
    "cnn": (lambda: models.with_statistics(models.ResidualCNN(2, (1, 1)), 4, 3, 16, 16), (2, 3, 8, 8)),
    "mixed": (lambda: models.with_statistics(models.Mixed(), 4, 1, 8, 8), (2, 1, 8, 8)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("zero", [True, False])
def test_contributions_add_up(name, zero):
    torch.manual_seed(0)
    build, shape = CASES[name]
    model, x = build(), torch.randn(shape)
    reference = None if zero else torch.randn(shape)
    state = shares(model, x, reference, 0.7)
    torch.testing.assert_close(state.value, model(x).detach())
    explained = CAFE(model, 0.7).explain(x, baselines=reference, target=1)
    start = 0 if state.reference is None else state.reference[:, 1]
    torch.testing.assert_close(torch.zeros(len(x)) + start, explained.baseline_output)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.GELU])
@pytest.mark.parametrize("c", [0.0, 0.5, 1.0])
def test_with_one_hidden_layer_both_carriers_agree(activation, c):
    torch.manual_seed(1)
    model, x, reference = models.mlp(5, 16, 3, activation=activation), torch.randn(4, 5), torch.randn(4, 5)
    state = shares(model, x, reference, c)
    explained = CAFE(model, c).explain(x, baselines=reference, target=2)
    torch.testing.assert_close(state.shares[:-1, :, 2].T.detach(), explained.combined)
    torch.testing.assert_close(state.shares[-1, :, 2].detach(), explained.bias)
