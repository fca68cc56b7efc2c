"""Loaders on the real files, where they are: in CAFEXAI_DATA, or in a folder of shared data beside the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from cafexai import datasets, models
from cafexai.datasets import load

FOLDER = Path(os.environ.get("CAFEXAI_DATA") or Path(__file__).parents[3] / "shared" / "data")
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no data in {FOLDER}; set CAFEXAI_DATA")


def real(name, needs, **options):
    if not (FOLDER / needs).exists():
        pytest.skip(f"{needs} is not in {FOLDER}")
    return load(name, folder=FOLDER, **options)


COUNTS = {
    "adult": (13, [27211, 8966], [6803, 2242]),
    "compas": (7, [915, 4022], [229, 1006]),
    "german": (60, [239, 561], [57, 143]),
    "heloc": (23, [4108, 3788], [1028, 947]),
}
ACCURACY = {  # train and test, scaler fitted on train; test, scaler fitted on test
    "adult": (0.8377, 0.8310, 0.8324),
    "compas": (0.8491, 0.8462, 0.8518),
    "german": (0.7250, 0.6750, 0.6750),
    "heloc": (0.7551, 0.7301, 0.7301),
}


@pytest.mark.parametrize("name", COUNTS)
def test_openxai(name):
    data = real(name, f"openxai/{name}-train.csv")
    columns, train, test = COUNTS[name]
    assert data.x_train.shape[1] == columns
    assert data.x_train.dtype == torch.float64
    assert data.y_train.bincount().tolist() == train
    assert data.y_test.bincount().tolist() == test
    for block in data.categories.values():
        if len(block) > 1:
            assert data.x_train[:, list(block)].sum(1).eq(1).all()


@pytest.mark.parametrize("name", ACCURACY)
def test_openxai_networks(name):
    by_train, by_split = (real(name, f"openxai/{name}-train.csv", scaling=scaling) for scaling in ("train", "split"))
    for end in ("safetensors", "pt"):
        path = FOLDER / "openxai_weights" / f"ann_{name}.{end}"
        if not path.exists():
            pytest.skip(f"{path} is not there")
        model = models.openxai_mlp(path)
        parts = ((by_train.x_train, by_train.y_train), (by_train.x_test, by_train.y_test), (by_split.x_test, by_split.y_test))
        found = [(model(x).argmax(1) == y).double().mean().item() for x, y in parts]
        assert found == pytest.approx(ACCURACY[name], abs=5e-5)
    assert datasets.openxai_weights(name, folder=FOLDER).suffix == ".safetensors"


def test_titanic():
    data = real("titanic", "titanic/titanic_train.csv")
    assert (len(data.x_train), len(data.x_test)) == (712, 179)
    assert (data.y_train.bincount() + data.y_test.bincount()).tolist() == [549, 342]
    assert data.layout == (1, 1, 1, 1, 1, 2)


def test_covertype():
    data = real("covertype", "covertype/covtype.data.gz")
    total = data.y_train.bincount() + data.y_test.bincount()
    assert total.tolist() == [211840, 283301, 35754, 2747, 9493, 17367, 20510]
    assert len(data.x_test) == 11621
    for block in data.categories.values():
        assert data.x_test[:, list(block)].sum(1).eq(1).all()
    assert data.scaler.inverse(data.x_test[:, :10].double().mean(0).repeat(6)[:54])[0] > 2000  # metres above the sea


def test_mimic_demo():
    pandas = pytest.importorskip("pandas")
    data = real("mimic", "mimic-iv-demo/icustays.csv", demo=True)
    table = datasets.mimic_table(demo=True, folder=FOLDER)
    assert table.shape == (93, 10)
    assert table["died_30_days"].sum() == 13
    expected = FOLDER / "mimic-iv-demo" / "simple_mimic_demo.csv"
    pandas.testing.assert_frame_equal(table, pandas.read_csv(expected), check_dtype=False)
    assert len(data.x_test) == 10
    with pytest.raises(ValueError, match="too few"):
        load("mimic", demo=True, folder=FOLDER, first_hour=True)


@pytest.mark.parametrize(("name", "home"), [("mnist", "mnist"), ("fashion_mnist", "fashion-mnist")])
def test_digits(name, home):
    data = real(name, home)
    assert data.x_train.shape == (60000, 1, 28, 28)
    assert data.x_test.shape == (10000, 1, 28, 28)
    if name == "fashion_mnist":
        assert data.y_train.bincount().tolist() == [6000] * 10
    else:
        assert abs(data.x_train.mean()) < 1e-3
        assert abs(data.x_train.std() - 1) < 1e-3


def test_concat_mnist():
    data = real("concat_mnist", "mnist")
    assert data.x_train.shape == (5139, 1, 56, 28)
    assert all(x.shape == data.x_train.shape for x, _ in data.shifts.values())


def test_cifar10():
    data = real("cifar10", "cifar10")
    assert data.y_train.bincount().unique().numel() == 1
    assert data.x_train.mean((0, 2, 3)).abs().max() < 0.05
    assert data.x_train.shape[1:] == (3, 32, 32)


def test_textures():
    data = real("shapes", "dtd", textures="dtd", train=12, test=6)
    assert data.x_train.shape == (12, 3, 64, 64)
