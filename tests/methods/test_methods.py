"""Every method: its exact answers, its naive twin, its agreement with Captum where Captum is right."""

from __future__ import annotations

import functools
import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from captum.attr import (
    LRP,
    DeepLift,
    GradientShap,
    InputXGradient,
    KernelShap,
    Lime,
    NoiseTunnel,
    Saliency,
    ShapleyValueSampling,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import cafexai
import models
import naive_methods
from cafexai import CAFE, UnsupportedOperation, from_sklearn
from cafexai._carriers import CARRIERS as NETTINGS
from cafexai.methods import METHODS
from cafexai.methods import sampling as batched
from cafexai.methods.case import case
from cafexai.methods.deeplift import RelevanceScores, RescaleScores, RevealCancelScores
from cafexai.models import FTTransformer

CARRIERS = {
    "deeplift_rescale": RescaleScores,
    "deeplift_revealcancel": RevealCancelScores,
    "lrp": RelevanceScores,
}
CHANCE = ["cafe_refined", "gradient_shap", "smoothgrad", "kernel_shap", "shapley_value_sampling", "lime"]


def explosion(x):
    return F.gelu(50 * x[:, :1] - 51 * x[:, 1:])


def xnor(x):
    return 1 - F.relu(x[:, :1] - x[:, 1:]) - F.relu(x[:, 1:] - x[:, :1])


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("gradient_x_input", -8.52, 8.69),
        ("lrp", 2.28, -2.32),
        ("deeplift_rescale", -5.66, 5.77),
        ("integrated_gradients", -5.66, 5.77),
        ("deeplift_revealcancel", 24.56, -24.44),
    ],
)
def test_the_papers_gelu_unit(name, first, second):
    scores = METHODS[name](explosion, torch.tensor([[2.0, 2.0]]), baselines=torch.tensor([[1.0, 1.0]]))
    assert scores[0].tolist() == pytest.approx([first, second], abs=0.005)


@pytest.mark.parametrize(
    "name", ["gradient_x_input", "lrp", "deeplift_rescale", "integrated_gradients", "deeplift_revealcancel"]
)
def test_the_papers_xnor(name):
    assert METHODS[name](xnor, torch.ones(1, 2)).tolist() == [[0, 0]]


def test_one_signature():
    for name, method in METHODS.items():
        parameters = inspect.signature(method).parameters
        assert list(parameters)[:5] == ["model", "x", "target", "baselines", "feature_groups"], name
        assert all(
            parameters[p].kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD) for p in list(parameters)[2:]
        ), name
        assert all(parameters[p].default is None for p in ("target", "baselines", "feature_groups")), name
        assert ("seed" in parameters) == (name in CHANCE), name


@pytest.mark.parametrize("name", METHODS)
def test_shape_target_and_nothing_left_behind(name):
    model, x = models.mlp(5, 8, 8, 3), torch.randn(4, 5)
    torch.manual_seed(7)
    np.random.seed(7)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    hooks = [len(m._forward_hooks) for m in model.modules()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = METHODS[name](model, x, baselines=0.5, feature_mask=torch.tensor([0, 1, 1, 2, 3]))
    assert scores.shape == x.shape
    assert not scores.requires_grad
    torch.testing.assert_close(
        scores, METHODS[name](model, x, target=model(x).argmax(1), baselines=0.5, feature_mask=torch.tensor([[0, 1, 1, 2, 3]]))
    )
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert [len(m._forward_hooks) for m in model.modules()] == hooks
    with torch.no_grad():
        assert METHODS[name](model, x, target=2).shape == x.shape
    assert METHODS[name](model, x[:1], target=[1]).shape == (1, 5)


@pytest.mark.parametrize("name", METHODS)
def test_outputs_of_other_shapes(name):
    x = torch.randn(3, 4)
    one = models.mlp(4, 6, 1)
    flat = nn.Sequential(*one, nn.Flatten(0)).eval()
    torch.testing.assert_close(METHODS[name](one, x), METHODS[name](flat, x))
    wide = nn.Sequential(*models.mlp(4, 6, 6), nn.Unflatten(1, (2, 3))).eval()
    torch.testing.assert_close(METHODS[name](wide, x, target=(1, 2)), METHODS[name](wide[:-1], x, target=5))


@pytest.mark.parametrize("name", CHANCE)
def test_seeds(name):
    model, x = models.mlp(6, 8, 3), torch.randn(5, 6)
    again = [METHODS[name](model, x, target=0, seed=seed) for seed in (3, 3, 4)]
    assert torch.equal(again[0], again[1])
    assert not torch.equal(again[0], again[2])


@pytest.mark.parametrize("name", METHODS)
def test_bad_input_is_named(name):
    model = models.mlp(4, 6, 3)
    with pytest.raises(ValueError, match="floating point"):
        METHODS[name](model, torch.ones(2, 4, dtype=torch.long))
    with pytest.raises(ValueError, match="out of range"):
        METHODS[name](model, torch.randn(2, 4), target=3)
    with pytest.raises(ValueError, match="nan"):
        METHODS[name](model, torch.full((2, 4), torch.nan))


def test_masks_are_checked():
    model, x = models.mlp(4, 6, 3), torch.randn(2, 4)
    for word in ("feature_groups", "feature_mask"):  # the second is the old word
        with pytest.raises(ValueError, match="feature_groups"):
            METHODS["lime"](model, x, **{word: torch.zeros(3, dtype=torch.long)})
    with pytest.raises(ValueError, match="Give one of the two"):
        METHODS["lime"](model, x, feature_groups=[0, 0, 1, 1], feature_mask=[0, 0, 1, 1])
    with pytest.raises(TypeError, match="unexpected keyword argument 'samples'"):
        METHODS["lime"](model, x, samples=3)


def test_groups_by_name_and_by_mask():
    model, x, mask = models.mlp(4, 6, 3), torch.randn(2, 4), torch.tensor([0, 0, 1, 2])
    by_name = METHODS["kernel_shap"](model, x, target=1, feature_groups={"first two": [0, 1]})
    torch.testing.assert_close(by_name, METHODS["kernel_shap"](model, x, target=1, feature_mask=mask))
    assert METHODS["lime"] is cafexai.methods.lime
    assert "lime" in dir(cafexai.methods)
    with pytest.raises(AttributeError, match="kernel_shap"):
        _ = cafexai.methods.limes


# ---- DeepLIFT -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.ELU, nn.LeakyReLU])
def test_rescale_equals_captum_on_modules(activation):
    model, x, start = models.mlp(5, 16, 16, 3, activation=activation), torch.randn(6, 5), torch.randn(6, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = DeepLift(model).attribute(x, start, target=1).detach()
    torch.testing.assert_close(METHODS["deeplift_rescale"](model, x, target=1, baselines=start), expected)


@pytest.mark.parametrize("name", ["deeplift_rescale", "deeplift_revealcancel"])
@pytest.mark.parametrize("activation", models.ACTIVATIONS)
def test_deeplift_is_complete_on_functional_and_reused_layers(name, activation):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.out = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)
            self.act = activation()

        def forward(self, x):
            hidden = self.act(self.one(x))
            return self.out(F.gelu(self.act(self.two(hidden)) + hidden))

    model, x, start = Net().eval(), torch.randn(5, 4), torch.randn(5, 4)
    change = (model(x) - model(start))[:, 1]
    torch.testing.assert_close(METHODS[name](model, x, target=1, baselines=start).sum(1), change.detach())


@pytest.mark.parametrize("name", ["deeplift_rescale", "deeplift_revealcancel"])
@pytest.mark.parametrize("build", [lambda: models.ResidualCNN(2, (1, 1)), models.Mixed])
def test_deeplift_is_complete_on_convolutional_nets(name, build):
    channels = 3 if build is not models.Mixed else 1
    model = (
        models.with_statistics(build(), 4, channels, 16, 16) if channels == 3 else models.with_statistics(build(), 4, 1, 8, 8)
    )
    shape = (2, channels, 16, 16) if channels == 3 else (2, 1, 8, 8)
    x, start = torch.randn(shape), torch.randn(shape)
    scores = METHODS[name](model, x, target=1, baselines=start)
    torch.testing.assert_close(scores.flatten(1).sum(1), (model(x) - model(start))[:, 1].detach())


class Attentive(nn.Module):
    """One attention block that can keep its pattern and the statistics of its norm."""

    def __init__(self, tokens=4, width=6):
        super().__init__()
        self.embed, self.place = nn.Parameter(torch.randn(tokens, width)), nn.Parameter(torch.randn(tokens, width))
        self.qkv, self.out, self.head = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 2)
        self.weight, self.bias = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width))

    def forward(self, x, kept=None):
        tokens = x[..., None] * self.embed + self.place
        q, k, v = self.qkv(tokens).chunk(3, -1)
        pattern = torch.softmax(q @ k.mT / 6**0.5, -1) if kept is None else kept["pattern"]
        y = tokens + self.out(pattern @ v)
        if kept is None:
            normed = F.layer_norm(y, (6,), self.weight, self.bias)
        else:
            normed = (y - kept["mean"]) * kept["scale"] * self.weight + self.bias
        return self.head(F.gelu(normed)).mean(1)

    def statistics(self, x):
        tokens = x[..., None] * self.embed + self.place
        q, k, v = self.qkv(tokens).chunk(3, -1)
        pattern = torch.softmax(q @ k.mT / 6**0.5, -1)
        y = tokens + self.out(pattern @ v)
        return {
            "pattern": pattern,
            "mean": y.mean(-1, keepdim=True),
            "scale": (y.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt(),
        }


@pytest.mark.parametrize("name", ["deeplift_rescale", "deeplift_revealcancel"])
def test_deeplift_with_frozen_attention_adds_up_to_the_frozen_model(name):
    model, x, start = Attentive().eval(), torch.randn(3, 4), torch.randn(3, 4)
    frozen = model(start, model.statistics(x))
    scores = METHODS[name](model, x, target=1, baselines=start)
    torch.testing.assert_close(scores.sum(1), (model(x) - frozen)[:, 1].detach())


@pytest.mark.parametrize("name", ["deeplift_rescale", "deeplift_revealcancel", "lrp"])
def test_ft_transformers(name, monkeypatch):
    model = FTTransformer((1,) * 6, outputs=2, width=16, heads=4, blocks=2).eval()
    x, start = torch.randn(3, 6), torch.randn(3, 6)
    explainer = CAFE(model, variant="published", biases="scores" if name == "lrp" else "reference")
    monkeypatch.setitem(NETTINGS, "path", CARRIERS[name])
    scores, lack = explainer.attribute(x, None if name == "lrp" else start, 1, return_convergence_delta=True)
    torch.testing.assert_close(scores, METHODS[name](model, x, target=1, baselines=start))
    assert lack.abs().max() < 1e-10
    assert (scores != 0).all()


@settings(max_examples=60)
@given(
    st.lists(st.floats(-3, 3, width=16, allow_subnormal=False), min_size=2, max_size=5),
    st.floats(-2, 2, width=16, allow_subnormal=False),
    st.sampled_from([torch.relu, F.gelu, torch.tanh, torch.sigmoid]),
)
def test_revealcancel_on_single_units_is_the_mean_of_both_orders(inputs, start, phi):
    weights = torch.tensor(inputs, dtype=torch.float64)
    x = torch.ones(1, len(inputs), dtype=torch.float64)
    of_up, of_down, up, down = naive_methods.reveal_cancel_unit(phi, torch.tensor(start, dtype=torch.float64), weights)
    scores = METHODS["deeplift_revealcancel"](lambda v: phi(v @ weights[:, None] + start) @ torch.ones(1, 1), x)[0]
    for weight, score in zip(weights, scores, strict=True):
        expected = of_up * weight / up if weight > 0 else of_down * weight / down if weight < 0 else torch.tensor(0.0)
        torch.testing.assert_close(score, expected.to(score), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU, nn.Tanh])
def test_revealcancel_equals_its_naive_twin_on_deep_nets(activation):
    model, x, start = models.mlp(4, 6, 5, 2, activation=activation), torch.randn(4, 4), torch.randn(4, 4)
    x[0, 1] = start[0, 1]  # a feature that does not change
    scores = METHODS["deeplift_revealcancel"](model, x, target=1, baselines=start)
    with torch.no_grad():
        expected = torch.stack([naive_methods.reveal_cancel(model, a, b, 1) for a, b in zip(x, start, strict=True)])
    torch.testing.assert_close(scores, expected)


def test_several_baselines_are_averaged():
    model, x, stack = models.mlp(4, 6, 2), torch.randn(3, 4), torch.randn(2, 1, 4)
    for name in ("deeplift_rescale", "integrated_gradients", "kernel_shap", "cafe"):
        apart = [METHODS[name](model, x, target=0, baselines=one) for one in stack]
        torch.testing.assert_close(METHODS[name](model, x, target=0, baselines=stack), sum(apart) / 2)


# ---- LRP and biases -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.GELU])
def test_lrp_equals_its_naive_twin(activation):
    model, x = models.mlp(4, 6, 5, 2, activation=activation), torch.randn(4, 4)
    with torch.no_grad():
        expected = torch.stack([naive_methods.relevance(model, row, 1) for row in x])
    torch.testing.assert_close(METHODS["lrp"](model, x, target=1), expected)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_lrp_equals_captums(activation):
    model, x = models.mlp(5, 16, 16, 3, activation=activation), torch.randn(6, 5)
    expected = LRP(model).attribute(x, target=1).detach()
    torch.testing.assert_close(METHODS["lrp"](model, x, target=1), expected, atol=1e-6, rtol=1e-5)  # Captum's epsilon is 1e-9


def test_lrp_of_relu_nets_is_gradient_times_input():
    model, x = models.with_statistics(models.ResidualCNN(2, (1, 1)), 4, 3, 16, 16), torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(METHODS["lrp"](model, x, target=1), InputXGradient(model).attribute(x, target=1).detach())


def test_lrp_where_a_function_of_zero_is_not_zero():
    model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.Sigmoid(), nn.Linear(3, 1)).eval()
    scores = METHODS["lrp"](model, torch.tensor([[0.0, 0.0], [1.0, -1.0]]))
    assert scores[0].tolist() == [0, 0]


def test_bias_backpropagation_equals_its_naive_twin():
    model, x = models.mlp(4, 6, 5, 2), torch.randn(5, 4)
    with torch.no_grad():
        parts = [naive_methods.handed_down_biases(model, row, 1) for row in x]
    torch.testing.assert_close(
        METHODS["bias_backpropagation"](model, x, target=1, bias_only=True), torch.stack([b for _, b in parts])
    )
    torch.testing.assert_close(METHODS["bias_backpropagation"](model, x, target=1), torch.stack([a + b for a, b in parts]))


@pytest.mark.parametrize(
    "build",
    [
        lambda: models.ResidualCNN(2, (1, 1)),
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.Hardtanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(196, 3), nn.Softmax(1)
        ),
    ],
)
def test_bias_backpropagation_adds_up_to_the_output(build):
    model = models.with_statistics(build(), 4, 3, 16, 16)
    x = torch.randn(2, 3, 16, 16)
    inner = model[:-1] if isinstance(model, nn.Sequential) else model
    scores = METHODS["bias_backpropagation"](model, x, target=1)
    torch.testing.assert_close(scores.flatten(1).sum(1), inner(x)[:, 1].detach())


def test_bias_backpropagation_refuses_what_is_not_piecewise_linear():
    for model in (models.mlp(4, 6, 2, activation=nn.GELU), FTTransformer((1,) * 4, outputs=2, width=16, heads=4).eval()):
        with pytest.raises(UnsupportedOperation, match="piecewise linear"):
            METHODS["bias_backpropagation"](model, torch.randn(2, 4))


# ---- KernelSHAP and LIME --------------------------------------------------------------------------------------------
MASKS = [None, torch.tensor([0, 0, 1, 2, 3, 3])]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("n_samples", [5, 40])
def test_kernel_shap_equals_captums_for_equal_draws(mask, n_samples):
    torch.set_default_dtype(torch.float32)
    model, x, start = models.mlp(6, 16, 3), torch.randn(4, 6), torch.randn(4, 6)
    given_case = case("kernel_shap", model, x, start, mask, 1).aim()
    on = batched.kernel_shap_draws(4, int(given_case.groups.max()) + 1, n_samples)
    ours = batched._mean_over_baselines(given_case, on, batched.kernel_shap_scores)
    replay = iter(on.long().flatten(0, 1)[:, None])
    theirs = KernelShap(model)
    theirs.perturb_func = lambda *_, **__: next(replay)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = theirs.attribute(x, start, 1, feature_mask=None if mask is None else mask[None], n_samples=n_samples)
    torch.testing.assert_close(ours, expected, atol=2e-4, rtol=1e-3)  # Captum solves in float32 with weights of a million


@pytest.mark.parametrize("mask", MASKS)
def test_lime_equals_captums_for_equal_draws(mask):
    torch.set_default_dtype(torch.float32)
    model, x, start = models.mlp(6, 16, 3), torch.randn(4, 6), torch.randn(4, 6)
    given_case = case("lime", model, x, start, mask, 1).aim()
    on = torch.rand(4, 25, int(given_case.groups.max()) + 1) < 0.5
    ours = batched._mean_over_baselines(given_case, on, batched.lime_scores, 0.01)
    replay = iter(on.long().flatten(0, 1)[:, None])
    theirs = Lime(model, perturb_func=lambda *_, **__: next(replay))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = theirs.attribute(x, start, 1, feature_mask=None if mask is None else mask[None], n_samples=25)
    torch.testing.assert_close(ours, expected, atol=1e-3, rtol=1e-2)  # scikit-learn stops at a duality gap of 1e-4


def test_kernel_shap_with_many_coalitions_gives_shapley_values():

    def model(x):
        return (x[:, :1] * x[:, 1:2]).relu() + x[:, 2:] ** 2

    x = torch.tensor([[1.0, 2.0, 3.0]])
    scores = METHODS["kernel_shap"](model, x, n_samples=4000)
    assert scores[0].tolist() == pytest.approx([1, 1, 9], abs=0.05)


def test_the_draws_of_kernel_shap():
    on = batched.kernel_shap_draws(200, 5, 52)
    assert on[:, 0].all()
    assert not on[:, 1].any()
    sizes = on[:, 2:].sum(-1).flatten().bincount(minlength=6)[1:5].double()
    weights = 1 / (torch.arange(1, 5) * (5 - torch.arange(1, 5))).double()
    torch.testing.assert_close(sizes / sizes.sum(), weights / weights.sum(), atol=0.02, rtol=0)
    assert batched.kernel_shap_draws(2, 1, 5).shape == (2, 5, 1)


# ---- as people use them ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", METHODS)
def test_pipelines_transform_rows_and_baselines_once(name):
    x = np.random.RandomState(0).randn(40, 4) * 5 + 3
    pipeline = make_pipeline(StandardScaler(), MLPClassifier((6,), max_iter=30, random_state=0)).fit(x, np.arange(40) % 3)
    whole, bare, scaled = from_sklearn(pipeline), from_sklearn(pipeline[-1]), torch.tensor(pipeline[0].transform(x[:6]))
    start = pipeline[0].transform(x[:1])
    expected = METHODS[name](bare, scaled, target=1, baselines=torch.tensor(start))
    torch.testing.assert_close(METHODS[name](whole, x[:6], target=1, baselines=pd.DataFrame(x[:1])), expected)


@pytest.mark.parametrize("name", ["cafe", "integrated_gradients", "deeplift_rescale", "lime"])
def test_frames_go_by_their_names(name):
    model, rows = models.mlp(4, 6, 3), pd.DataFrame(np.random.RandomState(0).randn(5, 4), columns=list("abcd"))
    start = pd.DataFrame([[1.0, 2.0, 3.0, 4.0]], columns=list("abcd"))
    expected = METHODS[name](model, torch.tensor(rows.values), target=1, baselines=torch.tensor(start.values))
    torch.testing.assert_close(METHODS[name](model, rows, target=1, baselines=start[list("dcba")]), expected)


@pytest.mark.parametrize("name", METHODS)
def test_gradients_may_be_switched_off(name):
    model, x = models.mlp(4, 6, 3), torch.randn(3, 4)
    with torch.inference_mode():
        inside = METHODS[name](model, x.clone(), target=1)
    torch.testing.assert_close(inside.clone(), METHODS[name](model, x, target=1))


@pytest.mark.parametrize("name", METHODS)
def test_precision_and_dictionaries_are_named(name):
    model, x = models.mlp(4, 6, 3), torch.randn(3, 4)
    with pytest.raises(ValueError, match="convert one"):
        METHODS[name](model, x.float())
    if name in ("kernel_shap", "gradient_x_input"):
        with pytest.raises(ValueError, match="logits"):
            METHODS[name](lambda v: {"logits": model(v)}, x)


@pytest.mark.parametrize("name", ["deeplift_rescale", "deeplift_revealcancel"])
@pytest.mark.parametrize(
    "choice", [lambda h: torch.where(h > 0, h, 0), lambda h: h * (h > 0), lambda h: h / (1 + h.exp()), lambda h: h.detach() + h]
)
def test_deeplift_refuses_choices_that_it_cannot_follow(name, choice):
    one, two = nn.Linear(4, 8), nn.Linear(8, 2)
    x, start = torch.randn(5, 4), torch.randn(5, 4)
    with pytest.raises(UnsupportedOperation, match="one elementwise function"):
        METHODS[name](lambda v: two(choice(one(v))), x, target=1, baselines=start)


def test_deeplift_takes_comparisons_that_change_nothing():
    model, x = models.mlp(4, 6, 3), torch.randn(3, 4)

    def checked(v):
        assert bool((v.abs() < 100).all())
        return model(v)

    torch.testing.assert_close(METHODS["deeplift_rescale"](checked, x), METHODS["deeplift_rescale"](model, x))


def test_rescale_of_small_changes():
    """The quotient of a change near rounding has no digits left; the slope has."""
    torch.manual_seed(1)
    model, x = models.mlp(5, 32, 32, 2, activation=nn.Tanh), torch.randn(20, 5)
    start = x + 1e-5 * torch.randn(20, 5)
    exact = METHODS["deeplift_rescale"](model, x, target=1, baselines=start)
    single = METHODS["deeplift_rescale"](model.float(), x.float(), target=1, baselines=start.float())
    exact = METHODS["deeplift_rescale"](model.double(), x.float().double(), target=1, baselines=start.float().double())
    assert ((single - exact).abs().max() / exact.abs().max()).item() < 3e-5


def test_revealcancel_passes_the_parts_of_winners_and_nets_those_of_products():
    x, w = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[2.0, -1.0, 0.5], [1.0, 1.0, -2.0]])

    def pooled(v):
        return torch.relu((v @ w.T).amax(1, keepdim=True) - 0.2)

    of_up, of_down, up, down = naive_methods.reveal_cancel_unit(torch.relu, torch.tensor(-0.2), [2.0, -2.0, 1.5])
    expected = [of_up * 2 / up, of_down * -2 / down, of_up * 1.5 / up]
    torch.testing.assert_close(METHODS["deeplift_revealcancel"](pooled, x)[0], torch.stack(expected))

    def gated(v):
        return torch.relu((v[:, :1] - v[:, 1:2]) * v[:, 2:] + 1.0)

    scores = METHODS["deeplift_revealcancel"](gated, x)
    torch.testing.assert_close(scores.sum(), torch.tensor(-1.0))  # relu(1 - 3) - relu(1)
    # (v0 - v1) changes by -1 and v2 by 3: both halves of the product are -1.5, on one side, so nothing is revealed
    torch.testing.assert_close(scores[0], torch.tensor([0.5, -1.0, -0.5]))


def test_revealcancel_computes_each_part_once():
    def doubled(v):
        for _ in range(40):
            v = v + 0.1 * v
        return torch.relu(v).sum(1)

    x = torch.rand(2, 3)
    torch.testing.assert_close(METHODS["deeplift_revealcancel"](doubled, x).sum(1), doubled(x))


def test_bias_backpropagation_of_residual_sums_and_idle_units():
    first, second = nn.Linear(3, 3), nn.Linear(3, 1)
    x = torch.tensor([[1.0, -2.0, 0.5]])
    scores = METHODS["bias_backpropagation"](lambda v: second(v + first(v)), x, bias_only=True)
    with torch.no_grad():
        inner = first(x)
        weights = (second.weight * (x + inner)).abs()[0]
        amount = second.bias * weights / weights.sum()  # at the sums
        share = x.abs() / (x.abs() + inner.abs())
        own = amount * share[0]
        below = amount * (1 - share[0]) + second.weight[0] * first.bias
        edges = (first.weight * x).abs()
        expected = own + (below[:, None] * edges / edges.sum(1, keepdim=True)).sum(0)
    torch.testing.assert_close(scores[0], expected)
    zeros = METHODS["bias_backpropagation"](nn.Sequential(first, nn.ReLU(), second), torch.zeros(1, 3))
    torch.testing.assert_close(zeros.sum(), second(torch.relu(first.bias)).detach()[0])


def test_bias_backpropagation_and_the_end_of_the_model():
    inner, x = models.mlp(4, 6, 3), torch.randn(3, 4)
    expected = METHODS["bias_backpropagation"](inner, x, target=1)
    for last in (nn.Softmax(1), nn.LogSoftmax(1), nn.Sigmoid()):
        torch.testing.assert_close(METHODS["bias_backpropagation"](nn.Sequential(inner, last), x, target=1), expected)
    gate, out = nn.Linear(4, 4), nn.Linear(4, 3)
    for model in (
        lambda v: torch.softmax(out(v * torch.softmax(gate(v), 1)), 1),
        lambda v: out(torch.sigmoid(gate(v))),
        nn.Sequential(inner, nn.Softplus(beta=20)),
    ):
        with pytest.raises(UnsupportedOperation, match="piecewise linear"):
            METHODS["bias_backpropagation"](model, x, target=1)


# ---- against Captum, for equal seeds --------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", [0, 3])
def test_methods_with_chance_are_captums(seed):
    model, x, start = models.mlp(6, 16, 3), torch.randn(4, 6), torch.randn(1, 6)
    mask = torch.tensor([0, 0, 1, 2, 3, 3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        np.random.seed(seed)
        shap = GradientShap(model).attribute(x, start, target=1).detach()
        torch.manual_seed(seed)
        slopes = NoiseTunnel(Saliency(model)).attribute(x, target=1)
        torch.manual_seed(seed)
        sampled = ShapleyValueSampling(model).attribute(x, start, target=1, feature_mask=mask[None])
    torch.testing.assert_close(METHODS["gradient_shap"](model, x, target=1, baselines=start, seed=seed), shap)
    torch.testing.assert_close(METHODS["smoothgrad"](model, x, target=1, seed=seed), (slopes * x).detach())
    ours = METHODS["shapley_value_sampling"](model, x, target=1, baselines=start, feature_mask=mask, seed=seed)
    torch.testing.assert_close(ours, sampled.to(ours), atol=1e-5, rtol=1e-5)  # Captum adds up in float32
    assert ours.dtype == x.dtype


def test_integrated_gradients_in_parts(monkeypatch):
    from cafexai.methods import gradients

    model, x, start = models.mlp(4, 8, 3), torch.randn(7, 4), torch.randn(7, 4)
    whole = METHODS["integrated_gradients"](model, x, baselines=start)
    monkeypatch.setattr(gradients, "AT_ONCE", 400)
    torch.testing.assert_close(METHODS["integrated_gradients"](model, x, baselines=start), whole)


def test_too_few_samples_are_named():
    for name, n in (("kernel_shap", 2), ("lime", 0), ("shapley_value_sampling", 0)):
        with pytest.raises(ValueError, match="at least"):
            METHODS[name](models.mlp(4, 6, 3), torch.randn(2, 4), n_samples=n)


def test_cafe_is_cafe():
    model, x, start = models.mlp(5, 8, 3), torch.randn(4, 5), torch.randn(1, 5)
    for c in (0.0, 0.5, 1.0):
        expected = CAFE(model, c).explain(x, start, 1).combined
        torch.testing.assert_close(functools.partial(METHODS["cafe"], c=c)(model, x, target=1, baselines=start), expected)
