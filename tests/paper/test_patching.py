"""Patching of layers: the effect by hand, and the study on a small encoder."""

import pytest
import torch
from torch import nn

from cafexai import CAFE
from cafexai.methods import METHODS
from cafexai.methods.transformers import layer_coefficients
from cafexai.paper.studies.patching import patch


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.mix, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        h = x + torch.tanh(self.first(x))
        return self.last((h + self.mix(torch.tanh(h))).mean(1))


def test_patching_replaces_one_position():
    model, x, other = Small().eval(), torch.randn(1, 3, 4), torch.randn(1, 3, 4)
    there = model.first(other).detach()
    effects = patch(model, x, "first", there)
    for position in range(3):
        value = model.first(x).clone()
        value[:, position] = there[:, position]
        h = x + torch.tanh(value)
        changed = model.last((h + model.mix(torch.tanh(h))).mean(1))
        torch.testing.assert_close(effects[position], (model(x) - changed)[0, 0].detach())
    whole = CAFE(model).explain_layer(x, "first", there, 0).combined
    torch.testing.assert_close(whole[0].sum(-1), effects)  # positions do not meet in this network


@pytest.mark.parametrize("name", ["cp_lrp", "attn_lrp", "gim"])
def test_coefficients_of_a_layer_are_those_of_what_follows(name):
    body, head = nn.Linear(4, 5), nn.Sequential(nn.GELU(), nn.Linear(5, 2))
    model, x = nn.Sequential(body, head).eval(), torch.randn(3, 4)
    inner = body(x).detach()
    expected = METHODS[name](head, inner, target=1)
    torch.testing.assert_close(layer_coefficients(name, model, x, "0", 1) * inner, expected)
