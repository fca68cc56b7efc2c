"""The metrics: equal to Captum's and Quantus's for equal draws, and to what their definitions say."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from captum import metrics as captum
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import models
from cafexai import CAFE, metrics
from cafexai.methods import METHODS
from cafexai.models import FTTransformer


def noisy(x, generator):
    return x + 0.3 * torch.randn(x.shape, generator=generator, dtype=x.dtype)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("start", [None, 0.7])
@pytest.mark.parametrize("shape", [(7, 5), (3, 2, 4)])
def test_infidelity_is_captums(normalize, start, shape):
    width = torch.Size(shape[1:]).numel()
    model = nn.Sequential(nn.Flatten(), *models.mlp(width, 8, 3))
    x, scores = torch.randn(shape), torch.randn(shape)
    x.flatten()[3] = 0 if start is None else start  # where the share of a feature is not defined
    target = torch.arange(len(x)) % 3
    ours = metrics.infidelity(
        model, x, scores, noisy, target=target, baselines=start or 0.0, n_samples=6, normalize=normalize, seed=5
    )
    generator = torch.Generator().manual_seed(5)
    decorated = captum.infidelity_perturb_func_decorator(True)(lambda rows, *_: noisy(rows, generator))
    theirs = captum.infidelity(
        model, decorated, x, scores, baselines=start, target=target, n_perturb_samples=6, normalize=normalize
    )
    torch.testing.assert_close(ours, theirs.detach())


def test_infidelity_of_slopes():
    model, x = models.mlp(4, 8, 2), torch.randn(5, 4)
    scores = torch.randn(5, 4)
    ours = metrics.infidelity(
        model, x, scores, noisy, target=0, multiplies_by_inputs=False, normalize=False, n_samples=3, seed=1
    )
    generator = torch.Generator().manual_seed(1)
    decorated = captum.infidelity_perturb_func_decorator(False)(lambda rows: noisy(rows, generator))
    torch.testing.assert_close(ours, captum.infidelity(model, decorated, x, scores, target=0, n_perturb_samples=3).detach())


def test_infidelity_of_the_truth_is_zero_and_draws_are_shared():
    model, x = nn.Linear(4, 1), torch.randn(6, 4)
    true = x * model.weight.detach()
    wrong = torch.randn(6, 4)
    found = metrics.infidelity(model, x, {"true": true, "wrong": wrong}, noisy, normalize=False)
    assert found["true"].max() < 1e-20
    torch.testing.assert_close(found["wrong"], metrics.infidelity(model, x, wrong, noisy, normalize=False))
    assert (found["wrong"] > 0).all()


def test_infidelity_does_not_depend_on_how_rows_are_cut(monkeypatch):
    from cafexai.metrics import outputs

    model, x, scores = models.mlp(4, 8, 2), torch.randn(20, 4), torch.randn(20, 4)

    def by_row(rows, generator):
        return rows * 0.5

    whole = metrics.infidelity(model, x, scores, by_row, n_samples=3)
    monkeypatch.setattr(outputs, "AT_ONCE", 50)
    assert len(outputs.blocks_of_rows(x, 3)) > 2
    torch.testing.assert_close(metrics.infidelity(model, x, scores, by_row, n_samples=3), whole)


@pytest.mark.parametrize("name", ["cafe", "integrated_gradients"])
def test_max_sensitivity_is_captums(name):
    model, x, start = models.mlp(5, 8, 3), torch.randn(6, 5), torch.randn(6, 5)
    target = torch.tensor([0, 1, 2, 0, 1, 2])
    attribute = functools.partial(METHODS[name], model)
    ours = metrics.max_sensitivity(attribute, x, radius=0.1, n_samples=3, seed=2, target=target, baselines=start)
    generator = torch.Generator().manual_seed(2)

    def disturb(rows, radius):
        return rows + radius * (2 * torch.rand(rows.shape, generator=generator, dtype=rows.dtype) - 1)

    def captum_form(rows, target, baselines):
        rows = rows[0] if isinstance(rows, tuple) else rows
        return (attribute(rows, target=target, baselines=baselines[0] if isinstance(baselines, tuple) else baselines),)

    theirs = captum.sensitivity_max(captum_form, x, disturb, 0.1, 3, target=target, baselines=start)
    torch.testing.assert_close(ours, theirs)


def test_max_sensitivity_of_nothing_is_zero():
    assert metrics.max_sensitivity(torch.zeros_like, torch.randn(3, 2)).tolist() == [0, 0, 0]


def test_complexity_is_quantuss():
    import quantus

    scores = torch.randn(6, 1, 9)
    ours = metrics.complexity(scores)
    with np.errstate(all="ignore"):
        theirs = quantus.Complexity(abs=True, normalise=False, disable_warnings=True)(
            model=None, x_batch=scores.numpy(), y_batch=np.zeros(6, dtype=int), a_batch=scores.numpy().copy()
        )
    np.testing.assert_allclose(ours, theirs, atol=1e-9)
    assert metrics.complexity(torch.zeros(2, 3)).tolist() == [0, 0]
    assert metrics.complexity(torch.eye(3)).tolist() == [0, 0, 0]


@given(st.integers(1, 6), st.integers(0, 99))
def test_complexity_is_at_most_the_log_of_the_features(width, seed):
    scores = torch.randn(4, width, generator=torch.Generator().manual_seed(seed))
    assert (metrics.complexity(scores) <= np.log(width) + 1e-12).all()
    torch.testing.assert_close(metrics.complexity(torch.full((1, width), -2.0)), torch.tensor([np.log(width)]))


def test_rmse():
    found, true = torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.0, 2.0]])
    torch.testing.assert_close(metrics.rmse(found, true), torch.tensor([5.0, 2.0]).sqrt())
    with pytest.raises(ValueError, match="shape"):
        metrics.rmse(found, true[:1])


def test_completeness_error():
    model, x, start = models.mlp(4, 8, 3), torch.randn(5, 4), torch.randn(1, 4)
    scores = METHODS["deeplift_rescale"](model, x, target=1, baselines=start)
    assert metrics.completeness_error(model, x, scores, baselines=start, target=1).abs().max() < 1e-12
    e = CAFE(model).explain(x, target=1)
    bare = nn.Sequential(
        *(m if not isinstance(m, nn.Linear) else nn.Linear(m.in_features, m.out_features, False) for m in model)
    )
    for one, two in zip(bare, model, strict=True):
        if isinstance(one, nn.Linear):
            one.weight.data = two.weight.data
    with_bias = metrics.completeness_error(model, x, e.combined, target=1, bias=e.bias)
    torch.testing.assert_close(with_bias, e.output - e.baseline_output - (model(x) - model(0 * x))[:, 1].detach())
    mask = torch.tensor([0, 0, 1, 1])
    grouped = METHODS["kernel_shap"](model, x, target=1, feature_mask=mask)
    once = metrics.completeness_error(model, x, grouped, target=1, feature_mask=mask)
    assert once.abs().max() < 1e-4
    assert metrics.completeness_error(model, x, grouped, target=1).abs().max() > 1e-2


# ---- perturbations --------------------------------------------------------------------------------------------------
def test_tabular_perturbation():
    data = torch.cat([torch.randn(500, 2), nn.functional.one_hot(torch.randint(3, (500,)), 3), torch.randint(2, (500, 1))], 1)
    perturb = metrics.TabularPerturbation(data, [[2, 3, 4], [5]], std=0.5, flip=0.3)
    rows = data[:1].expand(20000, 6).contiguous()
    disturbed = perturb(rows, torch.Generator().manual_seed(0))
    noise = (disturbed - rows)[:, :2]
    assert noise.mean().abs() < 0.02
    assert noise.std().item() == pytest.approx(0.5, rel=0.02)
    block = disturbed[:, 2:5]
    assert (block.sum(1) == 1).all()
    assert set(block.unique().tolist()) == {0, 1}
    shares = data[:, 2:5].mean(0)
    own = int(rows[0, 2:5].argmax())
    changed = (block != rows[:, 2:5]).any(1).double().mean().item()
    assert changed == pytest.approx(0.3 * (1 - shares[own].item()), abs=0.02)
    assert set(disturbed[:, 5].unique().tolist()) <= {0, 1}
    assert torch.equal(disturbed, perturb(rows, torch.Generator().manual_seed(0)))
    assert torch.equal(rows, data[:1].expand(20000, 6))
    scaled = perturb.scaled(torch.tensor([2.0, 1.0, 1.0, 1.0, 1.0, 1.0]))(rows, torch.Generator().manual_seed(0))
    torch.testing.assert_close(scaled[:, 0] - rows[:, 0], 2 * noise[:, 0])
    assert metrics.TabularPerturbation.small(data).std == 0.5
    assert (metrics.TabularPerturbation.large(data).std, metrics.TabularPerturbation.large(data).flip) == (0.75, 0.2)
    with pytest.raises(ValueError, match="at most one block"):
        metrics.TabularPerturbation(data, [[1], [1, 2]])
    with pytest.raises(ValueError, match="PatchPerturbation"):
        perturb(torch.randn(2, 1, 4, 4), torch.Generator())


def test_patches():
    images = torch.ones(500, 3, 8, 10)
    disturbed = metrics.PatchPerturbation(size=3)(images, torch.Generator().manual_seed(0))
    holes = disturbed == 0
    assert (holes.sum((1, 2, 3)) == 27).all()
    assert (holes.any(1) == holes.all(1)).all()
    assert (holes.any((1, 3)).sum(1) == 3).all()
    assert (holes.any((0, 1))).all()  # every place is reached
    noise = metrics.PatchPerturbation(2, patches=2, fill=5.0, noise=0.1)(images, torch.Generator().manual_seed(0))
    assert ((noise - 5).abs() < 1).sum((1, 2, 3)).min() >= 12
    with pytest.raises(ValueError, match="images"):
        metrics.PatchPerturbation(9)(images, torch.Generator())


# ---- units ----------------------------------------------------------------------------------------------------------
class Odd(nn.Module):
    """No Sequential: one layer is called twice, another never, results come back in a dictionary."""

    def __init__(self):
        super().__init__()
        self.first, self.shared, self.unused = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.conv = nn.Conv1d(1, 2, 3)

    def forward(self, x):
        h = torch.relu(self.first(x))
        h = torch.relu(self.shared(torch.relu(self.shared(h))) + h)
        return self.conv(h[:, None]).flatten(1)


def test_units_of_any_model():
    model, x = Odd().eval(), torch.randn(3, 4)
    units = metrics.random_units(model, x, 200, seed=1)
    assert {(u.layer, u.call) for u in units} == {("first", 0), ("shared", 0), ("shared", 1), ("conv", 0)}
    assert {u.index for u in units if u.layer == "conv"} == {(i, j) for i in range(2) for j in range(4)}
    assert [str(u) for u in units] == [str(u) for u in metrics.random_units(model, x, 200, seed=1)]
    hidden = torch.relu(model.first(x))
    once = model.shared(hidden)
    expected = {("shared", 0): once, ("shared", 1): model.shared(torch.relu(once)), ("first", 0): model.first(x)}
    for unit in units:
        if unit.layer != "conv":
            torch.testing.assert_close(unit(x)[:, 0], expected[unit.layer, unit.call][:, unit.index[0]])
            e = CAFE(unit).explain(x)
            torch.testing.assert_close(e.output, unit(x)[:, 0].detach())
    assert not any(m._forward_hooks for m in model.modules())
    assert not any("call" in u.__dict__ and u.training for u in units)


def test_structural_infidelity():
    model, x = Odd().eval(), torch.randn(5, 4)
    methods = {"cafe": METHODS["cafe"], "ig": METHODS["integrated_gradients"]}
    found = metrics.structural_infidelity(methods, model, x, noisy, n_units=4, seed=3, n_samples=5)
    assert found["cafe"].shape == (5, 4)
    for number, unit in enumerate(metrics.random_units(model, x, 4, seed=3)):
        scores = METHODS["cafe"](unit, x, target=0)
        expected = metrics.infidelity(unit, x, scores, noisy, target=0, n_samples=5, seed=3 + number)
        torch.testing.assert_close(found["cafe"][:, number], expected)
    alone = metrics.structural_infidelity(METHODS["cafe"], model, x, noisy, n_units=4, seed=3, n_samples=5)
    torch.testing.assert_close(alone, found["cafe"])


def test_units_of_transformers_are_tokens_and_features():
    model, x = FTTransformer((1,) * 4, outputs=2, width=16, heads=4).eval(), torch.randn(3, 4)
    units = metrics.random_units(model, x, 40)
    assert {len(unit.index) for unit in units} == {1, 2}
    scores = METHODS["cafe"](units[0], x, target=0)
    assert scores.shape == x.shape


def test_units_are_refused_where_there_are_none():
    with pytest.raises(ValueError, match="layers of a torch module"):
        metrics.random_units(lambda x: x, torch.randn(2, 2))
    with pytest.raises(ValueError, match="none of the layers"):
        metrics.random_units(nn.ReLU(), torch.randn(2, 2))


def test_targets_are_checked():
    model, x = models.mlp(4, 6, 3), torch.randn(5, 4)
    for target in (3, torch.zeros(4, dtype=torch.long), (0, 0)):
        with pytest.raises(ValueError, match="target"):
            metrics.infidelity(model, x, torch.randn(5, 4), noisy, target=target)
    with pytest.raises(ValueError, match="attributions"):
        metrics.infidelity(model, x, torch.randn(5, 3), noisy)
    predicted = metrics.infidelity(model, x, x, noisy)
    torch.testing.assert_close(predicted, metrics.infidelity(model, x, x, noisy, target=model(x).argmax(1)))


def test_runtime_is_the_median_of_real_calls():
    calls = []
    assert metrics.runtime(lambda: calls.append(1), repeats=5) >= 0
    assert len(calls) == 5


def test_options_follow_the_rows_by_their_meaning():
    """A mask or a single baseline is no list of rows, also where there are as many features as rows."""
    model, x = models.mlp(4, 6, 3), torch.randn(4, 4)
    attribute = functools.partial(METHODS["lime"], model)
    mask, start = torch.tensor([0, 0, 1, 2]), torch.tensor([1.0, 2.0, 3.0, 4.0])
    found = metrics.max_sensitivity(attribute, x, target=np.array([0, 1, 2, 0]), baselines=start, feature_mask=mask)
    same = metrics.max_sensitivity(attribute, x, target=[0, 1, 2, 0], baselines=start.expand(4, 4), feature_mask=mask)
    torch.testing.assert_close(found, same)


def test_arrays_and_lists_are_taken():
    model, x = models.mlp(4, 6, 3), torch.randn(5, 4)
    scores = METHODS["cafe"](model, x, target=1)
    found = metrics.infidelity(model, x, scores.numpy(), noisy, target=1)
    torch.testing.assert_close(found, metrics.infidelity(model, x, scores, noisy, target=1))
    torch.testing.assert_close(metrics.rmse(scores.numpy(), (scores + 1).numpy()), torch.ones(4))
    metrics.completeness_error(model, x, scores.numpy(), target=1, feature_mask=[0, 0, 1, 1])
    perturb = metrics.TabularPerturbation(x, scale=[1.0, 2.0, 3.0, 4.0])
    assert perturb(x, torch.Generator()).shape == x.shape
    with pytest.raises(ValueError, match="perturb"):
        metrics.infidelity(model, x, scores, lambda rows, generator: (rows, rows), target=1)
    with pytest.raises(ValueError, match="target"):
        metrics.infidelity(model, x, scores, noisy, target=torch.full((5,), 1.7))


def test_layers_by_class_and_by_name():
    model, x = Odd().eval(), torch.randn(3, 4)
    assert {u.layer for u in metrics.random_units(model, x, 40, layers=nn.Conv1d)} == {"conv"}
    assert {u.layer for u in metrics.random_units(model, x, 40, layers="first")} == {"first"}
    assert {u.layer for u in metrics.random_units(model, x, 40, layers=["first", nn.Conv1d])} == {"first", "conv"}

    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.alone, self.used = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, v):
            return self.used(v) + self.alone(torch.ones(len(v), 4))

    assert {u.layer for u in metrics.random_units(Constant(), x, 30)} == {"used"}


def test_infidelity_of_no_scores_is_the_mean_square_change():
    """Nothing is fitted to zeros."""
    model, x = models.mlp(4, 6, 1), torch.randn(3, 4)
    zeros = torch.zeros_like(x)
    with_fit, without = (metrics.infidelity(model, x, zeros, noisy, normalize=fit, seed=2) for fit in (True, False))
    assert (without > 0).all()
    assert torch.equal(with_fit, without)


def test_metrics_refuse_other_shapes():
    model, x = models.mlp(4, 6, 2), torch.randn(3, 4)
    for perturb in (lambda rows, _: rows[:, :3], lambda rows, _: rows[:2], lambda rows, _: rows[..., None]):
        with pytest.raises(ValueError, match="give perturbed rows of shape"):
            metrics.infidelity(model, x, x, perturb, target=0)
    for odd in (lambda v: model(v)[:1], lambda v: model(v).sum(), lambda v: [model(v)]):
        with pytest.raises(ValueError, match="one entry per row"):
            metrics.infidelity(odd, x, x, noisy, target=0)
    for blocks in ([[9]], [[4]], [[-1]], [[0], [0, 1]]):
        with pytest.raises(ValueError, match="at most one block"):
            metrics.TabularPerturbation(x, blocks)
