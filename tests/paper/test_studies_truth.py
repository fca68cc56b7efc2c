"""Parts of the studies of the truth on deep models: attributions by name, sums over seeds, verdicts, networks and sentences."""

from __future__ import annotations

import importlib.util
import io
import tarfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import data_files
from cafexai import CAFE
from cafexai.datasets import DataNotFound, movie_snippets, synthetic_conflicts
from cafexai.methods import METHODS
from cafexai.models import mlp, procedural, residual_cnn
from cafexai.paper.studies import STUDIES, depth, photos, run, synthetic_deep, truth, truth_report, truth_tables, truth_text
from cafexai.paper.studies.methods import UNITS, WAYS, large_scores, method


def test_attributions_by_name():
    model, x = mlp(3, 8, 8, 8, 2), torch.randn(4, 3)
    options = {"netting": "unit", "flows": "mean", "biases": "reference", "norms": "open"}
    for c in (0.0, 0.5):
        found = truth.candidate(f"{truth.DEEP} c={c:g}")(model, x, target=1)
        torch.testing.assert_close(found, CAFE(model, c, "default", **options).attribute(x, target=1))
        torch.testing.assert_close(method(f"deep c={c:g}")(model, x, target=1), found)
    assert torch.equal(truth.candidate("cafe")(model, x, target=1), CAFE(model).attribute(x, target=1))
    published = CAFE.published(model).attribute(x, target=1)
    assert torch.equal(truth.candidate("cafe_published")(model, x, target=1), published)
    assert torch.equal(depth.named("path c=0.5", model).attribute(x, target=1), published)


def test_the_row_of_the_deep_default_is_what_deep_models_get():
    """The options that the studies name are those of the default variant."""
    variant = CAFE(mlp(3, 8, 8, 8, 2)).variant
    assert CAFE(mlp(3, 8, 2), **WAYS["deep"]).variant == variant
    assert " ".join((variant.netting, variant.flows, variant.biases, variant.norms)) == truth.DEEP
    assert all(name.split(" c=")[0] in WAYS for name in UNITS)


def test_numbers_of_rows_are_summed_up_beside_the_rival():
    own, rival = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([1.0, 1.0, 1.0])
    found = truth.summary({"own": own, truth.RIVAL: rival})["own"]
    naive = [own.mean(), own.std() / 3**0.5, (own - rival).mean(), (own - rival).std() / 3**0.5]
    assert found == pytest.approx([float(number) for number in naive])


@pytest.mark.parametrize(
    ("ahead", "holds"),
    [
        ([(0.1, 0.2), (0.0, 0.1)], True),
        ([(0.1, 0.2), (-0.1, 0.2)], None),
        ([(-0.1, 0.04), (0.5, 0.1)], False),
        ([(-1e-6, 0)], True),
    ],
)
def test_a_verdict_knows_chance(ahead, holds):
    assert truth_report.verdict(ahead) is holds


def test_means_over_data_sets_and_seeds():
    """Two data sets with two seeds each: infidelity is a multiple of that of the rival, network by network."""

    def result(mean, rival):
        return {
            "methods": {"cafe": {"infidelity": [mean, 0.1, mean - rival, 0.2]}, truth.RIVAL: {"infidelity": [rival, 0, 0, 0]}}
        }

    settings = {"networks": {"relu": ["a", "b"]}, "seeds": [1, 2]}
    results = {"relu-a-1": result(2, 1), "relu-a-2": result(4, 1), "relu-b-1": result(1, 2), "relu-b-2": result(3, 2)}
    mean, error = truth_report.over_sets(settings, results, "relu", "cafe", "infidelity")
    assert mean == pytest.approx(((2 + 4) / 2 + (0.5 + 1.5) / 2) / 2)
    assert error == pytest.approx((1.0**2 + 0.5**2) ** 0.5 / 2)
    apart, _ = truth_report.over_sets(settings, results, "relu", "cafe", "infidelity", apart=True)
    assert apart == pytest.approx(mean - 1)


@pytest.fixture
def single():
    """Networks are built in float32, as in use; the other tests build them in float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("single")
def test_shallow_networks_are_held_to_the_same_as_deep_ones(data, tmp_path):
    report = run(STUDIES["truth-tables"], "toy", tmp_path, data=str(data), show_progress=False,
                 changes={"networks": {"openxai": ["compas"], "two layers": ["titanic"]}})  # fmt: skip
    assert report.findings
    assert not any("bit for bit" in finding.claim for finding in report.findings)


@pytest.mark.usefixtures("single")
def test_what_is_not_installed_is_said(data, tmp_path, monkeypatch):
    monkeypatch.setitem(photos.PACKAGES, "mobilenet-v2", ("no_such_package",))
    report = run(STUDIES["truth-images"], "toy", tmp_path, data=str(data), show_progress=False)
    (networks,) = [table for table in report.tables if table.name == "networks"]
    left = [row for row in networks.rows if row[0] == "mobilenet-v2"]
    assert left[0][-1].startswith("left out")
    with pytest.raises(ModuleNotFoundError, match=r"cafexai\[truth\]"):
        photos.network("mobilenet-v2")


@pytest.mark.parametrize("depth", [2, 3, 5, 8])
def test_deeper_procedural_networks_are_the_same_function(depth):
    data = synthetic_conflicts(dimension=4, likelihood=0.4, rows=100).to(torch.float64)
    deep, plain = procedural(data.weights, depth=depth), procedural(data.weights)
    assert sum(isinstance(layer, torch.nn.ReLU) for layer in deep) == depth
    x = torch.cat([data.x_test, torch.randn(30, 8, dtype=torch.float64) * 9])
    assert torch.equal(deep(x), plain(x))
    naive = (data.weights * data.x_test[:, :4] * (data.x_test[:, 4:] != 1)).sum(1, keepdim=True)
    torch.testing.assert_close(deep(data.x_test), naive)
    e = CAFE.published(deep, 1.0).explain(data.x_test)
    torch.testing.assert_close(e.combined, torch.as_tensor(data.truth_test).double(), rtol=1e-5, atol=1e-5)


def test_procedural_networks_have_at_least_two_layers():
    with pytest.raises(ValueError, match="at least 2"):
        procedural(torch.ones(2), depth=1)


def test_share_of_a_cancelled_effect_by_hand():
    """One feature, cancelled: the published method halves it at every layer that it passes with c = 0.5, others lose it."""
    model = procedural(torch.tensor([3.0], dtype=torch.float64), depth=4)
    x = torch.tensor([[2.0, 1.0]], dtype=torch.float64)
    for name, share in (("cafe c=1", 1.0), ("cafe c=0.5", 0.25), ("unit c=1", 0.0), ("integrated_gradients", 0.0)):
        positive, negative = synthetic_deep.signed(name, model, x)
        torch.testing.assert_close(positive - negative, share * torch.tensor([[6.0, -6.0]], dtype=torch.float64))


def test_networks_of_the_studies():
    assert residual_cnn(3, 10, 4).eval()(torch.randn(2, 3, 32, 32)).shape == (2, 10)
    mobile = photos.MobileNetV2().eval()
    assert sum(parameter.numel() for parameter in mobile.parameters()) == 3_504_872  # as published
    assert {"features.1.conv.0.0.weight", "features.17.conv.3.bias", "features.18.1.running_var"} <= set(mobile.state_dict())
    assert mobile(torch.randn(1, 3, 64, 64)).shape == (1, 1000)
    x = torch.randn(5, 3)
    lstm = truth_tables.ColumnLSTM(4, 2)
    states, _ = lstm.lstm(x.reshape(5, 3, 1))
    torch.testing.assert_close(lstm(x), states[:, 2] @ lstm.head.weight.T + lstm.head.bias)
    layers = [type(layer).__name__ for layer in truth_tables.batchnorm_mlp(3, 8, 8, 2)]
    assert layers == ["Linear", "BatchNorm1d", "ReLU"] * 2 + ["Linear"]


def test_pictures_are_squares(tmp_path):
    pytest.importorskip("sklearn")
    found = photos.pictures(2, str(tmp_path))
    assert found.shape == (2, 3, 224, 224)
    from sklearn.datasets import load_sample_images

    grey = load_sample_images().images[0].mean((0, 1)) / 255
    back = found[0].mean((1, 2)) * torch.tensor(photos.STD) + torch.tensor(photos.MEAN)
    assert back.numpy() == pytest.approx(grey, abs=0.1)


def test_masked_tokens_and_those_that_stay():
    """The correlation is that of single forward passes in which one token is the mask; first and last token stay."""
    pytest.importorskip("transformers")
    encoder = truth_text.Encoder.load("toy")
    model = truth_text.Sentiment(encoder.bert, truth_text._head("mlp", 16)).eval().requires_grad_(False)
    x, mask = encoder.embedded("one two three four five")
    assert x.shape[1] == 7
    names = ["cafe", "integrated_gradients", "cafe_refined"]
    notes, found = truth_text._of_sentence(model, encoder, "one two three four five", names)
    effects = []
    for token in range(1, 6):
        other = x.clone()
        other[:, token] = mask[:, token]
        effects.append((model(x) - model(other)).item())
    scores = METHODS["integrated_gradients"](model, x, target=0).detach().sum(2)[0, 1:-1]
    naive = np.corrcoef(scores.numpy(), np.array(effects))[0, 1]
    assert found["occlusion_correlation"]["integrated_gradients"].item() == pytest.approx(naive, abs=1e-4)
    assert set(notes) == set(found["mask_correlation"]) == set(names)
    assert "cafe_refined" not in found["occlusion_correlation"]  # it masks, and has no scores against zeros


def test_snippets_from_a_file_and_from_the_archive(tmp_path):
    data_files.snippets(tmp_path / "plain" / "movie-snippets")
    plain = movie_snippets(folder=tmp_path / "plain")
    assert len(plain.texts) == 20  # of 30, ten are rated near 0 or too short
    assert all(abs(rating) >= 1 for rating in plain.ratings)
    assert plain.labels == tuple(int("fine" in text) for text in plain.texts)
    table = (tmp_path / "plain" / "movie-snippets" / "movieReviewSnippets_GroundTruth.txt").read_bytes()
    inner = _tar({"hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt": table})
    path = tmp_path / "packed" / "movie-snippets" / "vaderSentiment-3.3.2.tar.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(_tar({"vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz": inner}))
    assert movie_snippets(folder=tmp_path / "packed") == plain
    assert movie_snippets(folder=tmp_path / "packed", seed=1).texts != plain.texts


def test_wrong_snippets_are_named(tmp_path):
    with pytest.raises(DataNotFound, match="movieReviewSnippets"):
        movie_snippets(folder=tmp_path)
    path = tmp_path / "movie-snippets" / "movieReviewSnippets_GroundTruth.txt"
    path.parent.mkdir()
    path.write_text("1\t2.0\ta film that is good and long\n2 no rating\n")
    with pytest.raises(ValueError, match="line 2"):
        movie_snippets(folder=tmp_path)
    path.write_text("1\t0.1\ta film that is good and long\n")
    with pytest.raises(ValueError, match="no such snippet"):
        movie_snippets(folder=tmp_path)


def _tar(files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def test_the_page_of_evidence_is_that_of_the_committed_results():
    root = Path(__file__).parents[2]
    spec = importlib.util.spec_from_file_location("evidence", root / "examples" / "evidence.py")
    evidence = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(evidence)
    text = (root / "docs" / "evidence.md").read_text()
    assert text == evidence.page(root / "studies")
    assert all(f"## {name}" in text for name in evidence.SHOWN)


def test_large_scores_are_measured_without_a_warning():
    """A deep network whose positive and negative scores cancel: explaining it warns, a study does not."""
    model = depth.build("plain", 10, 64, 16, 0).double()
    x = torch.randn(2, 10, dtype=torch.float64)
    with pytest.warns(UserWarning, match="positive and negative are"):
        CAFE.published(model, 1.0).explain(x)
    with warnings.catch_warnings(record=True) as seen, large_scores():
        CAFE.published(model, 1.0).explain(x)
    assert not seen
