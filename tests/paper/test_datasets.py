"""Loaders on tiny files in the formats of the real ones."""

from __future__ import annotations

import gzip
import hashlib
import re
import threading
from dataclasses import FrozenInstanceError, replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

import data_files
from cafexai import datasets
from cafexai.datasets import DATASETS, DataNotFound, Dataset, load
from cafexai.paper.datasets.reading import read_idx, table_digest
from cafexai.paper.datasets.record import min_max, robust, split
from cafexai.paper.datasets.sources import FILES, Source

LEVELS = list(zip(datasets.PROCEDURAL, (3.31, 2.69, 2.62, 2.18, 1.14, 0.50), strict=True))
MADE = {"synthetic_conflicts", "synthetic_shift", "shapes"}
SMALL = {"shapes": {"train": 12, "test": 6, "size": 32}, "synthetic_conflicts": {"rows": 100}, "synthetic_shift": {"rows": 50}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return data_files.write_all(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    """No folder of the user and no cache of earlier runs."""
    monkeypatch.delenv("CAFEXAI_DATA", raising=False)
    monkeypatch.setenv("CAFEXAI_CACHE", str(tmp_path / "cache"))


def options(name, folder):
    return SMALL.get(name, {}) | ({} if name in MADE - {"shapes"} else {"folder": folder})


@pytest.mark.parametrize("name", DATASETS)
def test_every_loader_gives_one_whole_record(name, folder):
    data = load(name, **options(name, folder))
    assert isinstance(data, Dataset)
    assert data.name == name
    assert data.citation
    assert data.terms
    for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test), *data.shifts.values()):
        assert len(x) == len(y) > 0
        assert x.is_floating_point()
        assert torch.isfinite(x).all()
        assert x.shape[1:] == data.x_train.shape[1:]
        if data.class_names:
            assert y.dtype == torch.int64
            assert 0 <= y.min() <= y.max() < len(data.class_names)
    if data.feature_names:
        assert len(data.feature_names) == data.x_train.shape[1] == sum(data.layout)
        assert data.feature_mask.shape == (1, data.x_train.shape[1])
        assert set(data.readable(0)) == set(data.features)
    with pytest.raises(FrozenInstanceError):
        data.name = "other"


@pytest.mark.parametrize("name", DATASETS)
def test_the_same_call_gives_the_same_data(name, folder):
    first, again = (load(name, **options(name, folder)) for _ in range(2))
    for part in ("x_train", "y_train", "x_test", "y_test"):
        assert torch.equal(getattr(first, part), getattr(again, part))
    assert all(torch.equal(first.shifts[kind][0], again.shifts[kind][0]) for kind in first.shifts)


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in ("synthetic_conflicts", "synthetic_shift")])
def test_scalers_lead_back(name, folder):
    data = load(name, **options(name, folder)).to(torch.float64)
    for part, scaler in (("train", data.scaler), ("test", data.test_scaler or data.scaler)):
        back = scaler.transform(data.original(part))
        assert torch.allclose(back, data.inputs(part), atol=1e-9)


def test_reports_show_original_units(folder):
    data = load("titanic", folder=folder)
    records = datasets.titanic(folder=folder).original("train")
    ages = {float(value) for value in records[:, 1].round(decimals=3)}
    assert float(data.readable(0, "train")["Age"]) in ages
    assert data.readable(0)["Sex"] in ("male", "female")
    assert data.readable(0)["Age"] == f"{round(data.original()[0, 1].item(), 4):.6g}"
    german = load("german", folder=folder)
    assert german.readable(0)["purpose"] in map(str, range(10))


def test_openxai_scales_each_split_by_itself_or_by_train(folder):
    theirs, sound = load("heloc", folder=folder), load("heloc", folder=folder, scaling="train")
    assert theirs.x_test.min() == 0
    assert theirs.x_test.max() == 1
    assert sound.x_test.max() != 1
    assert torch.equal(theirs.x_train, sound.x_train)
    assert torch.allclose(theirs.original(), sound.original())
    assert load("compas", folder=folder).numbers == (0, 2, 3)
    assert load("adult", folder=folder).numbers == tuple(range(6))
    assert load("german", folder=folder).layout == (*(1,) * 8, 4, 5, 10, 5, 5, 4, 3, 4, 3, 3, 4, 2)
    with pytest.raises(ValueError, match=r"heloc\(scaling='none'\)"):
        load("heloc", folder=folder, scaling="none")


def test_splits_and_scalers_are_those_of_scikit_learn():
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import MinMaxScaler, RobustScaler

    x = np.random.default_rng(0).normal(size=(93, 4)) * [1, 10, 100, 0]
    for share in (0.02, 0.1, 0.2):
        ours, theirs = split(93, share, 43), train_test_split(np.arange(93), test_size=share, random_state=43)
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    tensor = torch.from_numpy(x)
    assert np.allclose(min_max(x).transform(tensor), MinMaxScaler().fit_transform(x))
    assert np.allclose(robust(x).transform(tensor), RobustScaler(quantile_range=(10, 90)).fit_transform(x))


def test_covertype_keeps_fewer_rows_and_finds_broken_files(folder, tmp_path):
    whole, part = load("covertype", folder=folder), load("covertype", folder=folder, rows=20)
    assert torch.equal(whole.x_train[:20], part.x_train)
    assert len(whole.x_test) == 4
    assert part.notes
    (tmp_path / "covertype").mkdir()
    (tmp_path / "covertype" / "covtype.data").write_text("1,2,3\n")
    with pytest.raises(ValueError, match="multiple of 55"):
        load("covertype", folder=tmp_path)


def test_mimic_recipe(folder):
    pandas = pytest.importorskip("pandas")
    table = datasets.mimic_table(folder=folder)
    assert len(table) == 60 - 3  # too old, no temperature, impossible weight
    assert table["hr"].eq(80).all()  # the earliest of three, and of the first stay
    assert table["temperature"].eq(98).all()
    died = [i for i in range(60) if i % 5 == 0 and i != 0]
    assert table["died_30_days"].sum() == len(died)
    assert len(datasets.mimic_table(folder=folder, first_hour=True)) == len(table)
    plain = load("mimic", folder=folder, positive_share=None)
    assert len(plain.x_test) == 6
    data = load("mimic", folder=folder)
    assert 0.25 < data.y_train.double().mean() <= 0.3
    assert torch.equal(data.x_test, load("mimic", folder=folder).x_test)
    assert data.layout == (1,) * 7 + (3, 2)
    assert load("mimic", folder=folder, demo=True).terms == "ODbL 1.0"
    assert isinstance(table, pandas.DataFrame)


def test_mimic_draws_as_scikit_learn_and_pandas_do():
    pandas, utils = pytest.importorskip("pandas"), pytest.importorskip("sklearn.utils")
    from cafexai.paper.datasets.mimic import _upsample

    rows, died = np.arange(100)[::-1].copy(), np.arange(100) % 9 == 0
    frame = pandas.DataFrame({"row": rows})
    positive = frame[died[rows]]
    extra = int((100 * 0.3 - len(positive)) / 0.7)
    drawn = utils.resample(positive, replace=True, n_samples=extra, random_state=42)
    expected = pandas.concat([frame, drawn]).sample(frac=1, random_state=43)["row"]
    assert np.array_equal(_upsample(rows, died, 0.3), expected)


def test_digits_on_digits(folder):
    data = load("concat_mnist", folder=folder)
    assert data.x_train.shape == (20, 1, 56, 28)
    assert set(data.shifts) == {"correlation", "semantic"}
    digits, clothes = load("mnist", folder=folder), load("fashion_mnist", folder=folder)
    found = [(digits.x_test == half).flatten(1).all(1).nonzero().item() for half in data.x_train[:, :, 28:]]
    assert torch.equal(digits.y_test[found], data.y_train + 5)
    found = [(digits.x_test == half).flatten(1).all(1).nonzero().item() for half in data.shifts["correlation"][0][:, :, 28:]]
    assert (digits.y_test[found] >= 5).all()
    assert not torch.equal(digits.y_test[found], data.y_train + 5)
    for half in data.shifts["semantic"][0][:, :, 28:]:
        assert (clothes.x_test == half).flatten(1).all(1).any()
    assert torch.equal(data.x_train[:, :, :28], data.shifts["semantic"][0][:, :, :28])
    with pytest.raises(ValueError, match="source='both'"):
        load("concat_mnist", folder=folder, source="both")


def test_images_from_a_subset(folder, tmp_path):
    archive = load("cifar10", folder=folder)
    assert archive.x_train.shape == (20, 3, 32, 32)
    assert "subset" in archive.notes[0]
    pixels = (archive.original("train") * 255).round().byte().permute(0, 2, 3, 1).numpy()
    (tmp_path / "cifar10").mkdir()
    arrays = {
        "x_train": pixels,
        "y_train": archive.y_train.numpy(),
        "x_test": pixels[:5],
        "y_test": archive.y_train[:5].numpy(),
    }
    np.savez(tmp_path / "cifar10" / "cifar10_subset.npz", **arrays)
    assert torch.allclose(load("cifar10", folder=tmp_path).x_train, archive.x_train, atol=1e-6)


def test_shapes_have_their_area():
    from cafexai.paper.datasets.shapes import SHAPES, draw

    labels = np.repeat(np.arange(6), 30)
    black, white = (draw(labels, np.full((180, 96, 96, 3), c, np.float32), np.random.default_rng(0)) for c in (0, 1))
    covered = 1 - (white - black)[..., 0].mean((1, 2))  # the background that still shows is missing
    radius = np.random.default_rng(0).uniform(0.22, 0.42, 180)
    share = dict(zip(SHAPES, (covered / radius**2).reshape(6, 30), strict=True))
    for shape, corners in (("triangle", 3), ("pentagon", 5), ("hexagon", 6)):
        assert np.allclose(share[shape], corners / 2 * np.sin(2 * np.pi / corners), rtol=0.05), shape
    assert np.allclose(share["circle"], np.pi, rtol=0.03)
    assert np.allclose(share["star"], 10 * 0.45 * np.sin(np.pi / 5) / 2, rtol=0.08)


def test_shapes_on_photographs(folder):
    data = load("shapes", textures="dtd", train=6, test=6, size=32, folder=folder)
    assert data.y_train.bincount(minlength=6).sum() == 6
    assert not torch.equal(data.x_train, load("shapes", train=6, test=6, size=32).x_train)
    with pytest.raises(ValueError, match="smaller size"):
        load("shapes", textures="dtd", size=64, folder=folder)
    with pytest.raises(ValueError, match="textures='plain'"):
        load("shapes", textures="plain")


def test_conflicts_follow_their_rule():
    data = load("synthetic_conflicts", dimension=3, likelihood=0.25, seed=44)
    torch.manual_seed(44)
    assert torch.equal(data.weights, 2 * torch.rand(3, dtype=torch.float32) - 1)
    assert [len(part) for part in (data.x_train, data.x_valid, data.x_test)] == [6000, 2000, 2000]
    assert torch.allclose(data.truth_test.sum(1, keepdim=True), data.y_test, atol=1e-4)
    x, c = data.x_train[:, :3], data.x_train[:, 3:]
    assert abs(x.std() - 10) < 0.3
    assert abs(c.mean() - 0.25) < 0.02
    assert set(c.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(("column", "paper"), LEVELS)
def test_level_of_what_gradients_miss_is_that_of_the_paper(column, paper):
    """Gradient x input gives 0 to whatever is cancelled, so its error is known without a network."""
    errors = []
    for seed in range(42, 47 if column[0] < 1000 else 44):  # so many features make every seed alike
        data = load("synthetic_conflicts", dimension=column[0], likelihood=column[1], seed=seed)
        cancelled = data.x_test[:, column[0] :].repeat(1, 2)
        errors.append((data.truth_test * cancelled).square().mean(0).sqrt().mean().item())
    tolerance = {"abs": 0.005} if column[0] < 1000 else {"rel": 0.05}  # the paper's last digit
    assert sum(errors) / len(errors) == pytest.approx(paper, **tolerance)


def test_shift_changes_only_b():
    data = load("synthetic_shift", rows=2000)
    a, b = data.x_train[:, 1:6], data.x_train[:, 6:]
    assert torch.equal(a, b)
    assert torch.equal(a.argmax(1), data.y_train)
    x, y = data.shifts["correlation"]
    assert torch.equal(x[:, 1:6].argmax(1), y)
    assert (x[:, 6:].argmax(1) != y).all()
    assert x[:, 6:].sum(1).eq(1).all()
    x, y = data.shifts["missing"]
    assert x[:, 6:].eq(0).all()
    assert data.readable(0, "missing")["B"] == "unknown"
    with pytest.raises(ValueError, match="no split 'valid'"):
        data.inputs("valid")


def test_a_name_that_does_not_exist():
    with pytest.raises(ValueError, match=r"load\('mnists'\).*fashion_mnist"):
        load("mnists")
    with pytest.raises(ValueError, match="Allowed values: compas"):
        datasets.openxai_weights("titanic")


def test_missing_files_give_one_message(tmp_path, monkeypatch):
    with pytest.raises(DataNotFound) as error:
        load("adult", folder=tmp_path / "mine")
    text = str(error.value)
    assert "load('adult'): openxai/adult-train.csv is missing" in text
    assert f"Put the file at {tmp_path / 'mine' / 'openxai' / 'adult-train.csv'}" in text
    monkeypatch.setenv("CAFEXAI_DATA", str(tmp_path / "env"))
    with pytest.raises(DataNotFound) as error:
        load("mimic")
    assert str(tmp_path / "env") in str(error.value)
    assert "PhysioNet account" in str(error.value)
    assert "demo=True" in str(error.value)


def test_broken_files_are_named(folder, tmp_path):
    data_files.write_idx(tmp_path / "whole", np.zeros((3, 2), np.uint8))
    (tmp_path / "half").write_bytes(gzip.decompress((tmp_path / "whole").read_bytes())[:-1])
    with pytest.raises(ValueError, match="incomplete"):
        read_idx(tmp_path / "half")
    (tmp_path / "openxai").mkdir()
    (tmp_path / "openxai" / "adult-train.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="no column 'income'"):
        load("adult", folder=tmp_path)
    (tmp_path / "titanic").mkdir()
    names = "PassengerId,Survived,Pclass,Sex,Age,SibSp,Parch,Fare\n"
    for text, message in (
        (f"{names}1,0,3,male,22,1,0,7.25\n2,1,1", "line 3 has no column 'Age'"),
        ("a,b\n1,2\n", "line 2 has no column 'Pclass'"),
        (names, "there are no rows"),
        ("", "there are no rows"),
    ):
        (tmp_path / "titanic" / "titanic_train.csv").write_text(text)
        with pytest.raises(ValueError, match=f"titanic_train.csv: {message}"):
            load("titanic", folder=tmp_path)


@pytest.fixture
def server(folder):
    """A real server with the tiny files."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    running.server_close()


def offer(monkeypatch, *parts):
    for name, source in parts:
        monkeypatch.setitem(FILES, name, source)


def test_download_checks_and_caches(server, folder, monkeypatch, tmp_path):
    name = "titanic/titanic_train.csv"
    known = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    good = (f"{server}/{name}", f"sha256:{known}")
    bad = (f"{server}/{name}", f"sha256:{'0' * 64}")
    nowhere = ("http://127.0.0.1:9/titanic.csv", None)
    offer(monkeypatch, (name, Source((bad, nowhere))))
    with pytest.raises(DataNotFound) as error:
        load("titanic")
    text = str(error.value)
    assert "hash" in text.lower()
    assert "no connection" in text
    assert "Put the file at <folder>/titanic/titanic_train.csv and pass folder=<folder> or set CAFEXAI_DATA" in text
    assert not any(path.is_file() for path in (tmp_path / "cache").rglob("*"))
    offer(monkeypatch, (name, Source((bad, nowhere, good))))
    first = load("titanic")
    offer(monkeypatch, (name, Source((nowhere,))))
    assert torch.equal(first.x_train, load("titanic").x_train)  # from the cache
    assert torch.equal(first.x_train, load("titanic", folder=folder).x_train)


def test_download_is_checked_by_content_where_no_checksum_is_known(server, folder, monkeypatch):
    for part in ("train", "test"):
        name = f"openxai/compas-{part}.csv"
        url = ((f"{server}/{name}", None),)
        offer(monkeypatch, (name, replace(FILES[name], urls=url)))
    with pytest.raises(DataNotFound, match="the content is not the known one"):
        load("compas")
    for part in ("train", "test"):
        name = f"openxai/compas-{part}.csv"
        offer(monkeypatch, (name, replace(FILES[name], content=table_digest(folder / name))))
    assert torch.equal(load("compas").x_test, load("compas", folder=folder).x_test)


def test_content_digest_does_not_depend_on_the_way_of_writing(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2.50\n")
    (tmp_path / "b.tab").write_text('"x"\t"y"\n1.0\t2.5\n')
    assert table_digest(tmp_path / "a.csv") == table_digest(tmp_path / "b.tab")


def test_environment_folder(folder, monkeypatch):
    monkeypatch.setenv("CAFEXAI_DATA", str(folder))
    assert len(load("mnist", rows=7).x_train) == 7


def test_the_page_about_data_runs_and_names_every_loader(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    torch.set_default_dtype(torch.float32)
    namespace = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, "data.md", "exec"), namespace)
    assert list(Path("trained").glob("*.safetensors"))
    for name, entry in DATASETS.items():
        assert f"| `{name}` |" in page
        assert entry.loader.__doc__


def test_every_needed_file_has_a_source():
    from cafexai.paper.datasets.sources import IDX

    names = [f"openxai/{name}-{part}.csv" for name in ("compas", "heloc", "adult", "german") for part in ("train", "test")]
    names += [f"openxai_weights/ann_{name}.pt" for name in ("compas", "heloc", "adult", "german")]
    names += [f"{home}/{file}" for home in ("mnist", "fashion-mnist") for file in IDX]
    names += [
        "titanic/titanic_train.csv",
        "covertype/covtype.data.gz",
        "cifar10/cifar-10-binary.tar.gz",
        "dtd/dtd-r1.0.1.tar.gz",
    ]
    for name in names:
        source = FILES[name]
        assert source.urls
        assert source.content or all(known for _, known in source.urls), f"{name} would be taken unchecked"
