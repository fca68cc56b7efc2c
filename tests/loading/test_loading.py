"""Models and data that come as files, and the command line on each kind of them."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from cafexai import CAFE, from_sklearn
from cafexai.cli.app import app
from cafexai.cli.errors import run
from cafexai.loading import DataProblem, ModelProblem, load_model, read_data
from command_files import NUMBERS, network, write_all, write_images


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("shop"))


@pytest.fixture
def here(shop, monkeypatch, capsys):
    """Commands in the folder of the files; what they say as JSON, or as text where they fail."""
    monkeypatch.chdir(shop)
    monkeypatch.setattr(sys, "path", list(sys.path))
    torch.set_default_dtype(torch.float32)

    def command(*words, code=0):
        found = run(app, list(map(str, words)))
        out, error = capsys.readouterr()
        assert found == code, error
        return error if code else json.loads(out) if out.startswith("{") else out

    return command


# ---- models ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["net.safetensors", "net.pt", "checkpoint.pt"])
@pytest.mark.parametrize("spec", ["shop:net", "shop.py:net"])
def test_code_with_weights(spec, weights, shop, here):
    model = load_model(spec, weights)
    assert not model.training
    x = torch.randn(4, 3)
    torch.testing.assert_close(model(x), network()(x))


def test_a_whole_model_is_read_only_if_it_is_trusted(shop, here):
    with pytest.raises(ModelProblem, match="add --trust"):
        load_model("whole.pt")
    x = torch.randn(4, 3)
    torch.testing.assert_close(load_model("whole.pt", trust=True)(x), network()(x))


@pytest.mark.parametrize("ending", ["pkl", "joblib"])
def test_reading_a_pickle_that_is_not_trusted_runs_nothing(ending, shop, here):
    import pickle

    class Evil:
        def __reduce__(self):
            return (open, ("ran.txt", "w"))

    (shop / f"evil.{ending}").write_bytes(pickle.dumps(Evil()))
    torch.save(Evil(), shop / "evil.pt")
    for path in (f"evil.{ending}", "evil.pt"):
        with pytest.raises(ModelProblem, match="--trust"):
            load_model(path)
    with pytest.raises(ModelProblem, match="more than tensors"):
        load_model("shop:net", "evil.pt")
    assert not (shop / "ran.txt").exists()


def test_exported_programs(shop, here):
    rows = torch.export.Dim("rows")
    program = torch.export.export(network(), (torch.randn(2, 3),), dynamic_shapes=({0: rows},))
    torch.export.save(program, shop / "net.pt2")
    torch.export.save(torch.export.export(network(), (torch.randn(2, 3),)), shop / "fixed.pt2")
    assert "add --trust" in here("explain", "net.pt2", "people.csv", code=4)
    found = here("explain", "net.pt2", "people.csv", "--trust", "--json")
    expected = CAFE(network()).explain(pd.read_csv("people.csv"))
    assert [row["conflict"] for row in found["rows"]] == pytest.approx(expected.conflict.tolist(), rel=1e-5)
    assert "--batch-size 1" in here("explain", "fixed.pt2", "people.csv", "--trust", code=4)


@pytest.fixture(scope="module")
def pipeline():
    """Fitted on mixed columns with missing values, as people have them."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(18, 80, 60), "income": rng.normal(4, 1, 60), "children": rng.integers(0, 4, 60)})
    table["city"] = rng.choice(["Rome", "Oslo", "Lima"], 60)
    table.loc[3, "income"] = np.nan
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    words = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    before = make_column_transformer((numbers, NUMBERS), (words, ["city"]))
    made = make_pipeline(before, MLPClassifier((8,), max_iter=50, random_state=0))
    return made.fit(table, np.where(table.age + 10 * table.children > 55, "good", "bad"))


@pytest.mark.filterwarnings("ignore")
def test_a_pipeline_by_skops_on_mixed_columns_with_missing_values(pipeline, shop, here):
    io = pytest.importorskip("skops.io")
    io.dump(pipeline, shop / "credit.skops")
    found = here("explain", "credit.skops", "mixed.csv", "--json", "--target", "good")
    assert [feature["name"] for feature in found["rows"][0]["features"]] == [*NUMBERS, "city"]
    values = [[feature["value"] for feature in row["features"]] for row in found["rows"]]
    assert values[0] == [45, 5.2, 2, "Rome"]
    assert values[1][1] is None
    assert values[2][3] is None
    assert found["rows"][0]["class"] == "good"
    expected = CAFE(from_sklearn(pipeline)).explain(pd.read_csv("mixed.csv"))
    assert [row["output"] for row in found["rows"]] == pytest.approx(expected.output.tolist())
    assert 0 < found["rows"][0]["probability"] < 1
    assert "give a class (bad, good)" in here("explain", "credit.skops", "mixed.csv", "--target", "ugly", code=2)
    assert "no column 'city'" in here("explain", "credit.skops", "people.csv", code=3)
    against_mode = here("explain", "credit.skops", "mixed.csv", "--baseline", "mode", "--json")
    assert against_mode["rows"][0]["baseline_output"] != found["rows"][0]["baseline_output"]
    averaged = here("explain", "credit.skops", "mixed.csv", "--baseline", "mixed.csv", "--biases", "reference", "--json")
    assert averaged["rows"][0]["baseline_output"] == pytest.approx(expected.output.mean().item())


def test_what_skops_does_not_know_is_named(shop, here):
    io = pytest.importorskip("skops.io")
    from sklearn.preprocessing import FunctionTransformer

    io.dump(FunctionTransformer(func=write_images), shop / "odd.skops")
    assert "command_files.write_images" in here("explain", "odd.skops", "people.csv", code=4)


@pytest.mark.filterwarnings("ignore")
def test_pickles_of_pipelines_that_are_trusted(pipeline, shop, here):
    import joblib

    joblib.dump(pipeline, shop / "credit.joblib")
    assert len(here("explain", "credit.joblib", "mixed.csv", "--trust", "--json")["rows"]) == 5
    from sklearn.ensemble import RandomForestClassifier

    joblib.dump(RandomForestClassifier(n_estimators=2).fit([[0], [1]], [0, 1]), shop / "forest.joblib")
    assert "TreeSHAP" in here("explain", "forest.joblib", "people.csv", "--trust", code=4)


def test_onnx_files(shop, here):
    pytest.importorskip("onnx", reason="ONNX files need the package onnx")
    from exported import export

    (shop / "empty.onnx").write_bytes(b"")
    assert "cannot be read" in here("explain", "empty.onnx", "people.csv", code=4)
    export(network(), torch.randn(2, 3), shop / "net.onnx", 17, False)
    found = here("explain", "net.onnx", "people.csv", "--json")
    expected = CAFE(network()).explain(pd.read_csv("people.csv"))
    assert [row["conflict"] for row in found["rows"]] == pytest.approx(expected.conflict.tolist(), rel=1e-5)


# ---- data --------------------------------------------------------------------------------------------------------------


def test_tables_in_several_forms(shop):
    plain = read_data(shop / "people.csv")
    assert (plain.names, set(plain.kinds.values()), len(plain)) == (tuple(NUMBERS), {"number"}, 5)
    counted = read_data(shop / "counted.csv")
    assert counted.names == plain.names
    assert "counts the rows" in counted.notes[0]
    assert read_data(shop / "semicolons.csv").rows.to_numpy().tolist() == [[45, 5.2, 2], [31, 3.1, 0]]
    assert read_data(shop / "latin.csv", encoding="cp1252").names[0] == "café"
    assert read_data(shop / "people.csv", ["children", "age"]).names == ("children", "age")
    assert read_data(shop / "mixed.csv").kinds == {**dict.fromkeys(NUMBERS, "number"), "city": "category"}
    some = plain.take([4, 0])
    assert some.places == (4, 0)
    assert some.rows["age"].tolist() == [51, 45]
    pytest.importorskip("pyarrow")
    plain.rows.to_parquet(shop / "people.parquet")
    assert read_data(shop / "people.parquet").rows.equals(plain.rows)
    (shop / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataProblem, match="no table can be read"):
        read_data(shop / "bad.parquet")


def test_scores_as_parquet(here, tmp_path):
    pytest.importorskip("pyarrow")
    here("explain", "shop:net", "people.csv", "--weights", "net.pt", "--out", tmp_path / "scores.parquet")
    assert len(pd.read_parquet(tmp_path / "scores.parquet")) == 5 * 4


def test_arrays_go_to_the_inputs_of_their_name(shop, here):
    x = np.load("x.npz")["x"]
    one = here("explain", "shop:net", "x.npz", "--weights", "net.pt", "--json", "--target", "0")
    assert one["rows"][2]["output"] == pytest.approx(network()(torch.tensor(x))[2, 0].item(), rel=1e-5)
    two = here("explain", "shop:Two", "two.npz", "--json")  # forward(b, a); y is no input
    assert [row["output"] for row in two["rows"]] == pytest.approx((4 * x).sum(1).tolist(), abs=1e-5)
    assert [feature["net"] for feature in two["rows"][0]["features"]] == pytest.approx([*2 * x[0], *2 * x[0]], abs=1e-5)
    assert len(here("explain", "shop:net", "two.npz", "--columns", "a", "--json")["rows"]) == 4
    assert "did you mean" in here("explain", "shop:net", "two.npz", "--columns", "aa", code=3)


def test_images(shop, here):
    pytest.importorskip("PIL")
    write_images(shop / "images")
    write_images(shop / "sizes", ((8, 8), (9, 8)))
    plain = here("explain", "shop:cnn", "images", "--json")
    assert [row["name"] for row in plain["rows"]] == ["image0.png", "image1.png"]
    assert len(plain["rows"][0]["features"]) == 64
    values = [feature["value"] for feature in plain["rows"][0]["features"]]
    assert max(values) > 0.9
    halved = here("explain", "shop:cnn", "images", "--preprocess", "shop:halved", "--json")
    assert [feature["value"] for feature in halved["rows"][0]["features"]] == pytest.approx(values)  # the picture as it was
    assert "different sizes (8 x 8, 9 x 8)" in here("explain", "shop:cnn", "sizes", code=3)
    assert here("explain", "shop:cnn", "sizes", "--preprocess", "shop:halved", "--json")["rows"][1]["row"] == 1
    assert "it failed at row 0" in here("explain", "shop:cnn", "images", "--preprocess", "shop:broken", code=4)
    (shop / "images" / "bad.png").write_bytes(b"no image")
    assert "no image can be read" in here("explain", "shop:cnn", "images", code=3)


class Bag(nn.Module):
    """Words to two scores."""

    def __init__(self, size):
        super().__init__()
        self.words, self.head = nn.Embedding(size, 4), nn.Linear(4, 2)

    def forward(self, input_ids, attention_mask, token_type_ids=None):
        mask = attention_mask[..., None].to(self.words.weight.dtype)
        return self.head(torch.relu((self.words(input_ids) * mask).sum(1)))


def test_texts(shop, here):
    transformers = pytest.importorskip("transformers")
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] a good bad fil ##m".split()
    (shop / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizer(vocab={word: place for place, word in enumerate(words)})
    tokenizer.save_pretrained(shop / "tokenizer")
    torch.save(Bag(len(words)).state_dict(), shop / "bag.pt")
    (shop / "bag.py").write_text(f"from test_loading import Bag\n\ndef make():\n    return Bag({len(words)})\n")
    found = here("explain", "bag:make", "words.txt", "--weights", "bag.pt", "--tokenizer", "tokenizer", "--json")
    assert [row["row"] for row in found["rows"]] == [0, 2]  # line 1 is empty
    assert [f["name"] for f in found["rows"][0]["features"]] == ["a", "good", "film"]
    assert "no tokenizer can be read" in here("explain", "bag:make", "words.txt", "--tokenizer", ".", code=4)
    out = here("supported", "bag:make", "words.txt", "--tokenizer", "tokenizer")
    assert out.startswith("supported: ")


def test_texts_for_a_pipeline_that_takes_them(shop, here):
    import joblib
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline

    network = MLPClassifier((4,), solver="lbfgs", random_state=0)
    joblib.dump(
        make_pipeline(TfidfVectorizer(), network).fit(["a good film", "a bad film"], ["yes", "no"]), shop / "film.joblib"
    )
    found = here("explain", "film.joblib", "words.txt", "--trust", "--json")
    assert {feature["name"] for feature in found["rows"][0]["features"]} == {"bad", "film", "good"}


# ---- schemas -----------------------------------------------------------------------------------------------------------


def test_a_schema_is_shown_changed_and_used(shop, here):
    text = here("explain", "shop:net", "mixed.csv", "--show-schema")
    assert "# income: 1 of 5 values are missing" in text
    assert 'labels = ["Lima", "Oslo", "Rome"]' in text
    changed = text.replace('kind = "category"', 'kind = "one-hot"').replace('"Lima", "Oslo", "Rome"', '"Rome", "Oslo", "Lima"')
    (shop / "schema.toml").write_text('classes = ["no", "yes"]\n' + changed, encoding="utf-8")
    (shop / "six_columns.py").write_text("from torch import nn\n\ndef make():\n    return nn.Linear(6, 2)\n")
    assert "row 1, column 'income' is missing" in here(
        "explain", "six_columns:make", "mixed.csv", "--schema", "schema.toml", code=3
    )
    options = ("--schema", "schema.toml", "--rows", "0,3,4", "--json", "--target", "yes", "--against", "no")
    found = here("explain", "six_columns:make", "mixed.csv", *options)
    assert [[feature["name"] for feature in row["features"]] for row in found["rows"]] == [[*NUMBERS, "city"]] * 3
    assert [row["features"][3]["value"] for row in found["rows"]] == ["Rome", "Rome", "Lima"]
    assert "no column 'city'" in here("explain", "six_columns:make", "people.csv", "--schema", "schema.toml", code=3)
    (shop / "bad.toml").write_text("columns = 3")
    assert "--schema bad.toml: a schema has" in here("explain", "six_columns:make", "mixed.csv", "--schema", "bad.toml", code=2)
    assert "--schema no.toml: the file cannot be read" in here(
        "explain", "six_columns:make", "mixed.csv", "--schema", "no.toml", code=2
    )


def test_a_report_says_where_it_comes_from(here, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["cafexai", "report", "shop:net", "people.csv"])
    said = here("report", "shop:net", "people.csv", "--rows", "1,4", "--out", tmp_path / "report.html")
    assert said == f"{tmp_path / 'report.html'}: 2 rows of people.csv explained.\n"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "people.csv, 2 of 5 rows" in page
    assert "Row 4" in page
    assert "cafexai report shop:net people.csv" in page
    assert "Row 0" not in page
    assert "one --target" not in here("explain", "shop:net", "people.csv", "--target", "all", "--out", tmp_path / "all.html")


def test_dates_in_a_text_file_are_dates_for_a_pipeline_that_was_fitted_on_dates(tmp_path):
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    from cafexai.loading import model_inputs

    frame = pd.DataFrame({"since": pd.date_range("2020-01-01", periods=20, freq="37D"), "amount": np.arange(20.0)})
    days = FunctionTransformer(lambda x: x.apply(lambda column: column.dt.day_of_year))
    steps = ColumnTransformer([("day", make_pipeline(days, StandardScaler()), ["since"]), ("rest", "passthrough", ["amount"])])
    model = from_sklearn(make_pipeline(steps, LinearRegression()).fit(frame, frame.amount))
    frame.to_csv(tmp_path / "dates.csv", index=False)
    data = read_data(tmp_path / "dates.csv")
    assert data.kinds == {"since": "date", "amount": "number"}
    e = CAFE(model).explain(model_inputs(model, data)[0])
    torch.testing.assert_close(e.combined, CAFE(model).explain(frame).combined)
    assert e.values(2) == CAFE(model).explain(frame).values(2) == ["2020-03-15", 2.0]
    assert "Texts read as dates: since." in e.notes


def test_decimal_commas_are_named(tmp_path):
    (tmp_path / "german.csv").write_text("name;amount\nA;3,5\nB;1.024,25\nC;7\n")
    with pytest.raises(DataProblem, match=r"column 'amount' holds numbers with a decimal comma \(3,5\).*decimal=','"):
        read_data(tmp_path / "german.csv")
    (tmp_path / "words.csv").write_text("name;amount\nA;3,5\nB;a lot\n")
    assert read_data(tmp_path / "words.csv").kinds["amount"] == "category"
