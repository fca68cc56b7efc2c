"""Scores that nobody asks for are not computed, and nothing of a pass is left behind."""

from __future__ import annotations

import collections
import functools
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cafexai import CAFE, elementwise_module
from cafexai._carriers.path import PathScores
from cafexai._carriers.unit import TotalThrough
from cafexai._core.run import Run
from cafexai._engine.state_guard import StateGuard
from cafexai._engine.tracer import Trace
from cafexai.errors import UnsupportedOperation


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


def test_constants_that_are_written_to_after_use_are_refused_with_the_way_out():
    layers = [nn.Linear(3, 3).double() for _ in range(4)]

    def model(x, copied=False):
        factor = torch.full((3,), 1.5, dtype=x.dtype)
        for layer in layers:
            x = F.gelu(layer(x) * (factor.clone() if copied else factor))
            factor.mul_(0.5)
        return x.sum(1)

    x = torch.randn(2, 3, dtype=torch.float64)
    with pytest.raises(UnsupportedOperation, match=r"modifies a tensor in place.*factor\.clone"):
        CAFE(model).explain(x)
    e = CAFE(functools.partial(model, copied=True)).explain(x)
    torch.testing.assert_close(e.combined.sum(1) + e.baseline_output, model(x))


class Block(nn.Module):
    """A transformer of one block: of its linear layers, only one is followed by a function."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.norm = nn.Linear(1, 6), nn.LayerNorm(6)
        self.q, self.k, self.v, self.merge = (nn.Linear(6, 6) for _ in range(4))
        self.wide, self.narrow, self.out = nn.Linear(6, 9), nn.Linear(9, 6), nn.Linear(6, 2)
        self.drop, self.act = nn.Dropout(0.5), nn.GELU()
        self.double().eval()

    def forward(self, x):
        h = self.embed(x[..., None])
        with torch.no_grad():
            turn = torch.arange(h.shape[1], dtype=h.dtype).cos()[:, None]
        n = self.norm(h) * turn
        h = h + self.merge(self.drop(F.scaled_dot_product_attention(self.q(n), self.k(n), self.v(n))))
        return self.out((h + self.narrow(self.act(self.wide(self.norm(h))))).mean(1))


def test_totals_by_unit_are_made_where_a_function_asks(monkeypatch):
    widths, apply = [], TotalThrough.apply

    def noted(total, weight, magnitudes):
        widths.append(len(weight))
        return apply(total, weight, magnitudes)

    monkeypatch.setattr(TotalThrough, "apply", noted)
    x = torch.randn(5, 4, dtype=torch.float64)
    cafe = CAFE(Block())
    scores = cafe.attribute(x, target=1)
    assert widths == [9, 2]  # before the activation, and at the output, where it is looked at whether it is finite
    e = cafe.explain(x, target=1)
    assert e.meta.settings["netting"] == "unit"
    torch.testing.assert_close(scores, e.combined, rtol=1e-10, atol=1e-12)
    eager = CAFE(Block())
    monkeypatch.setattr("cafexai._carriers.unit.LARGE", 0)  # as for values that are too large to wait
    torch.testing.assert_close(eager.attribute(x, target=1), scores, rtol=1e-10, atol=1e-12)


def test_models_that_neither_write_nor_draw_are_not_watched(monkeypatch):
    """Dropout at rest, and switching gradients off, are no reason to look at every operation of the plain run."""
    seen = []
    monkeypatch.setattr(StateGuard, "__torch_dispatch__", lambda self, func, *rest: seen.append(func))
    CAFE(Block()).attribute(torch.randn(2, 4, dtype=torch.float64), target=1)
    assert not seen


def test_the_engine_does_not_follow_itself(monkeypatch):
    """What it computes for a module that is declared elementwise, in a hook, are no calls of the model."""

    @elementwise_module
    class Softer(nn.Module):
        def forward(self, x):
            return x * torch.sigmoid(x)

    model = nn.Sequential(nn.Linear(3, 4), Softer(), nn.Linear(4, 1)).double()
    called, follow = [], Trace.__torch_function__

    def noted(self, func, *rest, **options):
        called.append(func.__name__)
        return follow(self, func, *rest, **options)

    monkeypatch.setattr(Trace, "__torch_function__", noted)
    CAFE(model, variant="published", netting="unit").attribute(torch.randn(2, 3, dtype=torch.float64))
    assert collections.Counter(called)["linear"] == 2
    assert len(called) < 12, called  # of the model: two layers, and the function once


@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("way", ["attribute", "explain"])
def test_a_pass_is_given_up_without_the_garbage_collector(way, published, monkeypatch):
    runs, begin = [], Run.__init__

    def noted(self, *args, **options):
        begin(self, *args, **options)
        runs.append(weakref.ref(self))

    monkeypatch.setattr(Run, "__init__", noted)
    model = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 2)).eval() if published else Block()
    gc.disable()
    try:
        getattr(CAFE.published(model) if published else CAFE(model), way)(
            torch.randn(4, 3, dtype=next(model.parameters()).dtype)
        )
        assert runs
        assert [run() for run in runs] == [None] * len(runs)
    finally:
        gc.enable()
