"""Every class, or several values of c, in one call: the same as separate calls."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import models
from cafexai import CAFE, Explanation, Explanations

FIELDS = ("positive", "negative", "combined", "output", "baseline_output", "bias", "target")


def same(one, two):
    for name in FIELDS:
        torch.testing.assert_close(getattr(one, name), getattr(two, name))
    assert list(one.bias_by_layer) == list(two.bias_by_layer)
    assert one.meta.settings == two.settings
    assert one.notes == two.notes
    assert one.frozen == two.frozen


class Two(nn.Module):
    """Two inputs, attention, a convolution, a final softmax."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.conv = nn.Conv1d(3, 3, 2)
        self.head = nn.Linear(14, 3)

    def forward(self, x, y):
        z = self.attention(x, x, x)[0]
        return torch.softmax(self.head(torch.cat([torch.tanh(self.conv(z)).flatten(1), nn.functional.relu(y)], 1)), 1)


MODELS = {
    "ReLU": (models.mlp(5, 8, 8, 3), lambda: torch.randn(6, 5)),
    "GELU": (models.mlp(5, 8, 8, 3, activation=nn.GELU), lambda: torch.randn(6, 5)),
    "two inputs": (Two().eval(), lambda: (torch.randn(6, 3, 4), torch.randn(6, 5))),
    "one output": (models.mlp(5, 8, 1), lambda: torch.randn(6, 5)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("baselines", [None, 0.3])
def test_all_classes_are_those_of_separate_calls(name, batch_size, baselines):
    model, make = MODELS[name]
    x, cafe = make(), CAFE(model.double())
    together = cafe.explain(x, baselines, "all", batch_size=batch_size)
    classes = 1 if name == "one output" else 3
    assert list(together) == list(range(classes))
    assert together.by == ("target",)
    for target in range(classes):
        same(together[target], cafe.explain(x, baselines, target, batch_size=batch_size, conflict="net"))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("baselines", [None, 0.3])
def test_several_c_are_those_of_separate_calls(name, batch_size, baselines):
    model, make = MODELS[name]
    x, model = make(), model.double()
    together = CAFE(model).explain(x, baselines, 0, c=[0, 0.5, 1.0], batch_size=batch_size)
    assert list(together) == [0, 0.5, 1.0]
    for c, explanation in together.items():
        same(explanation, CAFE(model, c).explain(x, baselines, 0, batch_size=batch_size, conflict="net"))


def test_c_and_classes_together_and_a_single_c():
    model, x = models.mlp(5, 8, 3), torch.randn(4, 5)
    together = CAFE(model).explain(x, target="all", c=(0.0, 1.0))
    assert len(together) == 6
    same(together[1.0, 2], CAFE(model, 1.0).explain(x, target=2, conflict="net"))
    one = CAFE(model).explain(x, c=0.25)
    assert isinstance(one, Explanation)
    same(one, CAFE(model, 0.25).explain(x))
    named = CAFE(model).explain(x, c=[{"1": 0.0}, {"1": 1.0}])
    same(named[1], CAFE(model, {"1": 1.0}).explain(x, conflict="net"))


def test_weights_that_are_made_anew_are_not_taken_for_others():
    """Layers whose weights live for a moment can have the address of those before them."""
    a, b = torch.randn(8, 8), torch.randn(8, 8)

    def model(x):
        for _ in range(3):
            x = torch.tanh(nn.functional.linear(x, a * 1.0)) + torch.relu(nn.functional.linear(x, b * 2.0, torch.ones(8)))
        return x

    x = torch.randn(16, 8)
    for c, explanation in CAFE(model).explain(x, target=1, c=[0.2, 0.8]).items():
        same(explanation, CAFE(model, c).explain(x, target=1, conflict="net"))
        explanation = CAFE(model, c).explain(x, target=1, check="each")


def test_the_collection_is_usable(tmp_path):
    model, x = models.mlp(5, 8, 3), torch.randn(4, 5)
    together = CAFE(model).explain(x, target="all", c=[0.0, 1.0], feature_groups={"first": [0, 1]})
    assert together.stack("positive").shape == (6, 4, 4)
    assert together.stack("conflict").shape == (6, 4)
    assert together.rows(slice(0, 2))[0.0, 1].positive.shape == (2, 4)
    frame = together.to_frame()
    assert list(frame.columns[:4]) == ["c", "target", "row", "feature"]
    assert len(frame) == 6 * 4 * 5
    together.save(tmp_path / "several.safetensors")
    again = Explanations.load(tmp_path / "several.safetensors")
    assert again.by == together.by
    for key, explanation in together.items():
        same(again[key], explanation)
        assert torch.equal(again[key].inputs, explanation.inputs)
    with pytest.raises(KeyError, match="one for each c and target"):
        together[0.5, 1]
    with pytest.raises(ValueError, match="not a tensor"):
        together.stack("frozen")
    with pytest.raises(ValueError, match=r"not written by Explanation\.save"):
        Explanation.load(tmp_path / "several.safetensors")
    assert "target" in repr(together)


def test_errors():
    model, x = models.mlp(5, 8, 3), torch.randn(4, 5)
    with pytest.raises(ValueError, match="use explain_classes"):
        CAFE(model).attribute(x, target="all")
    with pytest.raises(ValueError, match=r"\(rows, classes\)"):
        CAFE(lambda v: model(v)[:, None].expand(-1, 2, 3)).explain(x, target="all")
    with pytest.raises(ValueError, match="number between 0 and 1"):
        CAFE(model).explain(x, c=[0.5, 2])
    with pytest.raises(ValueError, match="at least one"):
        CAFE(model).explain(x, c=[])
