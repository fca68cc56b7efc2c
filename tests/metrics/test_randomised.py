"""Scores of a model with random weights: against a loop, on a trained model, and as a table and a picture."""

import copy

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from cafexai import CAFE
from cafexai.metrics import randomised
from cafexai.metrics.randomised import Randomised
from plotting.test_presentation import texts


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 12), nn.GELU(), nn.Linear(12, 3)).double().eval()


@pytest.mark.parametrize("independent", [False, True])
def test_every_step_is_that_of_a_loop(independent):
    model, x = net(), torch.randn(4, 6, dtype=torch.float64)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    cafe = CAFE(model, c=0.25)
    found = randomised(cafe, x, independent=independent, seed=3, show_progress=False)
    assert found.layers == ("4", "2", "0")
    e = cafe.explain(x)
    generator, other = torch.Generator().manual_seed(3), copy.deepcopy(model)
    for place, layer in enumerate(found.layers):
        other = copy.deepcopy(model) if independent else other
        for parameter in (other.get_submodule(layer).weight, other.get_submodule(layer).bias):
            flat = parameter.data.flatten()
            parameter.data = flat[torch.randperm(len(flat), generator=generator)].view_as(parameter)
        new = CAFE(other, c=0.25).explain(x, target=e.target[:, 0])
        pairs = {"net": (e.net, new.net), "|net|": (e.net.abs(), new.net.abs())}
        pairs |= {"positive": (e.positive, new.positive), "negative": (e.negative, new.negative)}
        for view, (one, two) in pairs.items():
            expected = [spearmanr(a.numpy(), b.numpy()).statistic for a, b in zip(one, two, strict=True)]
            np.testing.assert_allclose(found.similarity[view][place].numpy(), expected, atol=1e-10)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_features_as_in_the_baseline_do_not_count():
    x = torch.randn(3, 6, dtype=torch.float64)
    x[:, 4:] = 0
    cafe = CAFE(net())
    found = randomised(cafe, x, seed=1, show_progress=False)

    class Four(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = net()

        def forward(self, rows):
            return self.inside(torch.cat([rows, torch.zeros_like(rows[:, :2])], 1))

    four = randomised(CAFE(Four()), x[:, :4], seed=1, show_progress=False)
    for view in found.similarity:
        torch.testing.assert_close(found.similarity[view], four.similarity[view])


def test_a_view_that_stays_is_named():
    alike = {"net": torch.tensor([[0.9, 0.8], [0.1, -0.1]]), "positive": torch.tensor([[0.9, 0.8], [0.9, 0.7]])}
    found = Randomised(("2", "0"), alike, False)
    assert len(found.notes) == 1
    assert found.notes[0].startswith("The positive scores look much the same")
    assert "0.80" in found.notes[0]
    assert Randomised(("2", "0"), alike, True).notes == ()
    assert found.to_frame().loc["0", "positive"] == pytest.approx(0.8)
    assert found.notes[0] in str(found)
    assert "random from the output to this layer" in texts(found.plot())


def test_groups_and_outputs_of_more_dimensions():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = net()
            self.scale = nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))

        def forward(self, x):
            return self.inside(x)[:, :, None] * self.scale

    groups = {"first": [0, 1], "second": [2, 3]}
    x = torch.randn(3, 6, dtype=torch.float64)
    found = randomised(CAFE(Two()), x, target=(1, 0), feature_groups=groups, show_progress=False)
    assert found.layers == ("inside.4", "inside.2", "inside.0", "the model")
    assert found.similarity["net"].shape == (4, 3)


def test_what_cannot_be_randomised_is_refused():
    with pytest.raises(ValueError, match="no parameters"):
        randomised(CAFE(nn.ReLU()), torch.rand(2, 4), target=0)
    with pytest.raises(ValueError, match="at least three features"):
        randomised(CAFE(nn.Linear(2, 1)), torch.rand(2, 2))
