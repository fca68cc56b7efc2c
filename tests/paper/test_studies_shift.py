"""The studies of distributional shifts, through the command line; one of them is killed on its way."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import numpy as np
import pytest
import torch

import data_files
from cafexai.paper.datasets import concat_mnist, fashion_mnist
from cafexai.paper.studies import STUDIES, shift_images, shift_tabular_report
from cafexai.paper.studies.distributions import BINS, auroc, compare_sets, jensen_shannon, tell_apart
from cafexai.paper.studies.monitor_digits import Digits
from cafexai.paper.studies.monitor_report import binomial_interval
from cafexai.paper.studies.monitoring import measure_digits
from cafexai.paper.studies.record import Workplace
from cafexai.paper.studies.runner import settings_of
from study_command import command, environment, finished, written

SEEDS = ("--set", "seeds=[42, 43, 44]")


def test_shift_tabular_killed_and_started_again(tmp_path):
    """SIGKILL after the first part; the second start does the rest, and the results are those of an undisturbed run."""
    whole, said = finished("shift-tabular", tmp_path / "whole", *SEEDS)
    assert len(whole) == 6
    assert "s_conf falls under missing feature in all 2 networks" in said
    figures = {f"conflict-{family}.{kind}" for family in ("mlp", "ft") for kind in ("png", "svg")}
    assert figures | {"conflict.md", "conflict.csv", "README.md", "config.json"} <= written(tmp_path / "whole")

    out = tmp_path / "killed"
    process = subprocess.Popen(command("shift-tabular", out, *SEEDS), env=environment(), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list((out / "parts").glob("[!.]*.json")):
        assert process.poll() is None, "ended before its first part"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = len(list((out / "parts").glob("[!.]*.json")))
    assert 1 <= done < 6
    assert not (out / "results.json").exists()
    results, said = finished("shift-tabular", out, *SEEDS)
    assert f"6 tasks, {done} of them done before" in said
    assert results == whole
    assert (out / "results.json").read_bytes() == (tmp_path / "whole" / "results.json").read_bytes()


def test_shift_images(tmp_path):
    for name in ("mnist", "fashion-mnist"):
        data_files.idx(tmp_path / "data" / name, np.random.default_rng(0))
    results, said = finished("shift-images", tmp_path / "out", "--data", tmp_path / "data")
    (result,) = results.values()
    for kind in ("max_logit", "conflict", "conflict_share"):
        assert set(result[kind]["mean"]) == {"train", "fresh", "correlation", "semantic"}
        assert all(len(counts) == BINS and sum(counts) == 20 for counts in result[kind]["counts"].values())
    assert "MaxLogit falls under both shifts" in said
    assert {"max-logit.md", "conflict.csv", "shift-images.png", "shift-images.svg"} <= written(tmp_path / "out")


def test_shift_clothes(tmp_path):
    """The network is that of shift-images; only scores are new."""
    for name in ("mnist", "fashion-mnist"):
        data_files.idx(tmp_path / "data" / name, np.random.default_rng(0))
    finished("shift-images", tmp_path / "images", "--data", tmp_path / "data", "--models", tmp_path / "models")
    line = ("--data", tmp_path / "data", "--models", tmp_path / "models")
    results, said = finished("shift-clothes", tmp_path / "clothes", *line)
    assert "0 networks trained, 1 found in" in said
    (result,) = results.values()
    assert set(result) == {"fresh", "correlation", "all ten", "shoes"}
    assert result["all ten"] != result["shoes"]


def test_clothes_are_those_that_were_named(tmp_path):
    for name in ("mnist", "fashion-mnist"):
        data_files.idx(tmp_path / name, np.random.default_rng(0))
    usual, shoes = (concat_mnist(folder=tmp_path, clothes=clothes) for clothes in (None, ["Sneaker", "Sandal"]))
    assert torch.equal(usual.x_train, shoes.x_train)
    assert torch.equal(usual.shifts["correlation"][0], shoes.shifts["correlation"][0])
    everything = fashion_mnist(folder=tmp_path)
    known = {image.numpy().tobytes() for image in everything.x_test[(everything.y_test == 5) | (everything.y_test == 7)]}
    assert {image[:, 28:].numpy().tobytes() for image in shoes.shifts["semantic"][0]} <= known
    with pytest.raises(ValueError, match=r"unknown 'Hat'\. Allowed values: T-shirt"):
        concat_mnist(folder=tmp_path, clothes=["Hat"])
    with pytest.raises(ValueError, match="name at least one"):
        concat_mnist(folder=tmp_path, clothes=[])


def test_one_seed_has_no_standard_error():
    assert shift_tabular_report.spread([2.0]) == "2"
    assert shift_tabular_report.spread([1.0, 3.0]) == "2 ± 1"


def test_latent_conflict_is_that_of_the_layer():
    """Explaining the classifier alone is explaining the network from its latent layer on."""
    from cafexai import CAFE
    from cafexai.models import concat_cnn

    model = concat_cnn("narrow").eval()
    x, y = torch.randn(3, 1, 56, 28), torch.tensor([0, 3, 4])
    found = shift_images.scores(model, x, y, batch=2)
    latent = CAFE.published(model, 1.0).explain(x, target=y, layer="0", start=True)
    torch.testing.assert_close(found["conflict"], latent.s_conf)
    torch.testing.assert_close(found["max_logit"], model(x).amax(1).detach())


def test_told_apart_is_the_vote_of_the_nearest():
    neighbours = pytest.importorskip("sklearn.neighbors")
    draw = torch.Generator().manual_seed(0)
    shifts = {"a": (0, 0), "b": (1, 0), "c": (0, 3)}
    sets = {
        n: torch.randn(200, 2, generator=draw).double() * torch.tensor([1, 10]) + torch.tensor(s) for n, s in shifts.items()
    }
    known = torch.cat([rows[:100] for rows in sets.values()])
    vote = neighbours.KNeighborsClassifier(25).fit(known / known.std(0), [0] * 100 + [1] * 100 + [2] * 100)
    for i, (name, right) in enumerate(tell_apart(sets).items()):
        assert right == pytest.approx((vote.predict(sets[name][100:] / known.std(0)) == i).mean(), abs=0.011)  # ties
    alone = tell_apart({"a": torch.zeros(10, 1), "b": torch.ones(10, 1)}, 3)
    assert alone == {"a": 1.0, "b": 1.0}
    assert sum(tell_apart({"a": torch.zeros(10, 1), "b": torch.zeros(10, 1)}, 3).values()) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(4))
def test_jensen_shannon_is_that_of_scipy(seed):
    scipy = pytest.importorskip("scipy.spatial.distance")
    random = np.random.default_rng(seed)
    p, q = random.poisson(1.0, BINS), random.poisson(2.0, BINS)  # with empty bins
    assert jensen_shannon(p, q) == pytest.approx(scipy.jensenshannon(p, q))


def test_jensen_shannon_at_its_ends():
    assert jensen_shannon([3, 0, 1], [6, 0, 2]) == 0
    assert jensen_shannon([1, 0], [0, 5]) == pytest.approx(np.sqrt(np.log(2)))


@pytest.mark.parametrize("ties", [False, True])
def test_auroc_is_that_of_sklearn(ties):
    metrics = pytest.importorskip("sklearn.metrics")
    low, high = torch.randn(50), torch.randn(70) + 0.5
    if ties:
        low, high = low.round(), high.round()
    labels = np.r_[np.zeros(50), np.ones(70)]
    assert auroc(low, high) == pytest.approx(metrics.roc_auc_score(labels, torch.cat([low, high]).numpy()))


def test_comparison_of_distributions():
    base, other = torch.linspace(0, 1, 200), torch.linspace(1, 2, 100)
    found = compare_sets({"base": base, "same": base.clone(), "other": other}, "base")
    assert found["range"] == [0, 2]
    assert found["distance"]["same"] == 0
    assert found["distance"]["other"] > 0.8
    assert found["auroc"]["other"] > 0.99
    assert found["mean"]["other"] == pytest.approx(1.5)
    assert sum(found["counts"]["other"]) == 100


def test_constant_scores_have_a_histogram():
    found = compare_sets({"base": torch.ones(5), "other": torch.ones(3)}, "base")
    assert found["distance"]["other"] == 0
    assert found["auroc"]["other"] == 0.5


def test_names_of_networks():
    settings = {"mlps": [16], "transformers": [[4, 32]]}
    assert shift_tabular_report.networks(settings) == ["mlp-16", "ft-4-32"]
    assert shift_tabular_report.title("ft-4-32") == "FT-Transformer, 4 heads, 32 wide"


def test_study_of_the_monitor(tmp_path_factory, tmp_path):
    data = tmp_path_factory.mktemp("data")
    data_files.openxai(data / "openxai", np.random.default_rng(0), train=500)
    data_files.openxai_weights(data / "openxai_weights", "compas", 7)
    few = ("--set", "count=2", "--set", "fresh=4", "--set", "kind_seeds=2")
    results, said = finished("monitor", tmp_path, "--data", data, *few)
    assert list(results) == ["compas-default-false-alarms", "compas-default-kinds", "compas-default"]
    assert "false alarms (alarms) within the stated rate" in said
    assert "lost: the kind is 'missing or frozen column' in nine of ten seeds" in said
    (by_shift,) = results["compas-default-kinds"]["kinds"].values()
    assert by_shift["lost"] == ["missing or frozen column"] * 2
    assert all(len(kinds) == 2 for kinds in by_shift.values())
    assert {"added.md", "statistics.md", "shifts.md", "verdicts.md", "kinds.md", "false-alarms.md"} <= written(tmp_path)


def test_monitor_of_latent_features(tmp_path):
    """Latent features of stacked digits are rows of a table; labels stay those of the images."""
    random = np.random.default_rng(0)
    for name in ("mnist", "fashion-mnist"):
        (tmp_path / name).mkdir()
        labels = (np.arange(1000) % 10).astype(np.uint8)
        images = (random.integers(0, 60, (1000, 28, 28)) + 15 * labels[:, None, None]).astype(np.uint8)
        data_files.write_idx(tmp_path / name / "t10k-images-idx3-ubyte.gz", images)
        data_files.write_idx(tmp_path / name / "t10k-labels-idx1-ubyte.gz", labels)
    place = Workplace(tmp_path / "models", str(tmp_path), False)
    settings = settings_of(STUDIES["monitor"], "toy", {"digit_epochs": 1, "count": 2})
    digits = Digits.prepare(settings, place)
    data = concat_mnist(folder=tmp_path, seed=42)
    order = torch.randperm(len(data.x_test), generator=torch.Generator().manual_seed(0))
    assert torch.equal(digits.y, data.y_test[order])
    assert digits.x.shape == (500, 128)
    assert set(digits.shifted) == {"digits, correlation", "digits, semantic"}
    found = measure_digits(settings, place)
    assert found["rows"] == 250
    assert set(found["shifts"]) == set(digits.shifted)
    assert found["shifts"]["digits, semantic"]["100"]["harm"] is not None


def test_interval_of_a_share():
    low, high = binomial_interval(1, 200)
    assert low == pytest.approx(0.000127, abs=1e-5)
    assert high == pytest.approx(0.02754, abs=1e-4)
    assert binomial_interval(0, 10)[0] == 0
    assert binomial_interval(10, 10)[1] == 1
