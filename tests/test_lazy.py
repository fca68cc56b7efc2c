"""Scores that nobody asks for are not computed, and nothing of a pass is left behind."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cafexai import CAFE
from cafexai._scores.path import PathScores
from cafexai._scores.run import Run


class Attention(nn.Module):
    """One layer makes queries, keys and values; or three layers do, with the same weights."""

    def __init__(self, together: bool, cut: str = "chunk") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cut = cut
        self.embed = nn.Linear(1, 6)
        self.qkv = nn.Linear(6, 18)
        self.q, self.k, self.v = (nn.Linear(6, 6) for _ in range(3))
        with torch.no_grad():
            for part, layer in zip(range(0, 18, 6), (self.q, self.k, self.v), strict=True):
                layer.weight.copy_(self.qkv.weight[part : part + 6])
                layer.bias.copy_(self.qkv.bias[part : part + 6])
        self.together = together
        self.out = nn.Linear(6, 2)
        self.double()

    def forward(self, x):
        h = torch.tanh(self.embed(x[..., None]))
        if not self.together:
            q, k, v = self.q(h), self.k(h), self.v(h)
        elif self.cut == "chunk":
            q, k, v = self.qkv(h).chunk(3, -1)
        elif self.cut == "slices":
            whole = self.qkv(h)
            q, k, v = whole[..., :6], whole[..., 6:12], whole[..., 12:]
        else:
            q, k, v = self.qkv(h).view(*h.shape[:2], 3, 6).unbind(2)
        return self.out(torch.relu(F.scaled_dot_product_attention(q, k, v))).mean(1)


@pytest.mark.parametrize("baselines", [None, 0.3])
@pytest.mark.parametrize("cut", ["chunk", "slices", "view"])
def test_columns_of_a_layer_are_layers(cut, baselines):
    x = torch.randn(5, 4, dtype=torch.float64)
    one, three = (CAFE.published(Attention(together, cut)).explain(x, baselines, 1, check="each") for together in (True, False))
    for name in ("positive", "negative", "combined", "bias_positive", "bias_negative"):
        torch.testing.assert_close(getattr(one, name), getattr(three, name))
    assert list(one.bias_by_layer) == ["embed", "qkv", "out"]
    assert list(three.bias_by_layer) == ["embed", "q", "k", "v", "out"]  # also those that bring nothing
    torch.testing.assert_close(one.bias_by_layer["qkv"], three.bias_by_layer["v"])
    assert not three.bias_by_layer["q"].any()


@pytest.mark.parametrize("together", [True, False])
def test_queries_and_keys_have_no_scores(together, monkeypatch):
    widths, through = [], PathScores._through

    def noted(self, weight, *rest):
        widths.append(tuple(weight.shape))
        return through(self, weight, *rest)

    monkeypatch.setattr(PathScores, "_through", noted)
    CAFE.published(Attention(together)).attribute(torch.randn(5, 4, dtype=torch.float64), target=1)
    assert widths == [(6, 1), (6, 6), (2, 6)]


def test_writes_to_columns_are_seen():
    layer, last = nn.Linear(3, 4).double(), nn.Linear(4, 1).double()
    x = torch.randn(2, 5, 3, dtype=torch.float64)

    def written(x):
        whole = layer(x)
        whole[..., :2].mul_(2)
        return last(torch.relu(whole)).mean(1)

    def plain(x):
        whole = layer(x)
        return last(torch.relu(torch.cat([whole[..., :2] * 2, whole[..., 2:]], -1))).mean(1)

    one, two = CAFE.published(written).explain(x), CAFE.published(plain).explain(x)
    torch.testing.assert_close(one.positive, two.positive)
    torch.testing.assert_close(one.negative, two.negative)


def test_weights_that_are_written_to_after_use_are_refused():
    weight = torch.randn(3, 3, dtype=torch.float64)

    def model(x):
        w = weight.clone()
        h = F.linear(x, w)
        w.mul_(2)
        return torch.relu(h).sum((1, 2))

    with pytest.raises(ValueError, match="writes to the weights"):
        CAFE.published(model).explain(torch.randn(2, 5, 3, dtype=torch.float64))


@pytest.mark.parametrize("way", ["attribute", "explain"])
def test_a_pass_is_given_up_without_the_garbage_collector(way, monkeypatch):
    runs, begin = [], Run.__init__

    def noted(self, *args, **options):
        begin(self, *args, **options)
        runs.append(weakref.ref(self))

    monkeypatch.setattr(Run, "__init__", noted)
    model = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 2)).eval()
    gc.disable()
    try:
        getattr(CAFE.published(model), way)(torch.randn(4, 3))
        assert runs
        assert [run() for run in runs] == [None] * len(runs)
    finally:
        gc.enable()
