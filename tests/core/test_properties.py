"""The properties of the paper on random nets."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import models
from cafexai import CAFE
from cafexai.paper.studies import depth

SHAPES = st.lists(st.integers(1, 7), min_size=0, max_size=3)


@st.composite
def problems(draw, hidden=SHAPES):
    """A random net, rows, a reference or None, and c."""
    torch.manual_seed(draw(st.integers(0, 10_000)))
    features, classes = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    activation = draw(st.sampled_from(models.ACTIVATIONS))
    model = models.mlp(features, *draw(hidden), classes, activation=activation, bias=draw(st.booleans()))
    x = torch.randn(draw(st.integers(1, 4)), features) * draw(st.sampled_from([0.1, 1.0, 10.0]))
    reference = torch.randn_like(x) if draw(st.booleans()) else None
    return model, x, reference, draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])), draw(st.integers(0, classes - 1))


def tolerance(*explanations):
    return 1e-10 * max(
        1.0, *(max(e.positive.max().item(), e.negative.max().item(), e.output.abs().max().item()) for e in explanations)
    )


@given(problems())
def test_law_signs_and_completeness(problem):
    model, x, reference, c, target = problem
    e = CAFE.published(model, c).explain(x, baselines=reference, target=target, check="each")
    assert (e.positive >= 0).all()
    assert (e.negative >= 0).all()
    assert all((scores[:, :2] >= 0).all() for scores in e.bias_by_layer.values())
    error = tolerance(e)
    torch.testing.assert_close(e.output, model(x)[:, target].detach(), rtol=0, atol=error)
    whole = e.baseline_output + e.bias + e.combined.sum(1)
    torch.testing.assert_close(whole, e.output, rtol=0, atol=error)
    torch.testing.assert_close(e.positive - e.negative, e.combined, rtol=0, atol=error)
    assert e.completeness_error.abs().max() <= error
    without = copy.deepcopy(model)
    for name, parameter in without.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    start = torch.zeros_like(x) if reference is None else reference
    torch.testing.assert_close(e.baseline_output, without(start)[:, target].detach(), rtol=0, atol=error)


@given(problems(), st.data())
def test_missingness(problem, data):
    model, x, reference, c, target = problem
    feature = data.draw(st.integers(0, x.shape[1] - 1))
    x[:, feature] = 0 if reference is None else reference[:, feature]
    e = CAFE.published(model, c).explain(x, baselines=reference, target=target)
    assert (e.positive[:, feature] == 0).all()
    assert (e.negative[:, feature] == 0).all()


@given(problems(), st.floats(-3, 3), st.floats(-3, 3))
def test_linearity_of_the_combined_scores(problem, a, b):
    model, x, reference, c, target = problem
    other = models.mlp(x.shape[1], 4, 3, activation=nn.GELU)
    one = CAFE.published(model, c).explain(x, baselines=reference, target=target)
    two = CAFE.published(other, c).explain(x, baselines=reference, target=1)
    both = CAFE.published(lambda v: a * model(v)[:, target] + b * other(v)[:, 1], c).explain(x, baselines=reference)
    torch.testing.assert_close(both.combined, a * one.combined + b * two.combined, rtol=0, atol=10 * tolerance(one, two, both))
    torch.testing.assert_close(both.bias, a * one.bias + b * two.bias, rtol=0, atol=10 * tolerance(one, two, both))


@given(problems())
def test_a_batch_is_its_rows(problem):
    model, x, reference, c, target = problem
    whole = CAFE.published(model, c).explain(x, baselines=reference, target=target)
    for i in range(len(x)):
        row = CAFE.published(model, c).explain(
            x[i : i + 1], baselines=None if reference is None else reference[i : i + 1], target=target
        )
        for name in ("positive", "negative", "combined", "bias_positive", "bias_negative", "output", "conflict"):
            torch.testing.assert_close(getattr(row, name), getattr(whole[i], name), rtol=0, atol=tolerance(whole))


@given(problems(), st.randoms(use_true_random=False))
def test_permuting_features_permutes_scores(problem, random):
    model, x, reference, c, target = problem
    order = list(range(x.shape[1]))
    random.shuffle(order)
    permuted = copy.deepcopy(model)
    permuted[0].weight.data = permuted[0].weight.data[:, order]
    one = CAFE.published(model, c).explain(x, baselines=reference, target=target)
    two = CAFE.published(permuted, c).explain(
        x[:, order], baselines=None if reference is None else reference[:, order], target=target
    )
    for name in ("positive", "negative", "combined"):
        torch.testing.assert_close(getattr(one, name)[:, order], getattr(two, name), rtol=0, atol=tolerance(one))


@given(problems(hidden=st.lists(st.integers(1, 7), min_size=1, max_size=1)), st.floats(0, 1))
def test_scores_are_linear_in_c_with_one_hidden_layer(problem, c):
    model, x, reference, _, target = problem
    low, high, mid = (CAFE.published(model, value).explain(x, baselines=reference, target=target) for value in (0.0, 1.0, c))
    for name in ("positive", "negative", "combined", "bias"):
        expected = (1 - c) * getattr(low, name) + c * getattr(high, name)
        torch.testing.assert_close(getattr(mid, name), expected, rtol=0, atol=tolerance(low, high))


def photograph(model):
    """All that could be changed on a model."""
    modules = {name: (module.training, sorted(vars(module)), _hooks(module)) for name, module in model.named_modules()}
    gradients = {name: p.grad for name, p in model.named_parameters()}
    flags = {name: p.requires_grad for name, p in model.named_parameters()}
    state = {name: value.clone() for name, value in model.state_dict().items()}
    return modules, gradients, flags, state


def _hooks(module):
    return {name: len(value) for name, value in vars(module).items() if "hooks" in name and hasattr(value, "__len__")}


def unchanged(before, after):
    assert before[:3] == after[:3]
    assert before[3].keys() == after[3].keys()
    assert all(torch.equal(before[3][name], after[3][name]) for name in before[3])


class Unknown(nn.Module):
    def forward(self, x):
        return torch.logcumsumexp(x, 1)


class Fails(nn.Module):
    def forward(self, x):
        raise RuntimeError("on purpose")


@pytest.mark.parametrize("fault", [None, "model", "unsupported"])
def test_the_model_stays_as_it_is(fault):
    from torch.nn.modules import module as hooks

    model = models.with_statistics(models.ResidualCNN(4), 4, 3, 16, 16)
    if fault == "model":
        model.fc = nn.Sequential(model.fc, Fails())
    if fault == "unsupported":
        model.fc = nn.Sequential(model.fc, Unknown())
    x = torch.randn(2, 3, 16, 16)
    before, copy_of_x, random = photograph(model), x.clone(), torch.get_rng_state()
    if fault is None:
        CAFE.published(model).explain(x)
        CAFE.published(model).attribute(x)
    else:
        with pytest.raises(RuntimeError if fault == "model" else NotImplementedError):
            CAFE.published(model).explain(x)
    unchanged(before, photograph(model))
    assert torch.equal(x, copy_of_x)
    assert not x.requires_grad
    assert torch.equal(random, torch.get_rng_state())
    assert not hooks._global_forward_hooks
    assert not hooks._global_forward_pre_hooks
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("netting", ["path", "feature"])
@pytest.mark.parametrize("activation", [nn.GELU, nn.Tanh, nn.SiLU, nn.Sigmoid])
def test_one_baseline_for_many_rows_is_that_of_each_row(activation, netting):
    """phi of one row can be rounded otherwise than phi of many: features at the baseline must not make influence of that."""
    for seed in range(60):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(3, 5), activation(), nn.Linear(5, 4), activation(), nn.Linear(4, 2))
        x, start = torch.randn(4, 3), torch.randn(1, 3)
        x[0, 1] = start[0, 1]
        cafe = CAFE(model, 0.5, "published", netting=netting)
        shared, each = cafe.explain(x, start, target=0), cafe.explain(x, start.expand(4, 3).clone(), target=0)
        for name in ("positive", "negative", "combined", "bias"):
            torch.testing.assert_close(getattr(shared, name), getattr(each, name), rtol=1e-9, atol=1e-10)
        assert shared.completeness_error.abs().max() < 1e-12


def test_the_check_sees_scores_that_are_far_too_large(monkeypatch):
    """Parts beyond all influence that cancel each other to nothing are no rounding."""

    def lost(tensors, *arguments, **options):
        gradients = real(tensors, *arguments, **options)
        return (gradients[0] * 1e30, -gradients[1].abs() * 1e30 * gradients[0].sign())

    real = torch.autograd.grad
    model = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 2))
    x = torch.randn(2, 3)
    cafe = CAFE.published(lambda x: model(x))  # not as a chain, whose way back does without torch
    cafe.explain(x, target=0)
    monkeypatch.setattr(torch.autograd, "grad", lost)
    with pytest.raises(RuntimeError, match="miss the output"):
        cafe.explain(x, target=0)


@pytest.mark.parametrize("wrong", [lambda gradient: gradient + 1, lambda gradient: gradient * torch.nan], ids=["more", "nan"])
def test_the_check_sees_scores_of_an_output_that_does_not_change(wrong, monkeypatch):
    """Relative to that output nothing can be said."""
    model, x = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 2)), torch.randn(2, 3)
    with torch.no_grad():
        model[2].weight[0] = 0
        model[2].bias[0] = 0
    cafe, real = CAFE.published(lambda x: model(x)), torch.autograd.grad
    assert not cafe.explain(x, target=0).combined.any()
    monkeypatch.setattr(torch.autograd, "grad", lambda *given, **options: list(map(wrong, real(*given, **options))))
    with pytest.raises(RuntimeError, match="miss the output"):
        cafe.explain(x, target=0)


@pytest.mark.parametrize("c", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("residual", [False, True])
def test_combined_scores_of_32_layers_keep_their_digits_in_float32(c, residual):
    """positive - negative is lost there: the totals are up to 1e30 times the output."""
    model = depth.build("residual" if residual else "plain", 20, 64, 32, 0).float()
    x = torch.randn(4, 20, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = CAFE.published(model, c).explain(x)
    assert found.notes
    exact = CAFE.published(copy.deepcopy(model).double(), c).attribute(x.double())
    assert ((found.combined.double() - exact).abs().max() / exact.abs().max()).item() < 1e-3
