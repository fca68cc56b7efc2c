"""Scores of files: equal to those of rows in memory, whatever the kind, the parts and the processes."""

from __future__ import annotations

import copy
import json

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("pyarrow")
fsspec = pytest.importorskip("fsspec")
import pyarrow.csv as arrow_csv  # noqa: E402
import pyarrow.feather as arrow_feather  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from sklearn.neural_network import MLPRegressor  # noqa: E402

import cafexai  # noqa: E402
from batch_files import NAMES, nets, network, read, refused, rows, table, write  # noqa: E402
from cafexai import CAFE, Column, Schema, from_sklearn  # noqa: E402
from cafexai._engine.request import Request  # noqa: E402
from cafexai.batch import score  # noqa: E402
from cafexai.batch._fingerprint import fingerprint  # noqa: E402
from cafexai.loading.file_errors import DataProblem, OutputProblem  # noqa: E402
from command_files import process, write_all  # noqa: E402


def test_scores_are_those_of_rows_in_memory(tmp_path):
    x = rows(730)
    write(tmp_path / "in.parquet", x, start=10)
    summary = score(CAFE(network()), tmp_path / "in.parquet", tmp_path / "out", keep=["id"], rows_per_part=200, workers=0)
    found, expected = read(tmp_path / "out"), CAFE(network()).explain(torch.tensor(x))
    assert found["id"].to_pylist() == list(range(10, 740))
    assert found["source_row"].to_pylist() == list(range(730))
    for word, scores in (("positive", expected.positive), ("negative", expected.negative), ("net", expected.combined)):
        columns = np.stack([found[f"{word}_{name}"].to_numpy() for name in NAMES], 1)
        np.testing.assert_allclose(columns, scores.numpy(), rtol=1e-6, atol=1e-7)
    for name in ("bias", "bias_positive", "bias_negative", "conflict", "output", "baseline_output"):
        np.testing.assert_allclose(found[name].to_numpy(), getattr(expected, name).numpy(), rtol=1e-5, atol=1e-6)
    assert found["target"].to_pylist() == expected.target[:, 0].tolist()
    assert (summary.rows, summary.refused, summary.parts) == (730, 0, 4)
    assert summary.mean_conflict == pytest.approx(expected.conflict.mean().item(), rel=1e-5)
    assert "730 rows scored, 0 refused, in 4 parts" in str(summary)


def test_row_groups_are_put_together_and_cut(tmp_path):
    write(tmp_path / "in.parquet", rows(1000), group=90)
    score(CAFE(network()), tmp_path / "in.parquet", tmp_path / "small", keep=["id"], rows_per_part=200, workers=0)
    starts = sorted(int(path.stem.split("-")[-1]) for path in (tmp_path / "small").glob("part-*.parquet"))
    assert starts == [0, 180, 360, 540, 720, 900]
    score(CAFE(network()), tmp_path / "in.parquet", tmp_path / "cut", keep=["id"], rows_per_part=40, workers=0)
    small, cut = read(tmp_path / "small"), read(tmp_path / "cut")
    assert cut["id"].to_pylist() == list(range(1000))
    np.testing.assert_allclose(nets(cut), nets(small), rtol=1e-5, atol=1e-6)


def test_two_processes_give_the_same_bits(tmp_path):
    write(tmp_path / "in.parquet", rows(900))
    alone = score(CAFE(network()), tmp_path / "in.parquet", tmp_path / "a", keep=["id"], rows_per_part=100, workers=0)
    both = score(CAFE(network()), tmp_path / "in.parquet", tmp_path / "b", keep=["id"], rows_per_part=100, workers=2)
    assert read(tmp_path / "a").equals(read(tmp_path / "b"))
    assert (alone.rows, alone.parts) == (both.rows, both.parts) == (900, 9)


@pytest.mark.parametrize("workers", [0, 2])
def test_deep_models_are_explained_by_the_same_variant_in_every_chunk_and_process(tmp_path, workers):
    """The variant once depended on the first rows; published scores of this network are more than 100 times as large."""
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(5, 5), torch.nn.ReLU())]
    model, x = torch.nn.Sequential(*layers, torch.nn.Linear(5, 1)).float(), rows(60)
    with torch.no_grad():
        for layer in layers[::2]:
            layer.weight.mul_(3)
    score(
        CAFE(model), write(tmp_path / "in.parquet", x), tmp_path / "out", keep=["id"], rows_per_part=20, workers=workers,
        request=Request(batch_size=7),
    )  # fmt: skip
    found, expected = read(tmp_path / "out"), CAFE(model, variant="default").explain(torch.tensor(x))
    columns = np.stack([found[f"positive_{name}"].to_numpy() for name in NAMES], 1)
    np.testing.assert_allclose(columns, expected.positive.numpy(), rtol=1e-4, atol=1e-4 * float(expected.positive.max()))
    assert CAFE.published(model).explain(torch.tensor(x)).positive.sum() > 100 * expected.positive.sum()


def test_csv_arrow_folders_globs_and_addresses(tmp_path):
    x = rows(300)
    folder = tmp_path / "parts"
    folder.mkdir()
    write(folder / "a.parquet", x[:120])
    write(folder / "b.parquet", x[120:], start=120)
    (folder / "_note.parquet").write_bytes(b"no rows")
    arrow_csv.write_csv(table(x), tmp_path / "rows.csv")
    arrow_feather.write_feather(table(x), tmp_path / "rows.arrow", chunksize=70)
    memory = fsspec.filesystem("memory")
    with memory.open("/cafexai-test/rows.parquet", "wb") as file:
        pq.write_table(table(x), file)
    expected = CAFE(network()).explain(torch.tensor(x)).combined.numpy()
    sources = [folder, f"{folder}/*.parquet", [folder / "a.parquet", folder / "b.parquet"], tmp_path / "rows.csv"]
    sources += [tmp_path / "rows.arrow", "memory://cafexai-test/rows.parquet"]
    for place, source in enumerate(sources):
        out = tmp_path / f"out{place}"
        score(CAFE(network()), source, out, keep=["id"], rows_per_part=100, workers=0)
        np.testing.assert_allclose(nets(read(out)), expected, rtol=1e-5, atol=1e-6)
    assert read(tmp_path / "out3")["id"].to_pylist() == [str(place) for place in range(300)]  # as they are written


def test_folders_that_say_something_can_be_kept(tmp_path):
    for day in (1, 2):
        (tmp_path / "in" / f"day={day}").mkdir(parents=True)
        write(tmp_path / "in" / f"day={day}" / "x.parquet", rows(20, seed=day))
    score(CAFE(network()), tmp_path / "in", tmp_path / "out", keep=["id", "day"], workers=0)
    assert read(tmp_path / "out")["day"].to_pylist() == [1] * 20 + [2] * 20


def test_the_strongest_features_as_lists(tmp_path):
    x = rows(50)
    write(tmp_path / "in.parquet", x)
    score(CAFE(network()), tmp_path / "in.parquet", tmp_path / "out", keep=["id"], top=2, scores="signed", workers=0)
    found, expected = read(tmp_path / "out"), CAFE(network()).explain(torch.tensor(x), feature_names=NAMES)
    assert not any(name.startswith(("net_", "positive_")) for name in found.column_names)
    for row in range(50):
        order = expected.combined[row].abs().argsort(descending=True)[:2].tolist()
        assert found["top_features"][row].as_py() == [NAMES[place] for place in order]
        np.testing.assert_allclose(found["top_positive"][row].as_py(), expected.positive[row, order], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["top_negative"][row].as_py(), expected.negative[row, order], rtol=1e-5, atol=1e-6)


def test_bad_rows_are_put_aside_with_the_reason(tmp_path):
    frame = pd.DataFrame(
        {"key": list("abcdef"), "age": [30.0, None, 40, 50, np.inf, 60], "city": ["Rome", "Oslo", "Lima", None, "Rome", "Oslo"]}
    )
    frame.to_parquet(tmp_path / "in.parquet")
    schema = Schema((Column("age"), Column("city", "one-hot", ("Rome", "Oslo"))), classes=("no", "maybe", "yes"))
    cafe = CAFE(network(inputs=3), schema=schema)
    summary = score(cafe, tmp_path / "in.parquet", tmp_path / "out", keep=["key"], workers=0)
    found = read(tmp_path / "out")
    assert (summary.rows, summary.refused) == (2, 4)
    again = score(cafe, tmp_path / "in.parquet", tmp_path / "out", keep=["key"], workers=0)
    assert str(again).startswith("2 rows scored, 4 refused (6 of them earlier), in 1 parts")
    assert found["key"].to_pylist() == ["a", "f"]
    assert set(found["target"].to_pylist()) <= {"no", "maybe", "yes"}
    expected = cafe.explain(frame.iloc[[0, 5]][["age", "city"]])
    np.testing.assert_allclose(nets(found, ["age", "city"]), expected.combined.numpy(), rtol=1e-5)
    reasons = {row["key"]: row["reason"] for row in refused(tmp_path / "out")}
    assert set(reasons) == set("bcde")
    assert "'age' is missing" in reasons["b"]
    assert "none of 'Rome', 'Oslo'" in reasons["c"]
    assert "'city' is missing" in reasons["d"]
    assert "not finite" in reasons["e"]


def test_words_where_numbers_should_be(tmp_path):
    (tmp_path / "in.csv").write_text("id,x0,x1,x2,x3,x4\n7,1,2,3,4,5\n8,1,two,3,4,5\n9,1,,3,4,5\n")
    summary = score(CAFE(network()), tmp_path / "in.csv", tmp_path / "out", keep=["id"], workers=0)
    assert (summary.rows, summary.refused) == (1, 2)
    reasons = {row["id"]: row["reason"] for row in refused(tmp_path / "out")}
    assert "'two', which is no number" in reasons["8"]
    assert "is missing" in reasons["9"]


class Moody(torch.nn.Module):
    """It fails where the first feature is above 2."""

    def __init__(self):
        super().__init__()
        self.body = network()

    def forward(self, x):
        if bool((x[:, 0] > 2).any()):
            raise RuntimeError("not such a row")
        return self.body(x)


def test_a_row_that_the_model_refuses_does_not_harm_the_others(tmp_path):
    x = rows(200)
    odd = x[:, 0] > 2
    assert 0 < odd.sum() < 20
    assert not odd[0]
    write(tmp_path / "in.parquet", x)
    summary = score(CAFE(Moody().eval()), tmp_path / "in.parquet", tmp_path / "out", keep=["id"], workers=0)
    assert summary.refused == odd.sum()
    assert all("not such a row" in row["reason"] for row in refused(tmp_path / "out"))
    expected = CAFE(network()).explain(torch.tensor(x[~odd])).combined.numpy()
    np.testing.assert_allclose(nets(read(tmp_path / "out")), expected, rtol=1e-4, atol=1e-6)


def test_too_many_bad_rows_end_the_run(tmp_path):
    x = rows(400)
    x[50:90, 2] = np.nan
    write(tmp_path / "in.parquet", x)
    call = (CAFE(network()), tmp_path / "in.parquet", tmp_path / "out")
    with pytest.raises(DataProblem, match="40 of 100 rows refused, more than max_bad=10"):
        score(*call, keep=["id"], rows_per_part=100, max_bad=10, workers=0)
    assert score(*call, keep=["id"], rows_per_part=100, max_bad=0.5, workers=0).refused == 40


def test_every_part_says_what_made_it(tmp_path):
    write(tmp_path / "in.parquet", rows(20))
    score(CAFE(network(), c=0.3), tmp_path / "in.parquet", tmp_path / "out", keep=["id"], workers=0)
    (part,) = (tmp_path / "out").glob("*.parquet")
    about = json.loads(pq.read_schema(part).metadata[b"cafexai"])
    assert about["version"] == cafexai.__version__
    assert about["settings"]["c"] == 0.3
    assert about["settings"]["variant"] == "default"
    assert len(about["model"]) == 32


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"seed": 1}, "weights"),
        ({"c": 0.1}, "the setting c, which was 0.5 and is 0.1"),
        ({"netting": "feature"}, 'netting, which was "path" and is "feature"'),
        ({"scores": "net"}, 'scores, which was "all" and is "net"'),
        ({"baselines": 1.0}, "the setting baselines"),
        ({"target": 1}, "target, which was not there and is 1"),
        ({"rows_per_part": 7}, "rows_per_part, which was 10 and is 7"),
    ],
)
def test_what_has_changed_is_told(tmp_path, change, told):
    def run(seed=0, c=0.5, netting="path", **options):
        cafe = CAFE(network(seed), c, "published", netting=netting)
        options = {"keep": ["id"], "rows_per_part": 10, "workers": 0, **options}
        return score(cafe, tmp_path / "in.parquet", tmp_path / "out", **options)

    write(tmp_path / "in.parquet", rows(40))
    run()
    with pytest.raises(OutputProblem, match="begun with something else") as error:
        run(**change)
    assert told in str(error.value)
    assert run().scored_now == 0  # nothing was harmed


def test_changed_input_is_noticed(tmp_path):
    x = rows(300)
    source, out = write(tmp_path / "in.parquet", x), tmp_path / "out"
    options = {"keep": ["id"], "rows_per_part": 100, "workers": 0}
    score(CAFE(network()), source, out, **options)
    (out / "part-00000-000000000100.parquet").unlink()
    write(source, x)  # the same rows, written anew
    assert score(CAFE(network()), source, out, **options).scored_now == 100
    other = x.copy()
    other[250, 1] += 1
    write(source, other)
    with pytest.raises(DataProblem, match="rows from 200 on have changed"):
        score(CAFE(network()), source, out, **options)
    write(source, x[:200])
    with pytest.raises(OutputProblem, match=r"the input .*in\.parquet, which was"):
        score(CAFE(network()), source, out, **options)


def test_what_cannot_be_is_said(tmp_path):
    source = write(tmp_path / "in.parquet", rows(10))
    cafe = CAFE(network())
    with pytest.raises(DataProblem, match="no such file"):
        score(cafe, tmp_path / "other.parquet", tmp_path / "out")
    with pytest.raises(DataProblem, match="no column 'idd'; did you mean 'id'"):
        score(cafe, source, tmp_path / "out", keep=["idd"])
    with pytest.raises(ValueError, match="does not take inputs"):
        score(cafe, source, tmp_path / "out", workers=0)  # the id is taken for a feature
    with pytest.raises(ValueError, match="Allowed values: 'net', 'signed', 'all'"):
        score(cafe, source, tmp_path / "out", scores="both")
    with pytest.raises(ValueError, match="one output"):
        score(cafe, source, tmp_path / "out", target="all")
    with pytest.raises(ValueError, match="cannot be sent to other processes"):
        score(CAFE(lambda x: x.sum(1)), source, tmp_path / "out", keep=["id"], workers=1)
    with pytest.warns(UserWarning, match="cannot be sent"):
        assert score(CAFE(lambda x: x.sum(1)), source, tmp_path / "lambda", keep=["id"], rows_per_part=5).rows == 10
    (tmp_path / "mine").mkdir()
    write(tmp_path / "mine" / "x.parquet", rows(3))
    with pytest.raises(OutputProblem, match="no run of cafexai has written"):
        score(cafe, source, tmp_path / "mine", keep=["id"], workers=0)


def test_the_command(tmp_path):
    folder = write_all(tmp_path)
    words = ("batch", "mixed.csv", "out", "--model", "shop:net", "--weights", "net.safetensors", "--keep", "city")
    code, said, _ = process(folder, *words, "--workers", "2", "--scores", "net")
    assert (code, "4 rows scored, 1 refused, in 1 parts" in said) == (0, True)
    assert read(folder / "out").column_names[:3] == ["source_file", "source_row", "city"]
    code, said, error = process(folder, *words, "--scores", "signed")
    assert (code, said) == (5, "")
    assert 'the setting scores, which was "net" and is "signed"' in error
    code, said, _ = process(folder, *words, "--scores", "net", "--json")
    assert (code, json.loads(said)["scored_now"]) == (0, 0)
    code, _, error = process(folder, "batch", "mixed.csv", "out2", "--model", "shop:net", "--max-bad", "0", "--keep", "city")
    assert code == 3
    assert "1 of 5 rows refused" in error
    wrongs = {("--scores", "both"): "--scores 'both'", ("--kernels", "often"): "--kernels 'often'"}
    for wrong, told in (wrongs | {("--baseline", "mean"): "--background FILE"}).items():
        code, _, error = process(folder, *words, *wrong)
        assert (code, told in error) == (2, True)


def _plus_one(x):
    return x + 1


def _plus_two(x):
    return x + 2


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_fingerprints_tell_models_apart():
    def noisy(seed, running=0.0):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2)).eval()
        model[0].running_mean[1] = running
        return model

    frame = pd.DataFrame({"age": [1.0, 2.0], "city": ["Rome", None]})
    tree = from_sklearn(MLPRegressor(hidden_layer_sizes=(3,), max_iter=5, random_state=0).fit(rows(20), rows(20)[:, 0]))
    other = from_sklearn(MLPRegressor(hidden_layer_sizes=(3,), max_iter=5, random_state=1).fit(rows(20), rows(20)[:, 0]))
    different = [noisy(0), noisy(1), noisy(0, 0.5), noisy(0).float(), Moody(), _plus_one, _plus_two, tree, other]
    different += [frame, frame.assign(age=[1.0, 3.0]), None, 0, 0.0, "0", torch.zeros(2), torch.zeros(2, 1), np.zeros(2), {}]
    different += [network(0), torch.nn.Sequential(*network(0), torch.nn.ReLU())]
    prints = [fingerprint(one) for one in different]
    assert len(set(prints)) == len(different)
    assert [fingerprint(one) for one in (noisy(0), noisy(1), noisy(0, 0.5))] == prints[:3]
    assert fingerprint(copy.deepcopy(tree)) == fingerprint(tree)


def test_numbers_of_all_kinds(tmp_path):
    frame = pd.DataFrame(
        {"x0": [1, 2, 3], "x1": [True, False, None], "x2": ["1.5", "2", "x"], "x3": [0.5, 1, 2], "x4": [1, 2, 3]}
    )
    frame["x2"] = frame["x2"].astype("string[pyarrow]")
    frame["x4"] = frame["x4"].astype("float32")
    frame.to_parquet(tmp_path / "in.parquet")
    frame[:0].to_parquet(tmp_path / "none.parquet")
    sources = [tmp_path / "none.parquet", tmp_path / "in.parquet"]
    score(CAFE(network()), sources, tmp_path / "out", workers=0)
    expected = CAFE(network()).explain(torch.tensor([[1, 1, 1.5, 0.5, 1], [2, 0, 2, 1, 2]]).float())
    np.testing.assert_allclose(nets(read(tmp_path / "out")), expected.combined, rtol=1e-5, atol=1e-6)
    (row,) = refused(tmp_path / "out")
    assert row["source_row"] == 2
    assert "'x1' is missing; 'x2' is 'x', which is no number" in row["reason"]
    with pytest.raises(DataProblem, match="there are no rows"):
        score(CAFE(network()), tmp_path / "none.parquet", tmp_path / "out2", workers=0)


def test_a_csv_file_goes_on_where_it_was_stopped(tmp_path):
    arrow_csv.write_csv(table(rows(1000)), tmp_path / "in.csv")
    call = (CAFE(network()), tmp_path / "in.csv")
    options = {"keep": ["id"], "rows_per_part": 100, "workers": 0}
    said = []

    def stop(line):
        said.append(line)
        if len(said) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score(*call, tmp_path / "out", say=stop, **options)
    assert [line.split(",")[0] for line in said] == ["100 rows", "200 rows", "300 rows"]
    assert score(*call, tmp_path / "out", **options).scored_now == 700
    assert score(*call, tmp_path / "out", **options).scored_now == 0
    score(*call, tmp_path / "straight", **options)
    assert read(tmp_path / "out").equals(read(tmp_path / "straight"))
