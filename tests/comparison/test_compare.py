"""Comparing methods end to end, and our scores in the hands of SHAP, Quantus and Captum."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import models
from cafexai import CAFE, compare, from_sklearn, metrics
from cafexai.adapters import captum_attribution, quantus_explain, quantus_table
from cafexai.comparison import Comparison, default_methods
from cafexai.methods import METHODS


@pytest.fixture(scope="module")
def wine():
    torch.set_default_dtype(torch.float64)
    table = load_wine()
    x = StandardScaler().fit_transform(table.data)
    fitted = MLPClassifier((16, 8), random_state=0, max_iter=400).fit(x, table.target)
    return from_sklearn(fitted), torch.tensor(x[:40]), list(table.feature_names)


def test_compare_on_scikit_learn_data(wine):
    model, x, _ = wine
    result = compare(model, x, seeds=(0, 1), show_progress=False)
    assert not result.reasons
    assert set(result.values) == set(default_methods()) == set(result.seconds)
    assert result.metrics == ("infidelity", "infidelity_as_is", "max_sensitivity", "complexity", "completeness_error")
    assert result.against == "cafe c=0.5"
    for name in result.values:
        for metric in result.metrics:
            assert result.values[name][metric].shape == (40,)
            assert result.values[name][metric].isfinite().all()
    perturb = metrics.TabularPerturbation.small(x, scale=x.std(0))
    logits = CAFE(model).model
    scores = METHODS["cafe"](model, x, c=1.0)
    by_hand = [metrics.infidelity(logits, x, scores, perturb, seed=seed) for seed in (0, 1)]
    torch.testing.assert_close(result.values["cafe c=1"]["infidelity"], (by_hand[0] + by_hand[1]) / 2)
    frame = result.to_frame()
    assert list(frame.index) == list(default_methods())
    assert frame.loc["cafe c=0.5", "infidelity"] == pytest.approx(result.values["cafe c=0.5"]["infidelity"].mean().item())
    assert sorted(frame["infidelity place"].dropna().unique()) == [1, 2]
    assert np.isnan(frame.loc["cafe c=0.5", "infidelity p"])
    assert 0 <= frame.loc["lime", "infidelity p"] <= 1
    text = result.to_markdown()
    assert text.count("**") >= 2 * 3
    assert "cafe c=0.5" in text
    assert "<u>" in text
    assert len(result.plot().axes) == 6


def test_a_method_that_cannot_run_is_a_line_with_its_reason():
    model, x = models.mlp(4, 6, 2, activation=nn.GELU), torch.randn(6, 4)

    def broken(model, x, *, target=None, baselines=None, feature_mask=None):
        return x[:, :2]

    methods = {"ours": METHODS["cafe"], "bbp": METHODS["bias_backpropagation"], "broken": broken}
    result = compare(model, x, methods=methods, metrics=["complexity"], show_progress=False)
    assert set(result.reasons) == {"bbp", "broken"}
    assert "piecewise linear" in result.reasons["bbp"]
    assert "shaped like x" in result.reasons["broken"]
    lines = result.to_markdown().splitlines()
    width = lines[0].count("|")
    assert all(line.count("|") == width for line in lines[:5])
    assert "piecewise linear" in result.to_frame().loc["bbp", "reason"]
    assert len(result.plot().axes) == 2


def test_ties_and_tests():
    model, x = models.mlp(4, 6, 2, bias=False), torch.randn(30, 4)
    methods = {
        "cafe 0": functools.partial(METHODS["cafe"], c=0.0, variant="published"),
        **{n: METHODS[n] for n in ("gradient_x_input", "smoothgrad")},
    }
    result = compare(model, x, 1, methods, ["infidelity"], show_progress=False)
    assert result.best("infidelity") == (("cafe 0", "gradient_x_input"), ("smoothgrad",))
    assert result.p_value("gradient_x_input", "infidelity") == 1
    assert result.p_value("smoothgrad", "infidelity") < 0.05
    assert "\\*" in next(line for line in result.to_markdown().splitlines() if line.startswith("| smoothgrad"))


def test_groups_truth_units_and_images():
    weights = torch.tensor([[1.0, -2.0, 0.5, 3.0]])
    model = nn.Linear(4, 1, bias=False)
    model.weight.data = weights
    x = torch.randn(12, 4)
    result = compare(
        model,
        x,
        methods=["cafe", "kernel_shap"],
        metrics=["completeness_error", "structural_infidelity", "rmse"],
        feature_mask=torch.tensor([0, 1, 2, 2]),
        truth=x * weights,
        n_units=2,
        show_progress=False,
    )
    assert result.values["cafe"]["rmse"].shape == (4,)
    assert result.mean("cafe", "rmse") < 1e-12
    assert result.mean("kernel_shap", "completeness_error") < 1e-6
    assert result.mean("cafe", "structural_infidelity") < 1e-12
    cnn = models.with_statistics(models.Mixed(), 4, 1, 8, 8)
    images = compare(cnn, torch.randn(3, 1, 8, 8), 0, ["cafe", "deeplift_revealcancel"], ["infidelity"], show_progress=False)
    assert images.values["cafe"]["infidelity"].shape == (3,)
    one = compare(model, x[:1], methods=["cafe", "lrp"], metrics=["complexity"], show_progress=False)
    assert np.isnan(one.standard_error("lrp", "complexity"))
    assert "1 row," in one.to_markdown()


def test_pipelines_are_compared_on_their_rows():
    table = load_wine()
    pipeline = make_pipeline(StandardScaler(), MLPClassifier((8,), random_state=0, max_iter=100)).fit(table.data, table.target)
    options = {"methods": ["cafe", "integrated_gradients"], "show_progress": False, "metrics": ["infidelity"]}
    whole = compare(from_sklearn(pipeline), table.data[:20], 1, **options)
    bare = compare(from_sklearn(pipeline[-1]), torch.tensor(pipeline[0].transform(table.data[:20])), 1, **options)
    for name in ("cafe", "integrated_gradients"):
        torch.testing.assert_close(whole.values[name]["infidelity"], bare.values[name]["infidelity"])


def test_one_failing_method_does_not_cost_the_others():
    model, x = models.mlp(4, 6, 2), torch.randn(6, 4)

    def flaky(model, x, *, target=None, baselines=None, feature_mask=None):
        if len(x) > 6:
            raise RuntimeError("too many rows")
        return x

    result = compare(model, x, methods={"cafe": METHODS["cafe"], "flaky": flaky}, seeds=0, show_progress=False)
    assert result.values["flaky"]["infidelity"].shape == (6,)
    assert "max_sensitivity" not in result.values["flaky"]
    assert "max_sensitivity" in result.values["cafe"]
    assert "No max-sensitivity of flaky: RuntimeError: too many rows" in str(result)
    function = compare(
        lambda v: model(v), x, methods=["cafe"], metrics=["infidelity", "structural_infidelity"], show_progress=False
    )
    assert function.values["cafe"]["infidelity"].shape == (6,)
    assert "layers of a torch module" in str(function)


def test_a_final_softmax_is_noted():
    model, x = nn.Sequential(models.mlp(4, 6, 3), nn.Softmax(1)), torch.randn(6, 4)
    methods = ["cafe", "gradient_x_input"]
    assert "explain its logit" in str(compare(model, x, methods=methods, metrics=["complexity"], show_progress=False))
    assert "logit" not in str(compare(model[0], x, methods=methods, metrics=["complexity"], show_progress=False))


def test_spread_and_form():
    values = torch.tensor([1.0, 2.0, 3.0, 6.0])
    result = Comparison({"a": {"infidelity": values}}, {"a": 1.0}, {}, None, 4, (0,), (), ("a",))
    assert result.standard_error("a", "infidelity") == pytest.approx(values.std().item() / 2)
    assert repr(result) == "Comparison(1 methods, infidelity; 4 rows)"
    assert "<strong>3</strong> ± 1.1" in result._repr_html_()


def test_bad_arguments_are_named():
    model, x = models.mlp(4, 6, 2), torch.randn(6, 4)
    with pytest.raises(ValueError, match="unknown method 'shapley'"):
        compare(model, x, methods=["cafe", "shapley"])
    with pytest.raises(ValueError, match="unknown metric 'speed'"):
        compare(model, x, metrics=["speed"])
    with pytest.raises(ValueError, match="truth="):
        compare(model, x, metrics=["rmse"])
    with pytest.raises(ValueError, match="seed"):
        compare(model, x, seeds=())
    with pytest.raises(ValueError, match="at least one method"):
        compare(model, x, methods=[])
    with pytest.raises(ValueError, match="one baseline"):
        compare(model, x, baselines=torch.randn(2, 1, 4))
    with pytest.raises(ValueError, match="no default perturbation"):
        compare(nn.Sequential(nn.Flatten(), *models.mlp(6, 4, 2)), torch.randn(3, 2, 3), methods=["cafe"])


# ---- adapters -------------------------------------------------------------------------------------------------------
def test_shap_draws_the_exported_object(wine):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import shap

    model, x, names = wine
    e = CAFE(model).explain(x, feature_names=names)
    exported = e.to_shap()
    ends = exported.base_values + exported.values.sum(1)
    np.testing.assert_allclose(ends, e.output.numpy(), atol=1e-9)
    up, down = e.to_shap("positive"), e.to_shap("negative")
    net = up.base_values + up.values.sum(1) - down.base_values - down.values.sum(1)
    np.testing.assert_allclose(net, e.output.numpy(), atol=1e-9)
    with pytest.raises(ValueError, match="'combined', 'positive', 'negative'"):
        e.to_shap("both")
    for draw in (
        lambda: shap.plots.waterfall(exported[0], show=False),
        lambda: shap.plots.beeswarm(exported, show=False),
        lambda: shap.plots.bar(exported, show=False),
        lambda: shap.plots.bar({"up": up, "down": down}, show=False),
    ):
        plt.figure()
        draw()
        assert plt.gcf().axes
        plt.close("all")


@pytest.mark.parametrize("method", ["cafe", "deeplift_revealcancel", functools.partial(METHODS["cafe"], c=1.0)])
def test_quantus_metrics_run_on_the_adapter(method):
    import quantus

    torch.set_default_dtype(torch.float32)
    model, x = models.mlp(6, 12, 3), torch.randn(5, 6)
    wrapped, rows = quantus_table(model, x)
    labels = model(x).argmax(1).numpy()
    explain = quantus_explain(method)
    scores = explain(wrapped, rows, labels)
    expected = (METHODS[method] if isinstance(method, str) else method)(model, x, target=torch.as_tensor(labels))
    np.testing.assert_allclose(scores[:, 0], expected.numpy(), rtol=1e-5, atol=1e-7)
    common = {"model": wrapped, "x_batch": rows, "y_batch": labels, "explain_func": explain, "device": "cpu"}
    spread = quantus.Complexity(disable_warnings=True, normalise=False)(**common)
    np.testing.assert_allclose(spread, metrics.complexity(expected), rtol=1e-4)
    correlation = quantus.FaithfulnessCorrelation(
        nr_runs=10, subset_size=2, disable_warnings=True, abs=False, normalise=False, return_aggregate=False
    )
    values = correlation(**common)
    assert len(values) == 5
    assert np.isfinite(values).all()


def test_options_of_quantus_reach_the_method():
    model, x = models.mlp(6, 12, 3), np.random.RandomState(0).randn(5, 6)
    explain = quantus_explain("cafe")
    one, two = (explain(model, x, np.zeros(5, dtype=int), c=c, device="cpu") for c in (0.0, 1.0))
    assert not np.allclose(one, two)
    with pytest.raises(TypeError, match="baselin"):
        explain(model, x, np.zeros(5, dtype=int), baselin=3)


def test_words_go_to_shap_row_by_row():
    class Words:
        def convert_ids_to_tokens(self, ids):
            return [f"w{i}" for i in ids]

    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 2)).eval()
    exported = CAFE(model).explain(torch.tensor([[1, 2, 3], [4, 5, 6]]), target=0, tokenizer=Words()).to_shap()
    assert exported.data.tolist() == [["w1", "w2", "w3"], ["w4", "w5", "w6"]]
    assert exported.feature_names is None


def test_quantus_adapter_names_bad_input():
    with pytest.raises(ValueError, match="unknown method"):
        quantus_explain("shapley")
    with pytest.raises(ValueError, match="no table"):
        quantus_table(models.mlp(4, 2), torch.randn(2, 3, 4))


def test_captums_tools_take_the_explainer():
    from captum.attr import Attribution, NoiseTunnel

    model, x = models.mlp(5, 8, 3), torch.randn(4, 5)
    explainer = captum_attribution(CAFE(model, 1.0))
    assert isinstance(explainer, Attribution)
    torch.testing.assert_close(explainer.attribute(x, target=1), CAFE(model, 1.0).attribute(x, target=1))
    scores, delta = explainer.attribute(x, target=1, return_convergence_delta=True)
    assert delta.abs().max() < 1e-10
    smooth = NoiseTunnel(explainer).attribute(x, nt_samples=4, stdevs=0.0, target=1)
    torch.testing.assert_close(smooth, scores)
    with pytest.raises(NotImplementedError, match="return_convergence_delta"):
        explainer.compute_convergence_delta()


def test_groups_reach_methods_by_the_word_they_know():
    import pandas as pd

    net, seen = models.mlp(4, 6, 3), []

    def old(model, x, *, target=None, baselines=None, feature_mask=None):
        seen.append(feature_mask)
        return METHODS["gradient_x_input"](model, x, target=target)

    def without(model, x, *, target=None, baselines=None):
        return METHODS["gradient_x_input"](model, x, target=target)

    frame = pd.DataFrame(torch.randn(5, 4).numpy(), columns=list("abcd"))
    found = compare(net, frame, 0, {"old": old, "lime": METHODS["lime"]}, ["complexity"], feature_groups={"g": ["a", "b"]})
    assert not found.reasons
    assert seen[-1].tolist() == [0, 0, 1, 2]
    assert not compare(net, frame, 0, {"without": without}, ["structural_infidelity"], n_units=2).reasons
    scores = metrics.structural_infidelity(
        old, net, torch.randn(3, 4), metrics.TabularPerturbation(torch.randn(9, 4)), n_units=2
    )
    assert scores.shape == (3, 2)
