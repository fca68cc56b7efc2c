"""Ways in which a number could silently go wrong, or a model stay changed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import models
from cafexai import CAFE, supported
from cafexai._core.steps import Added, Biases


def close(one, two):
    torch.testing.assert_close(one, two)


def scores(f, x, **options):
    return CAFE(f, 0.6).explain(x, check="each", **options)


def same(one, two):
    for name in ("positive", "negative", "bias_positive", "bias_negative", "output"):
        close(getattr(one, name), getattr(two, name))


def test_a_number_to_fill_with_is_frozen_and_listed():
    for f in (lambda v: v + torch.full_like(v, v.mean()), lambda v: v + torch.full_like(v, fill_value=v.mean())):
        assert "full_like" in " ".join(CAFE(f).explain(torch.randn(1, 3), target=0).frozen)


def test_a_detached_value_has_memory_of_its_own():
    x = torch.tensor([[-1.0, 2.0]])

    def f(v):
        v.detach().clamp_(min=0)
        return v.sum(1)

    with pytest.raises(RuntimeError, match="differs from model"):  # the model itself changes its input there
        CAFE(f).explain(x)

    def g(v):
        h = v.detach().clone()
        h.clamp_(min=0)
        return (v + h).sum(1)

    e = CAFE(g).explain(x)
    close(e.combined, x)


STEPS = {
    "clone": lambda p: p.clone(),
    "contiguous": lambda p: p.contiguous(),
    "to": lambda p: p.to(torch.float64),
    "double": lambda p: p.double(),
    "dropout": lambda p: F.dropout(p, 0.5, False),
    "flatten": lambda p: p.flatten(1),
    "chunk": lambda p: p.chunk(1, 1)[0],
}


@pytest.mark.parametrize(
    "last", [torch.sigmoid, lambda z: z.softmax(1), lambda z: z.log_softmax(1)], ids=["sigmoid", "softmax", "log_softmax"]
)
@pytest.mark.parametrize("step", STEPS)
def test_the_logit_is_explained_whatever_idle_step_follows(last, step):
    model, x = models.mlp(3, 5, 2), torch.randn(4, 3)
    e = CAFE(lambda v: STEPS[step](last(model(v)))).explain(x, target=1)
    same(e, CAFE(model).explain(x, target=1))
    assert e.notes


def test_a_softmax_may_be_added_to_a_plain_tensor():
    def f(v):
        total = torch.zeros(3, 4)
        total += torch.softmax(v, 1)
        total[:, :2] = torch.softmax(v[:, :2], 1)
        return (total * v).sum(1)

    assert scores(f, torch.randn(3, 4)).completeness_error.abs().max() < 1e-12


def test_a_softmax_of_masked_logits_as_the_output():
    mask = torch.tensor([False, True, False])
    x, layer = torch.randn(4, 3), nn.Linear(3, 3)
    e = CAFE(lambda v: torch.softmax(layer(v).masked_fill(mask, -torch.inf), 1)).explain(x, target=0)
    same(e, CAFE(layer).explain(x, target=0))


def test_complex_numbers_are_followed():
    x = torch.randn(2, 3)
    torch.testing.assert_close(CAFE(lambda v: (v * (1 + 1j)).real.sum(1)).explain(x).combined, x)


class Caches(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.cache = torch.zeros(3, 3)
        self.hidden = torch.zeros(3, 3)
        self.seen = []
        self.calls = 0

    def forward(self, x):
        self.cache[:, 0] = x[:, 0]
        self.hidden = torch.tanh(self.layer(x) + self.hidden)
        self.seen.append(x)
        self.calls += 1
        self.last = x
        return self.layer(self.cache + self.hidden)


def test_what_forward_keeps_is_taken_off_again():
    model, x = Caches(), torch.randn(3, 3)
    hidden = model.hidden
    CAFE(model).explain(x, target=0)
    assert type(model.cache) is torch.Tensor
    assert model.hidden is hidden
    assert model.seen == []
    assert model.calls == 0
    assert not hasattr(model, "last")
    assert type(model(x)) is torch.Tensor


def test_tensors_of_the_caller_stay_plain():
    buffer, x = torch.zeros(3, 2), torch.randn(3, 2)

    def f(v):
        buffer[:, 0] = v[:, 0]
        return buffer.sum(1)

    CAFE(f).explain(x)
    assert type(buffer) is torch.Tensor
    assert not buffer.any()  # as before


def test_moved_and_made_contiguous():
    x = torch.randn(2, 3, 4)
    for f in (
        lambda v: v.transpose(1, 2).contiguous().view(2, -1),
        lambda v: v.permute(0, 2, 1).clone(memory_format=torch.contiguous_format).view(2, -1),
    ):
        e = scores(f, x, target=3)
        close(e.combined.sum((1, 2)), f(x)[:, 3])


W, Y = torch.randn(3, 2, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
BY_NAME = {
    "sum": (lambda v: torch.sum(input=v, dim=1), lambda v: torch.sum(v, 1)),
    "cat": (lambda v: torch.cat(tensors=[v, v], dim=1), lambda v: torch.cat([v, v], 1)),
    "linear": (lambda v: F.linear(input=v, weight=Y), lambda v: F.linear(v, Y)),
    "where": (lambda v: torch.where(condition=Y > 0, input=v, other=Y), lambda v: torch.where(Y > 0, v, Y)),
    "where method": (lambda v: v.where(condition=Y > 0, other=Y), lambda v: v.where(Y > 0, Y)),
    "matmul": (lambda v: torch.matmul(v, other=W), lambda v: v @ W),
    "mm": (lambda v: torch.mm(v, mat2=W), lambda v: v @ W),
    "add": (lambda v: v.add(other=2.0), lambda v: v + 2),
    "addcmul": (lambda v: torch.addcmul(v, tensor1=Y, tensor2=v), lambda v: torch.addcmul(v, Y, v)),
    "gather": (
        lambda v: torch.gather(input=v, dim=1, index=torch.tensor([[0], [2]])),
        lambda v: v.gather(1, torch.tensor([[0], [2]])),
    ),
    "clamp": (lambda v: torch.clamp(input=v, min=0), lambda v: v.clamp(0)),
    "reshape": (lambda v: torch.reshape(input=v, shape=(2, 3)), lambda v: v),
    "flatten": (lambda v: torch.flatten(input=v.softmax(1)[:, None], start_dim=1) * v, lambda v: v.softmax(1) * v),
    "max": (lambda v: torch.max(input=v, dim=1).values, lambda v: v.amax(1)),
    "mean": (lambda v: v.mean(dim=(1,)), lambda v: v.mean(1)),
    "topk": (lambda v: torch.topk(input=v, k=2).values, lambda v: v.topk(2)[0]),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_arguments_by_name(name):
    by_name, by_place = BY_NAME[name]
    x = torch.randn(2, 3)

    def flat(f):
        return lambda v: f(v).reshape(2, -1).sum(1)

    same(scores(flat(by_name), x), scores(flat(by_place), x))


def test_arguments_that_are_not_followed_are_a_problem_of_the_operation():
    report = supported(lambda v: torch.diff(v, prepend=torch.zeros(2, 1)).sum(1), torch.randn(2, 3))
    assert "prepend" in str(report)


@pytest.mark.parametrize(
    "f",
    [
        lambda v: torch.where(v > 0, v, torch.zeros_like(v)), lambda v: v.masked_fill(v < 0, 0.5),
        lambda v: torch.where(v > 0, 0.5, v), lambda v: _written(v),
    ],
)  # fmt: skip
def test_a_row_that_is_masked_as_a_whole(f):
    x, layer = torch.tensor([[1.0, 2, 3], [-1, -2, -3], [1, 1, 1]]), nn.Linear(3, 2)
    whole = scores(lambda v: layer(f(v)), x, target=0)
    for i in range(3):
        same(whole[i], scores(lambda v: layer(f(v)), x[i : i + 1], target=0))


def _written(v):
    h = v * 1.0
    h[v < 0] = 0
    return h


def test_rows_written_over_rows_are_refused():
    def f(v):
        h = v * 1.0
        h[0] = v[1]
        return h.sum(1)

    with pytest.raises((RuntimeError, ValueError), match="row"):
        CAFE(f).explain(torch.randn(3, 2))


def test_powers_with_tensors():
    x = torch.rand(2, 3) + 0.5
    for f in (
        lambda v: (v.unsqueeze(-1) ** torch.arange(1, 4)).sum((1, 2)),
        lambda v: v[:, :1].clamp(min=torch.zeros(3)).sum(1),
        lambda v: (torch.tensor([2.0, 3.0, 0.5]) ** v).sum(1),
        lambda v: torch.pow(2.0, v).sum(1),
    ):
        close(scores(f, x).output, f(x))


def test_a_conversion_to_the_same_type_is_the_value_itself():
    def f(v):
        h = v * 2
        same = h.to(h.dtype)
        same.mul_(3)
        return h.sum(1)

    x = torch.randn(2, 3)
    close(scores(f, x).combined, 6 * x)


def test_a_value_overwritten_by_a_constant():
    def f(v):
        h = v * 2
        h.copy_(torch.ones(2, 3))
        return h.sum(1) + v.sum(1)

    e = CAFE.published(f).explain(torch.randn(2, 3))
    close(e.bias, torch.full((2,), 3.0))


@pytest.mark.parametrize(
    "f",
    [
        lambda h: h / (h.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt(),
        lambda h: (h - h.mean(-1, keepdim=True)) / h.std(-1, keepdim=True),
    ],
)
def test_hand_written_norms_need_no_scores_of_their_denominator(f):
    net = models.mlp(4, 6, 2)
    for baseline in (None, torch.randn(3, 4)):
        e = scores(lambda v: net(f(v)), torch.randn(3, 4), baselines=baseline, target=0)
        assert e.completeness_error.abs().max() < 1e-12


def test_short_types_inside_a_model():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(4, 4).bfloat16(), nn.Linear(4, 2).float()

        def forward(self, v):
            return self.two(self.one(v.bfloat16()).float())

    CAFE(Inner()).explain(torch.randn(3, 4, dtype=torch.float32))
    net = models.mlp(4, 8, 2).float()

    def autocast(v):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = net(v)
        return h.float()

    CAFE(autocast).explain(torch.randn(3, 4, dtype=torch.float32), check="each")
    CAFE(lambda v: v.float().double().sum(1)).explain(torch.randn(3, 4), check="each")


FRAME = pd.DataFrame(np.random.default_rng(0).normal(size=(4, 3)), columns=list("abc"))


def test_baselines_with_names_are_matched_by_name():
    model = models.mlp(3, 5, 2)
    base = FRAME.mean().to_frame().T
    expected = CAFE(model).explain(FRAME, base, 0)
    close(expected.baselines[0], torch.tensor(FRAME.mean().to_numpy()))
    for other in (base[["c", "a", "b"]], FRAME.mean(), FRAME.mean()[["b", "c", "a"]], FRAME.mean().tolist()):
        same(CAFE(model).explain(FRAME, other, 0), expected)
    same(CAFE(model, background=FRAME[["c", "b", "a"]]).explain(FRAME, "mean", 0), expected)
    with pytest.raises(ValueError, match="columns"):
        CAFE(model).explain(FRAME, base.rename(columns={"a": "z"}), 0)


def test_groups_do_not_swallow_features_of_the_same_name():
    model = models.mlp(3, 5, 2)
    with pytest.raises(ValueError, match="more than one"):
        CAFE(model).explain(FRAME, None, 0, feature_groups={"a": ["b", "c"]})
    e = CAFE(model).explain(FRAME, None, 0, feature_groups={"rest": np.array([1, 2])})
    assert e.names() == ("a", "rest")


@pytest.mark.parametrize("target", [[0, 1, 0, 1, 0], [0.7, 1.9, 1, 0], [True, False, True, False], True])
def test_targets_are_neither_cut_nor_rounded(target):
    with pytest.raises(ValueError, match="target"):
        CAFE(models.mlp(3, 5, 2)).explain(FRAME, target=target)


@pytest.mark.parametrize("netting", ["path", "feature"])
def test_a_view_behind_a_function_that_is_not_0_at_0(netting):
    """The reference behind it is one row for all, without memory for each; shapes are those of the model all the same."""
    x = torch.randn(4, 3)
    for f in (
        lambda v: torch.max(v, torch.ones(3)),
        lambda v: torch.max(v[:, :1], torch.ones(3)),
        lambda v: v.clamp(torch.ones(3)),
        torch.cos,
    ):
        one = CAFE(lambda v: f(v).view(-1).view(len(v), 3).sum(1), variant="published", netting=netting).explain(x)
        two = CAFE(lambda v: f(v).sum(1, keepdim=True), variant="published", netting=netting).explain(x)
        same(one, two)


@pytest.mark.parametrize("netting", ["path", "feature"])
def test_a_power_in_float64_of_float32(netting):
    x = torch.rand(4, 3).float() + 0.5
    double = nn.Linear(3, 2).double()
    e = CAFE(lambda v: double(v.float_power(1.5)), variant="published", netting=netting).explain(x, 1.0, target=0, check="each")
    exact = CAFE(lambda v: double(v.pow(1.5)), variant="published", netting=netting).explain(x.double(), 1.0, target=0)
    torch.testing.assert_close(e.combined.double(), exact.combined, rtol=1e-5, atol=1e-6)
    e = CAFE(lambda v: torch.float_power(2.0, v).sum(1), variant="published", netting=netting).explain(x)
    torch.testing.assert_close(e.output.double(), torch.float_power(2.0, x).sum(1), rtol=1e-5, atol=0)


def test_a_unit_inside_of_a_transformer_layer():
    """Its modules are not called on torch's fast path."""
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    model, x = nn.Sequential(layer, nn.Flatten(), nn.Linear(12, 2)).eval(), torch.randn(2, 3, 4)
    seen = []
    handle = layer.linear1.register_forward_hook(lambda module, args, output: seen.append(output))
    model(x)
    handle.remove()
    e = CAFE(model).explain(x, target=(1, 5), target_layer="0.linear1")
    close(e.output, seen[0][:, 1, 5].detach())


def test_constants_that_were_joined_may_change_later():
    """What they brought is what they were when they were joined."""
    layer = nn.Linear(5, 1)

    def model(x, changes):
        constant = torch.ones(len(x), 2)
        joined = torch.cat([x, constant], 1)
        if changes:
            constant.mul_(100)
        return layer(joined)

    x = torch.randn(3, 3)
    same(CAFE(lambda v: model(v, True), 0.6).explain(x), CAFE(lambda v: model(v, False), 0.6).explain(x))


def test_what_flows_back_to_an_infinite_constant_is_no_number():
    """A mask of -inf has no share where nothing flows back to it, and else one that no check lets pass."""
    for gradient, expected in (([1.0, 0.0, 2.0], 1.0 + 6.0), ([1.0, 1e-9, 2.0], torch.nan)):
        book = Biases(1)
        book.note_layer("mask", torch.zeros(1))
        added = Added(book, torch.tensor([1.0, -torch.inf, 3.0]), "mask")
        added.enter(torch.tensor([gradient]), torch.tensor([gradient]))
        sums = book.take()
        torch.testing.assert_close(sums["mask"], torch.tensor([2 * expected]), equal_nan=True)
