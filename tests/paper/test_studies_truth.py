"""Parts of the studies of the truth on deep models: attributions by name, sums over seeds, verdicts, networks and sentences."""

from __future__ import annotations

import importlib.util
import io
import itertools
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
from cafexai.models import ViT, mlp, procedural, residual_cnn
from cafexai.paper.studies import (
    STUDIES,
    depth,
    photos,
    run,
    synthetic_deep,
    truth,
    truth_findings,
    truth_losses,
    truth_measures,
    truth_shapley,
    truth_tables,
    truth_text,
)
from cafexai.paper.studies.methods import UNITS, WAYS, large_scores, method


def test_attributions_by_name():
    model, x = mlp(3, 8, 8, 8, 2), torch.randn(4, 3)
    for c in (0.0, 0.5):
        found = truth.candidate(f"cafe c={c:g}")(model, x, target=1)
        torch.testing.assert_close(found, CAFE(model, c).attribute(x, target=1))
        torch.testing.assert_close(method(f"deep c={c:g}")(model, x, target=1), found)
    changed = CAFE(model, 0.25, "default", flows="peak", netting="path").attribute(x, target=1)
    assert torch.equal(truth.candidate("cafe flows=peak netting=path c=0.25")(model, x, target=1), changed)
    published = CAFE.published(model).attribute(x, target=1)
    assert torch.equal(truth.candidate("cafe_published")(model, x, target=1), published)
    assert torch.equal(depth.find_method("path c=0.5", model).attribute(x, target=1), published)


def test_the_candidates_are_methods_and_have_titles():
    """Every name that a preset holds can be run, but exact Shapley values and methods that evaluate have code of their own."""
    for study in (STUDIES[name] for name in STUDIES if name.startswith("truth-")):
        for preset in study.presets.values():
            names = [name for name in preset["methods"] if name not in (truth.EXACT, *truth.EVALUATING)]
            assert all(callable(truth.candidate(name)) for name in names)
            titles = [truth_findings.title(name) for name in preset["methods"]]
            assert len(set(titles)) == len(titles)
            assert not set(titles) & set(METHODS)
    assert CAFE(mlp(3, 8, 2), **WAYS["deep"]).variant == CAFE(mlp(3, 8, 2)).variant
    assert all(name.split(" c=")[0] in WAYS for name in UNITS)


def test_blocks_at_a_c_of_their_own():
    model, x = mlp(4, 8, 2), torch.randn(2, 4)
    scores, notes = truth.evaluating([truth.MISSING, *truth.QUARTER], model, x, 1, torch.arange(4))
    half, quarter = (CAFE(model, c).explain_blocks(x, target=1) for c in (0.5, 0.25))
    expected = {truth.MISSING: half.if_missing, truth.QUARTER[0]: quarter.combined, truth.QUARTER[1]: quarter.if_missing}
    assert scores.keys() == notes.keys() == expected.keys()
    for name, own in expected.items():
        torch.testing.assert_close(scores[name], own)
    assert not torch.allclose(half.if_missing, quarter.if_missing)
    titles = [truth_findings.title(name) for name in expected]
    assert titles[1:] == ["CAFE, explain_blocks, c = 0.25", "CAFE, if_missing of explain_blocks, c = 0.25"]


def test_numbers_of_rows_are_summed_up_beside_the_rival():
    own, rival = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([1.0, 1.0, 1.0])
    found = truth.summary({"own": own, truth.RIVAL: rival})["own"]
    naive = [own.mean(), own.std() / 3**0.5, (own - rival).mean(), (own - rival).std() / 3**0.5]
    assert found == pytest.approx([float(number) for number in naive])
    frozen = torch.tensor([0.0, 0.0, 3.0])
    values = {"own": own, truth.RIVAL: rival, truth.PUBLISHED: own, truth.FROZEN: frozen}
    more = [0.0, 0.0, (own - frozen).mean(), (own - frozen).std() / 3**0.5]
    assert truth.summary(values)["own"] == pytest.approx([float(number) for number in (*naive, *more)])


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
    assert truth_findings.verdict(ahead) is holds


def test_means_over_data_sets_and_seeds():
    """Two data sets with two seeds each: infidelity is a multiple of that of the rival, network by network."""

    def result(mean, rival):
        return {
            "methods": {"cafe": {"infidelity": [mean, 0.1, mean - rival, 0.2]}, truth.RIVAL: {"infidelity": [rival, 0, 0, 0]}}
        }

    settings = {"networks": {"relu": ["a", "b"]}, "seeds": [1, 2]}
    results = {"relu-a-1": result(2, 1), "relu-a-2": result(4, 1), "relu-b-1": result(1, 2), "relu-b-2": result(3, 2)}
    mean, error = truth_measures.over_sets(settings, results, "relu", "cafe", "infidelity")
    assert mean == pytest.approx(((2 + 4) / 2 + (0.5 + 1.5) / 2) / 2)
    assert error == pytest.approx((1.0**2 + 0.5**2) ** 0.5 / 2)
    apart, _ = truth_measures.over_sets(settings, results, "relu", "cafe", "infidelity", apart=truth.RIVAL)
    assert apart == pytest.approx(mean - 1)


@pytest.fixture
def single():
    """Networks are built in float32, as in use; the other tests build them in float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before)


def test_changes_from_the_published_method_by_hand():
    """Both activations of a depth together; OpenXAI's networks one by one, with the error of their rows."""

    def result(ours, published):
        pair = {"cafe": [ours, 0, 0, 0, ours - published, 0.5], "cafe_published": [published, 0, 0, 0, 0, 0]}
        return {"methods": {name: {"infidelity": numbers, "shapley_top": numbers} for name, numbers in pair.items()}}

    settings = {"networks": {"openxai": ["a"], "1 layer": ["a"], "1 layer gelu": ["a"]}, "seeds": [1, 2]}
    results = {"openxai-a-1": result(3, 2), "1-layer-a-1": result(1, 2), "1-layer-a-2": result(2, 2)}
    results |= {"1-layer-gelu-a-1": result(1, 4), "1-layer-gelu-a-2": result(1, 4)}
    groups = truth_losses.groups(settings, results)
    assert groups == {"openxai, a": [("openxai", "a")], "1 layer": [("1 layer", "a"), ("1 layer gelu", "a")]}
    change = {name: truth_losses.change(settings, results, groups[name], "infidelity") for name in groups}
    assert change["openxai, a"] == pytest.approx((0.5, 0.25))
    assert change["1 layer"] == pytest.approx(((-0.25 - 0.75) / 2, 0.25 / 2))
    assert truth_losses.change(settings, results, groups["1 layer"], "shapley_top")[0] == pytest.approx((-0.5 - 3) / 2)
    assert truth_losses.change(settings, results, groups["1 layer"], "max_sensitivity") is None
    verdicts = {finding.claim.split(":")[0]: finding.holds for finding in truth_losses.findings(settings, results)}
    assert verdicts == {"Infidelity, normalised": None, "Share of rows with the same top feature as Shapley values": False}


def test_standardised_columns():
    table = synthetic_conflicts(dimension=3, likelihood=0.4, rows=100)
    found = truth_tables.standardise(table)
    columns = found.x_train.double()
    torch.testing.assert_close(columns.mean(0), torch.zeros(6, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(columns.std(0), torch.ones(6, dtype=torch.float64))
    mean, deviation = table.x_train.double().mean(0), table.x_train.double().std(0)
    torch.testing.assert_close(found.x_test.double() * deviation + mean, table.x_test.double())


def naive_shapley(value, count):
    """The mean over all orders."""
    total = torch.zeros(count, dtype=torch.float64)
    orders = list(itertools.permutations(range(count)))
    for order in orders:
        before = torch.zeros(count, dtype=torch.bool)
        for one in order:
            after = before.clone()
            after[one] = True
            total[one] += value(after[None])[0] - value(before[None])[0]
            before = after
    return total / len(orders)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_shapley_values_are_means_over_all_orders(count):
    table = torch.randn(2**count, dtype=torch.float64)

    def value(present):
        return table[(present * 2 ** torch.arange(count)).sum(1)]

    torch.testing.assert_close(truth_shapley.exact(value(truth_shapley.subsets(count))), naive_shapley(value, count))


def test_pairs_of_orders():
    """Exact for sums of products of two features with a single pair; always the whole change."""
    products = torch.randn(5, 5, dtype=torch.float64)

    def value(present):
        return torch.einsum("ni,ij,nj->n", present.double(), products, present.double())

    torch.testing.assert_close(truth_shapley.estimate_by_pairs(value, 5, 1), naive_shapley(value, 5))

    def third(present):
        return value(present) + present[:, :3].all(1)

    found = truth_shapley.estimate_by_pairs(third, 5, 200, seed=1)
    torch.testing.assert_close(found, naive_shapley(third, 5), atol=0.05, rtol=0)
    torch.testing.assert_close(found.sum(), third(torch.ones(1, 5, dtype=torch.bool))[0])


def test_agreement_with_shapley_values_by_hand():
    truth_values = torch.tensor([[1.0, -3.0, 0.0]], dtype=torch.float64)
    found = truth_shapley.agreement(truth_values, {"a": torch.tensor([[2.0, -2.0, 1.0]])})
    naive = np.corrcoef([1, -3, 0], [2, -2, 1])[0, 1]
    numbers = {name: values["a"].item() for name, values in found.items()}
    assert numbers == pytest.approx(
        {"shapley_correlation": naive, "shapley_rmse": 1.0, "shapley_distance": 3.0, "shapley_top": 0.0}
    )


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
        positive, negative = synthetic_deep.signed_scores(name, model, x)
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
    x, baseline, groups = encoder.sentence("one two three four five")
    assert x.shape[1] == 7
    assert groups[:, 0].tolist() == [-1, 0, 1, 2, 3, 4, -1]
    names = ["cafe", "integrated_gradients", *truth.EVALUATING, truth.EXACT]
    notes, found = truth_text._of_sentence(model, encoder, "one two three four five", names)
    effects = []
    for token in range(1, 6):
        other = x.clone()
        other[:, token] = encoder.bert.embeddings.word_embeddings.weight[2]
        effects.append((model(x) - model(other)).item())
    scores = METHODS["integrated_gradients"](model, x, target=0, baselines=baseline).detach().sum(2)[0, 1:-1]
    naive = np.corrcoef(scores.numpy(), np.array(effects))[0, 1]
    assert found["occlusion_correlation"]["integrated_gradients"].item() == pytest.approx(naive, abs=1e-4)
    assert set(notes) == set(found["occlusion_correlation"]) == set(names) - {truth.EXACT}
    short = truth_text._of_short(model, encoder, "one two three four five", names, None)

    def value(present):
        rows = [
            torch.where(torch.cat([torch.ones(1), row, torch.ones(1)]).bool()[:, None], x[0], baseline[0]) for row in present
        ]
        return model(torch.stack(rows))[:, 0].double()

    exact = naive_shapley(value, 5)
    apart = (scores.double() - exact).square().mean().sqrt().item()
    assert short["shapley_rmse"]["integrated_gradients"].item() == pytest.approx(apart, abs=1e-4 * float(exact.abs().max()))
    naive = np.corrcoef(exact.numpy(), np.array(effects))[0, 1]
    assert short["short_correlation"][truth.EXACT].item() == pytest.approx(naive, abs=1e-4)


def test_a_tuned_model_says_the_same_of_ids_and_of_embeddings(tmp_path):
    pytest.importorskip("transformers")
    encoder = truth_text.Encoder.load("toy")
    texts = ["one two three", "four five six seven eight"]
    whole = truth_text.Sentences(encoder.bert, encoder.pad).eval()
    ids = encoder.padded(texts)
    assert ids.shape == (2, 7)
    single = truth_text.Sentiment(encoder.bert, whole.head)
    torch.testing.assert_close(whole(ids), torch.cat([single(encoder.sentence(text)[0]) for text in texts]))
    states = encoder.masked_means(texts[0], tmp_path)
    assert states.shape == (8, 16)
    torch.testing.assert_close(states[-1:], encoder.mean(encoder.sentence(texts[0])[0]))
    torch.testing.assert_close(states[:1], encoder.mean(encoder.sentence(texts[0])[1]))
    assert torch.equal(encoder.masked_means(texts[0], tmp_path), states)


def test_a_vision_transformer_is_blind_to_the_order_of_patches_but_for_their_positions():
    model = ViT(3, 8, 5, width=8, heads=2, blocks=2).eval()
    x = torch.randn(2, 3, 8, 8)
    assert model(x).shape == (2, 5)
    swapped = torch.cat([x[..., 4:], x[..., :4]], -1)
    assert not torch.allclose(model(x), model(swapped))
    torch.nn.init.zeros_(model.positions)
    torch.testing.assert_close(model(x), model(swapped))
    with pytest.raises(ValueError, match="multiple of patch"):
        ViT(3, 9, 5)


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
    run_before = {folder.name.rpartition("-")[0] for folder in (root / "studies").iterdir()}
    assert all(f"## {name}\n" in text for name in evidence.SHOWN if name in run_before)


def test_large_scores_are_measured_without_a_warning():
    """A deep network whose positive and negative scores cancel: explaining it warns, a study does not."""
    model = depth.build("plain", 10, 64, 16, 0).double()
    x = torch.randn(2, 10, dtype=torch.float64)
    with pytest.warns(UserWarning, match="positive and negative are"):
        CAFE.published(model, 1.0).explain(x)
    with warnings.catch_warnings(record=True) as seen, large_scores():
        CAFE.published(model, 1.0).explain(x)
    assert not seen
