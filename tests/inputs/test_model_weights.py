"""No weight of an earlier call is ever used again."""

from __future__ import annotations

import pytest
import torch

import models
from cafexai import CAFE


def optimised(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def replaced(model):
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter)


def written_through_numpy(model):
    model[2].weight.detach().numpy()[:] *= -3


CHANGES = {
    "data.mul_": lambda model: model[2].weight.data.mul_(3),
    "copy_": lambda model: torch.nn.init.normal_(model[2].weight),
    "fused optimizer": optimised,
    "data replaced": replaced,
    "numpy": written_through_numpy,
    "load_state_dict": lambda model: model.load_state_dict(models.mlp(5, 8, 8, 3).state_dict()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_are_seen(change):
    model, x = models.mlp(5, 8, 8, 3), torch.randn(20, 5)
    cafe = CAFE(model)
    before = cafe.explain(x, target=1)
    CHANGES[change](model)
    after = cafe.explain(x, target=1)
    fresh = models.mlp(5, 8, 8, 3)
    fresh.load_state_dict(model.state_dict())
    assert not torch.allclose(after.positive, before.positive)
    assert torch.equal(after.positive, CAFE(fresh).explain(x, target=1).positive)
    assert torch.equal(after.negative, CAFE(fresh).explain(x, target=1).negative)
