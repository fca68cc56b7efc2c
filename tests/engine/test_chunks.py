"""Rows are split by themselves where that changes nothing, and only there."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import models
from cafexai import CAFE
from cafexai._engine import batches


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    """Chunks of a few rows, so that small models are split."""
    monkeypatch.setattr(batches, "WORTH", 1)
    monkeypatch.setattr(batches, "LARGE", 64)


class Calls(nn.Module):
    """Remembers how many rows each pass had."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.sizes = []

    def forward(self, x, *rest):
        SIZES.append(len(x))
        return self.model(x, *rest)


SIZES = []


def both(model, x, **options):
    """The explanation in chunks, the one in a single piece, and the sizes of the passes of the first."""
    SIZES.clear()
    split = CAFE(Calls(model)).explain(x, **options)
    sizes = list(SIZES)
    whole = CAFE(Calls(model)).explain(x, batch_size=len(x), **options)
    return split, whole, sizes


def same(one, two):
    for name in ("positive", "negative", "combined", "output", "baseline_output", "bias", "inputs", "baselines"):
        torch.testing.assert_close(getattr(one, name), getattr(two, name))
    assert torch.equal(one.target, two.target)
    assert one.frozen == two.frozen


@pytest.mark.parametrize("baselines", [None, 0.3, torch.full((1, 5), 0.1), torch.linspace(0, 1, 185).view(37, 5)])
def test_chunks_give_the_same(baselines):
    model, x = models.mlp(5, 8, 8, 3, activation=nn.GELU), torch.randn(37, 5)
    split, whole, sizes = both(model, x, baselines=baselines)
    assert max(sizes) < 37
    same(split, whole)
    torch.testing.assert_close(CAFE(model).attribute(x, baselines), whole.combined)
    _, lack = CAFE(model).attribute(x, baselines, return_convergence_delta=True)
    assert lack.shape == (37,)
    assert lack.abs().max() < 1e-9


def test_targets_and_stacks_go_with_their_rows():
    model, x = models.mlp(5, 8, 3), torch.randn(30, 5)
    target = torch.arange(30) % 3
    split, whole, sizes = both(model, x, target=target, baselines=torch.randn(2, 30, 5))
    assert max(sizes) < 30
    same(split, whole)
    again = CAFE(model).explain(x, target=target)
    assert torch.equal(again.positive, CAFE(model).explain(x, target=target).positive)  # equal inputs, equal bits


MIXING = {
    "mean": lambda x: x - x.mean(0),
    "largest": lambda x: x / x.abs().max().detach(),
    "place": lambda x: x * torch.linspace(1, 2, len(x))[:, None],
    "neighbour": lambda x: x + x.roll(1, 0),
    "noise": lambda x: x + torch.rand_like(x.detach() * 1.0),
}


@pytest.mark.parametrize("name", MIXING)
def test_rows_that_depend_on_each_other_are_not_split(name):
    net = models.mlp(5, 8, 3)
    model, x = (lambda v: net(MIXING[name](v))), torch.randn(30, 5)
    torch.manual_seed(1)
    try:
        whole = CAFE(model).explain(x, target=0, batch_size=30)
    except Exception as error:
        with pytest.raises(type(error)):
            CAFE(model).explain(x, target=0)
        return
    torch.manual_seed(1)
    same(CAFE(model).explain(x, target=0), whole)


def test_arguments_that_may_belong_to_the_rows_keep_them_together():
    net, x = models.mlp(5, 8, 3), torch.randn(30, 5)
    _, _, sizes = both(lambda v, w: net(v) @ w, x, additional_forward_args=torch.randn(3, 3))
    assert set(sizes) == {30}
    split, whole, sizes = both(lambda v, factor: net(v) * factor, x, additional_forward_args=2.0)
    assert max(sizes) < 30
    same(split, whole)


def test_errors_are_those_of_the_whole():
    with pytest.raises(ValueError, match="31 targets for 30 rows"):
        CAFE(models.mlp(5, 8, 3)).explain(torch.randn(30, 5), target=[0] * 31)
    with pytest.raises(NotImplementedError, match="1 operation"):
        CAFE(lambda v: torch.linalg.det(v[:, :4].view(-1, 2, 2))[:, None]).explain(torch.randn(30, 5), target=0)


def test_one_baseline_for_all_is_that_baseline_for_each():
    """It is computed once; also where rows are taken one by one."""
    net, x = models.mlp(5, 8, 3, activation=nn.GELU), torch.randn(6, 5)
    for model in (net, lambda v: torch.stack([net(row) for row in v]), lambda v: net(v.t().contiguous().t() * 1.0)):
        for one in (0.3, torch.randn(5)):
            full = torch.as_tensor(one).expand(6, 5).clone()
            same(CAFE(model).explain(x, one, 0), CAFE(model).explain(x, full, 0))


def test_a_pass_that_needs_all_rows_gets_them():
    net, x = models.mlp(5, 8, 3), torch.randn(30, 5)
    split, whole, _ = both(lambda v: net(v.view(30, 5)), x)
    same(split, whole)


def test_long_inputs_are_split_with_the_real_limits(monkeypatch):
    monkeypatch.undo()
    model, x = models.mlp(54, 512, 2).float(), torch.randn(5000, 54, dtype=torch.float32)
    split, whole, sizes = both(model, x)
    assert max(sizes) < 5000
    for name in ("positive", "negative", "combined"):
        torch.testing.assert_close(getattr(split, name), getattr(whole, name), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", ["explain", "attribute"])
def test_an_error_in_a_chunk_is_raised_as_it_is(way):
    """Too little memory for some rows must not lead to a try with all of them."""
    sizes = []

    def model(x):
        sizes.append(len(x))
        if len(x) > 1:
            raise torch.OutOfMemoryError(f"no memory for {len(x)} rows")
        return torch.tanh(x) @ torch.ones(5, 8)

    with pytest.raises(torch.OutOfMemoryError):
        getattr(CAFE(model), way)(torch.randn(37, 5), target=0)
    assert max(sizes) < 37


def test_constants_of_the_rows_keep_them_together():
    net, offsets, x = models.mlp(5, 8, 3), torch.randn(37, 3), torch.randn(37, 5)
    e = CAFE(lambda v: net(v) + offsets).explain(x, target=1)
    torch.testing.assert_close(e.output, (net(x) + offsets)[:, 1].detach())


COMPANY = {
    "softmax": lambda v: v.softmax(0) * v,
    "log_softmax": lambda v: v.log_softmax(0) * v,
    "spelled out": lambda v: v.exp() / v.exp().sum(0) * v,
    "moved": lambda v: v.T.softmax(1).T * v,
    "item": lambda v: v * v.max().item(),
    "compared": lambda v: (v * (v > v.mean())).sum(1, keepdim=True),
}


@pytest.mark.parametrize("name", COMPANY)
def test_rows_that_depend_on_each_other_by_constants_are_told(name):
    x = torch.randn(4, 3)
    e = CAFE(COMPANY[name]).explain(x, target=0)
    assert any("Rows depend on each other" in note for note in e.notes)
    alone = CAFE(COMPANY[name]).explain(x, target=0, batch_size=1)
    assert not any("Rows depend" in note for note in alone.notes)
    assert not torch.allclose(alone.output, e.output)


@pytest.mark.parametrize("fold", [False, True])
def test_a_softmax_inside_of_rows_is_no_company(fold):
    weight = torch.randn(3, 3)

    def model(v):
        scores = v[:, :, None] * weight
        return (scores.flatten(0, 1).softmax(1).view_as(scores) if fold else scores.softmax(1)) @ weight[0] * v

    assert not any("Rows depend" in note for note in CAFE(model).explain(torch.randn(4, 3), target=0).notes)


def test_rows_of_tables_are_cut_smaller_than_pictures(monkeypatch):
    monkeypatch.setattr(batches, "TABLE", 32)
    _, _, sizes = both(models.mlp(4, 8, 3), torch.randn(32, 4), conflict="net")
    assert sorted(sizes)[-2:] == [4, 8]  # 8 units each; one pass is over two chunks
    _, _, sizes = both(nn.Sequential(nn.Flatten(), models.mlp(4, 8, 3)), torch.randn(32, 1, 2, 2), conflict="net")
    assert sorted(sizes)[-2:] == [8, 16]
