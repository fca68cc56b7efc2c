"""The studies on synthetic data and on prevalence, through the command line and number by number."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import data_files
from cafexai.datasets import synthetic_conflicts
from cafexai.methods import METHODS
from cafexai.models import procedural
from cafexai.paper.studies import STUDIES, authors_protocol, prevalence, synthetic
from cafexai.paper.studies.methods import UNITS
from cafexai.paper.studies.published_numbers import figure_of_paper, paper
from study_command import finished, written


def test_synthetic_procedural(tmp_path):
    results, said = finished("synthetic-procedural", tmp_path)
    assert list(results) == ["2-42", "2-43", "3-42", "3-43"]
    for result in results.values():
        errors = result["networks"][0]["methods"]
        assert errors["cafe c=1"] < 1e-12
        assert errors["cafe c=0"] == pytest.approx(errors["gradient_x_input"]) == pytest.approx(errors["integrated_gradients"])
        assert errors["cafe c=0.5"] == pytest.approx(errors["cafe c=0"] / 2)
    assert "**holds**: CAFE 1 is exactly 0.00 in all columns" in said
    assert "**undecided**: RMSE within 5 %" in said  # two seeds do not decide it
    assert {"config.json", "README.md", "synthetic-procedural.md", "synthetic-procedural.csv"} <= written(tmp_path)
    assert "3.31" in (tmp_path / "synthetic-procedural.csv").read_text()  # the paper's figure stands beside ours


def test_synthetic_trained(tmp_path):
    results, said = finished("synthetic-trained", tmp_path)
    assert list(results) == ["2-relu-42", "2-relu-43", "2-gelu-42", "2-gelu-43"]
    for result in results.values():
        (network,) = result["networks"]
        assert set(network["methods"]) == {*STUDIES["synthetic-trained"].presets["toy"]["methods"], *UNITS}
        assert all(np.isfinite(value) for value in (network["validation"], network["test"], *network["methods"].values()))
    assert "CAFE 1 has the lowest RMSE" in said
    assert {"config.json", "README.md", "synthetic-trained.md", "synthetic-trained.csv"} <= written(tmp_path)


def test_prevalence(tmp_path):
    data_files.titanic(tmp_path / "data" / "titanic", np.random.default_rng(0))
    results, said = finished("prevalence", tmp_path / "out", "--data", tmp_path / "data")
    assert list(results) == ["mlp-titanic-42", "ft-titanic-42"]
    assert all(0 < result[way] < 1 for result in results.values() for way in ("signed", "unsigned"))
    assert "in conflict on average" in said
    assert {"prevalence.md", "prevalence.csv"} <= written(tmp_path / "out")


def test_missing_data_are_named(tmp_path):
    with pytest.raises(AssertionError, match=r"titanic_train\.csv"):
        finished("prevalence", tmp_path / "out", "--data", tmp_path)


def test_rmse_is_a_mean_of_roots():
    found, truth = torch.randn(7, 3), torch.randn(7, 3)
    naive = np.mean([np.sqrt(np.mean((found[:, j] - truth[:, j]).numpy() ** 2)) for j in range(3)])
    assert synthetic.rmse(found, truth) == pytest.approx(naive)


def test_form_without_zeros_is_the_same_network():
    data = synthetic_conflicts(dimension=6, likelihood=0.3, rows=100).to(torch.float64)
    x = torch.cat([data.x_test, torch.randn(50, 12) * 20])  # also where cancelling features are negative or large
    torch.testing.assert_close(synthetic.Sparse(data.weights)(x), procedural(data.weights)(x))


def test_shapley_values_of_parts():
    data = synthetic_conflicts(dimension=40, likelihood=0.5, rows=60).to(torch.float64)
    x = data.x_test
    scores = synthetic.shapley_by_parts(data.weights, x, seed=1)
    product, cancelled = data.weights * x[:, :40], x[:, 40:] == 1
    own, other = scores[:, :40], scores[:, 40:]
    single = {"rtol": 1e-5, "atol": 1e-5}  # Captum adds up in float32
    torch.testing.assert_close(own + other, torch.where(cancelled, 0.0, product), **single)  # what the part gives, shared out
    torch.testing.assert_close(own[~cancelled], product[~cancelled], **single)
    share = (own / product)[cancelled]  # of the orders in which the number came first
    assert share.mean().item() == pytest.approx(0.5, abs=0.05)
    whole = METHODS["shapley_value_sampling"](synthetic.Sparse(data.weights), x, seed=1)
    assert synthetic.rmse(scores, synthetic.true_attributions(data)) == pytest.approx(
        synthetic.rmse(whole, synthetic.true_attributions(data)), rel=0.1
    )


def test_attributions_in_parts_are_those_at_once(monkeypatch):
    data = synthetic_conflicts(dimension=3, likelihood=0.3, rows=100).to(torch.float64)
    model = procedural(data.weights)
    names = ["cafe c=0.5", "integrated_gradients", "deeplift_revealcancel"]
    at_once = {name: synthetic.scores(name, model, data.x_test, 42) for name in names}
    monkeypatch.setattr(synthetic, "AT_ONCE", 1)
    for name in names:
        torch.testing.assert_close(synthetic.scores(name, model, data.x_test, 42), at_once[name])


def test_known_attributions_are_those_of_the_data():
    data = synthetic_conflicts(dimension=3, rows=50)
    torch.testing.assert_close(synthetic.true_attributions(data), data.truth_test)


@pytest.mark.parametrize("name", ["synthetic-trained", "synthetic-procedural"])
def test_every_column_has_figures_of_the_paper(name):
    settings = STUDIES[name].presets["full"]
    for column in synthetic.columns(settings):
        for method in settings["methods"]:
            theirs = figure_of_paper(name.replace("-", " "), method, column)
            assert (theirs is None) == (method == "deeplift_revealcancel" or method.startswith("feature"))


def test_two_ways_to_count_conflicts():
    """Units with x = 1 or -1: both signs of input with a bias; negative input only; positive activation, negative weight."""
    model = nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 1)).eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[-2.0], [-1.0], [1.0]]))
        model[0].bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
    one, minus = torch.ones(1, 1), -torch.ones(1, 1)
    from cafexai.conflicts import prevalence as signed

    assert signed(model, one).overall == pytest.approx(1 / 3)  # -2 + 1 only; the second unit has no positive input
    assert prevalence.unsigned_prevalence(model, one) == pytest.approx(2 / 3)  # the second counts although nothing opposes
    assert signed(model, minus).overall == 0  # the first two are active, the third has one input
    assert prevalence.unsigned_prevalence(model, minus) == 0


def test_worked_tables_are_those_of_the_paper(tmp_path):
    results, said = finished("worked-tables", tmp_path)
    assert said.count("**holds**") == 2
    assert results["circuit"]["cafe c=1"]["SpO2+"][0] == pytest.approx(0.42)
    assert set(results["explosion"]) == set(paper()["explosion"])


def test_the_best_network_on_validation_is_explained(tmp_path):
    small = ("--set", "networks=3", "--set", "seeds=[42]", "--set", 'activations=["relu"]')
    results, _ = finished("synthetic-trained", tmp_path, *small)
    (result,) = results.values()
    (network,) = result["networks"]
    assert len(result["validation of all"]) == 3
    assert network["validation"] == min(result["validation of all"])


def test_a_second_study_finds_the_networks_of_the_first(data, tmp_path):
    asked = ("--data", data, "--set", 'data=["titanic"]', "--models", tmp_path / "store")
    _, first = finished("infidelity-mlp", tmp_path / "a", *asked, "--set", "train_rows=100")
    _, second = finished("prevalence", tmp_path / "b", *asked, "--set", 'families=["mlp"]')
    assert "1 networks trained, 0 found" in first
    assert "0 networks trained, 1 found" in second


@pytest.mark.parametrize("rows", [5, 8, 11])
def test_scores_as_the_authors_loop_reads_them(rows):
    scores, batch = torch.arange(rows), 4
    read = [scores[i * len(x) : (i + 1) * len(x)] for i, x in enumerate(scores.split(batch))]
    assert torch.equal(authors_protocol.misalign(scores, batch), torch.cat(read))
    assert torch.equal(authors_protocol.misalign(scores, batch), scores) == (rows % batch == 0)


def test_authors_protocol(data, tmp_path):
    results, said = finished("authors-protocol", tmp_path, "--data", data)
    assert list(results) == ["alignment-compas", "units-compas"]
    assert "alignment, as the authors" in said
