"""The audit of methods, prevalence, and the choice of c."""

from __future__ import annotations

import functools

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from captum.attr import LRP, DeepLift, InputXGradient, IntegratedGradients
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import models
from cafexai import CAFE
from cafexai.conflicts import audit, audit_outputs, minimal_conflicts, prevalence, tune_c
from cafexai.conflicts.audit import _unit

CAFE_1 = functools.partial(CAFE.published, c=1.0)
WHOLE = st.integers(-4, 4)


def by_definition(contributions, scores, offset=0.0):
    """Definition 5 for one row, by exhaustive search."""
    counteracted = {}
    for c in minimal_conflicts(lambda v: torch.relu(v.sum(1) + offset), contributions):
        if c.first_counteracts:
            counteracted.setdefault(c.second, []).append((c.first, c.magnitude))
        if c.second_counteracts:
            counteracted.setdefault(c.first, []).append((c.second, c.magnitude))
    under = hidden = 0
    for target, sets in counteracted.items():
        own = scores[list(target)].sum()
        misled = any(scores[list(C)].sum().sign() != -own.sign() for C, _ in sets)
        hides = own == 0 or misled
        hidden += int(hides)
        under += int(hides or own.abs() < max(size for _, size in sets))
    return [len(counteracted), under, hidden]


@given(st.lists(st.tuples(WHOLE, WHOLE), min_size=1, max_size=7), WHOLE)
def test_counts_equal_definition_5(pairs, offset):
    """``offset`` is what the unit gets at a reference that is not 0."""
    contributions = torch.tensor([[float(k) for k, _ in pairs]])
    scores = torch.tensor([[float(s) for _, s in pairs]])
    counts, _ = _unit(contributions, scores, contributions.sum(1) + offset)
    assert counts[:3].tolist() == by_definition(contributions[0], scores[0], offset)
    assert counts[3] == 0


@given(st.lists(WHOLE, min_size=1, max_size=7), st.sampled_from([0.5, 1.0, 2.0]))
def test_counts_equal_definition_5_for_scores_near_the_truth(values, factor):
    contributions = torch.tensor([[float(k) for k in values]])
    counts, _ = _unit(contributions, factor * contributions, contributions.sum(1))
    assert counts[:3].tolist() == by_definition(contributions[0], factor * contributions[0])


def trained(bias):
    torch.manual_seed(0)
    model = models.mlp(5, 12, 12, 2, bias=bias)
    x = torch.randn(200, 5)
    y = (x[:, 0] * x[:, 1] > 0).long()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(100):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model, x[:40]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["random", "trained"])
def test_theorem_1(bias, kind):
    model, x = trained(bias) if kind == "trained" else (models.mlp(6, 16, 16, 3, bias=bias), torch.randn(40, 6))
    result = audit(CAFE_1, model, x)
    assert result.conflicts > 1000
    assert (result.underreported, result.hidden, result.undecided) == (0, 0, 0)
    assert str(result).startswith("reports every conflict")
    for method in (InputXGradient, DeepLift, IntegratedGradients, LRP):
        other = audit(method, model, x)
        assert other.conflicts == result.conflicts
        assert other.hidden > 0.05 * other.conflicts
        assert other.underreported >= other.hidden
        assert other.worst[0].magnitude > abs(other.worst[0].score)


def test_methods_of_every_form():
    model, x = models.mlp(3, 4, 2), torch.randn(5, 3)

    def gradient_x_input(unit, rows, *, target=None, baselines=None):
        rows = rows.clone().requires_grad_()
        unit(rows)[:, target].sum().backward()
        return rows.grad * rows.detach()

    one, two = audit(InputXGradient, model, x), audit(gradient_x_input, model, x)
    assert (one.conflicts, one.hidden) == (two.conflicts, two.hidden)
    assert audit(lambda unit: CAFE.published(unit, 1.0), model, x).underreported == 0
    for bad, message in (
        (CAFE(model), "bound to the whole model"),
        (3, "a class, a factory"),
        (lambda unit, rows, target: rows[:1], "shaped"),
    ):
        with pytest.raises(ValueError, match=message):
            audit(bad, model, x)


def test_layers_frames_and_what_is_skipped():
    model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 1))
    x = torch.randn(20, 3)
    result = audit(InputXGradient, model, x)
    assert list(result.by_layer) == ["0", "4"]
    assert "gelu" in result.skipped["2"]
    frame = result.to_frame()
    assert frame.conflicts.sum() == result.conflicts
    only = audit(InputXGradient, model, x, layers=["4"])
    assert list(only.by_layer) == ["4"]
    with pytest.raises(ValueError, match="no local units in"):
        audit(InputXGradient, model, x, layers=["6"])
    with pytest.raises(ValueError, match="no ReLU units"):
        audit(InputXGradient, nn.Linear(3, 1), x)


def test_functional_and_convolutional_units():
    conv = nn.Conv2d(2, 3, 3, stride=2, padding=1)
    image = torch.randn(2, 2, 5, 5)
    result = audit(CAFE_1, lambda v: F.relu(conv(v)).mean((1, 2, 3)), image)
    assert result.conflicts > 100
    assert result.underreported == 0
    series = nn.Conv1d(2, 3, 3, dilation=2, padding=2)
    assert audit(CAFE_1, lambda v: series(v).relu().sum((1, 2)), torch.randn(2, 2, 7)).underreported == 0


def test_patches_reproduce_the_convolution():
    from cafexai.conflicts.find_units import local_layers

    conv, image = nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)), torch.randn(2, 2, 6, 7)
    (layer,) = local_layers(lambda v: F.relu(conv(v)), image)
    rows = layer.inputs @ layer.weight.T + layer.bias
    torch.testing.assert_close(rows, conv(image).detach().flatten(2).transpose(1, 2).reshape(-1, 3))


def test_prevalence_takes_rows_in_any_form_and_says_what_a_loader_gives_too_much():
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)).eval()
    x = torch.randn(8, 3)
    expected = prevalence(model, x)
    frame = pd.DataFrame(x.double().numpy(), columns=list("abc"))
    assert prevalence(model, frame) == prevalence(model, x.numpy()) == prevalence(model, [x.numpy()]) == expected
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, 0]), 4)
    with pytest.raises(ValueError, match=r"does not take a batch, a list of 2 .*\(x for x, y in loader\)"):
        prevalence(model, loader)
    assert prevalence(model, (rows for rows, _ in loader)) == expected
    with pytest.raises(ValueError, match=r"prevalence\(model, int\): give rows"):
        prevalence(model, 3)


def test_prevalence_by_hand():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    model[0].weight.data = torch.tensor([[1.0, -1.0], [1.0, 1.0]])
    model[0].bias.data = torch.tensor([0.0, -3.0])
    x = torch.tensor([[1.0, 2.0], [2.0, 1.0], [-1.0, -2.0], [0.0, 5.0]])
    # unit 1: 1 - 2 < 0 conflict; 2 - 1 active; -1 + 2 active; 0 - 5: no positive input
    # unit 2: 1 + 2 - 3 = 0 not below 0; likewise; all negative; active
    result = prevalence(model, x)
    assert result.by_layer == {"0": 1 / 8}
    assert result.units == 8
    assert prevalence(model, x.split(2)).overall == result.overall
    assert "12.5%" in str(result)
    with pytest.raises(ValueError, match="ReLU or GELU"):
        prevalence(nn.Linear(2, 1), x)


def test_prevalence_behind_other_activations():
    """Layers before tanh are no units of it, those behind are."""
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1)), torch.randn(20, 3)
    assert list(prevalence(model, x).by_layer) == ["2"]
    assert prevalence(model, x).overall == prevalence(model[2:], model[:2](x).detach()).overall


def test_layers_at_a_baseline_are_those_of_the_model_without_biases():
    from cafexai.conflicts.find_units import local_layers

    model, x, baseline = models.mlp(3, 5, 4, 1), torch.randn(4, 3), torch.randn(1, 3)
    first, second = local_layers(model, x, baseline)
    torch.testing.assert_close(first.reference, baseline.expand(4, 3))
    torch.testing.assert_close(second.reference, torch.relu(baseline @ model[0].weight.detach().T).expand(4, 5))


def test_tuning_c():
    model, x = models.mlp(4, 8, 8, 2), torch.randn(20, 4)
    best = CAFE(model, 0.25).attribute(x, target=0)
    tuned = tune_c(model, x, 0, metric=lambda scores: (scores - best).norm())
    assert tuned.c == 0.25
    assert tuned.best == 0
    assert list(tuned.curve) == [0.0, 0.25, 0.5, 0.75, 1.0]
    most = tune_c(model, x, 0, metric=lambda scores: scores.abs().sum(), larger_is_better=True)
    assert most.curve[most.c] == most.best == max(most.curve.values())
    goal = CAFE(model, {"1": 0.0, "3": 1.0}).attribute(x, target=0)
    layered = tune_c(model, x, 0, metric=lambda scores: (scores - goal).norm(), layers=["1", "3"])
    assert layered.best <= min(layered.curve.values())
    assert layered.c["1"] == 0.0
    with pytest.raises(ValueError, match="at least one"):
        tune_c(model, x, 0, metric=torch.norm, values=())


def test_tuning_keeps_the_best_of_all_that_were_tried():
    """A constant of a layer is taken only if it is better than the best so far, not than the best of all layers at once."""
    model, x, tried = models.mlp(4, 8, 8, 2), torch.randn(20, 4), []
    costs = {0.0: 5.0, 0.5: 4.0, 1.0: 6.0}

    def metric(scores):
        tried.append(scores)
        return [5.0, 4.0, 6.0, 3.0, 3.5, 3.2, 2.9, 2.95, 3.1][len(tried) - 1]

    tuned = tune_c(model, x, 0, metric=metric, values=tuple(costs), layers=["1", "3"])
    assert tuned.curve == costs
    assert tuned.c == {"*": 0.5, "1": 0.0, "3": 0.0}
    assert tuned.best == 2.9
    assert len(tried) == 9
    torch.testing.assert_close(tried[7], CAFE(model, {"*": 0.5, "1": 0.0, "3": 0.5}).attribute(x, target=0))


def test_audit_against_other_baselines():
    model, x, baseline = models.mlp(4, 8, 8, 2), torch.randn(20, 4), torch.randn(1, 4)
    result = audit(CAFE_1, model, x, baselines=baseline)
    assert result.conflicts > 100
    zero = audit(CAFE_1, model, x, baselines=torch.zeros(1, 4))
    assert (zero.conflicts, zero.underreported) == (audit(CAFE_1, model, x).conflicts, 0)
    with pytest.raises(ValueError, match="takes no baselines"):
        audit(InputXGradient, model, x, baselines=baseline)


def test_audit_of_outputs():
    def neuron(v):
        return torch.relu(0.9 * v[:, :1] - v[:, 1:])

    x = torch.ones(1, 2)
    assert audit_outputs(CAFE_1, neuron, x).underreported == 0
    hides = audit_outputs(InputXGradient, neuron, x)
    assert (hides.conflicts, hides.hidden) == (1, 1)
    assert hides.worst[0].magnitude == pytest.approx(0.9)
    net, rows = models.mlp(4, 6, 2), torch.randn(6, 4)
    assert audit_outputs(CAFE_1, net, rows, target=1).conflicts > 6
    assert audit_outputs(CAFE_1, net, rows, 1, torch.randn(1, 4).expand(6, 4)).conflicts > 6
    with pytest.raises(ValueError, match="too many"):
        audit_outputs(CAFE_1, models.mlp(20, 4, 1), torch.randn(1, 20))


def test_local_layers_of_exported_programs():
    from cafexai.conflicts.find_units import local_layers

    net, x = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU()), torch.randn(2, 1, 5, 5)
    (own,), (other,) = (local_layers(model, x) for model in (net, torch.export.export(net, (x,)).module()))
    assert torch.equal(own.inputs, other.inputs)
    assert torch.equal(own.weight, other.weight)
