"""Odd files: the right result, or a word that says what is wrong."""

from __future__ import annotations

import datetime
import decimal
import gzip

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("pyarrow")
pytest.importorskip("fsspec")
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batch_files import NAMES, nets, network, read, refused, rows, table
from cafexai import CAFE
from cafexai.batch import score
from cafexai.loading.file_errors import DataProblem, OutputProblem

X = rows(50)
TABLE = table(X)
NET = CAFE(network()).explain(torch.tensor(X)).combined.numpy()
PLAIN = X[:, 1].tolist()
WORDS = [repr(cell) for cell in PLAIN]
HEAD = "id,x0,x1,x2,x3,x4\n"


def run(source, out, **options):
    return score(CAFE(network()), source, out, **{"keep": ["id"], "workers": 0, **options})


def other(cells, name="x1"):
    return TABLE.set_column(TABLE.schema.get_field_index(name), name, cells)


def written(folder, one):
    """As Parquet, or as Arrow where that has no such type."""
    path = folder / "in.arrow"
    with pa.ipc.new_file(path, one.schema) as file:
        file.write_table(one)
    return path


@pytest.mark.parametrize(
    "cells",
    [
        pa.array(PLAIN, pa.float32()).dictionary_encode(),
        pa.array(WORDS).dictionary_encode(),
        pa.array(WORDS, pa.large_string()),
        pa.array(WORDS, pa.string_view()),
        pa.array([f" {word} " for word in WORDS]),
        pa.array([decimal.Decimal(f"{cell:.12f}") for cell in PLAIN], pa.decimal128(20, 12)),
        pc.run_end_encode(pa.array(PLAIN)),
    ],
    ids=["dictionary", "dictionary of words", "large words", "views", "with blanks", "decimal", "run ends"],
)
def test_numbers_in_other_clothes(tmp_path, cells):
    run(written(tmp_path, other(cells)), tmp_path / "out")
    np.testing.assert_allclose(nets(read(tmp_path / "out")), NET, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        (None, "'x1' is missing"),
        (float("inf"), "not finite"),
        (1e300, "holds inf"),  # in float64 only
        ("two", "'two', which is no number"),
        ("7" * 2_000_000, "77..., which is not finite"),
        ("1,5", "no number"),
    ],
)
def test_one_odd_cell(tmp_path, cell, told):
    words = isinstance(cell, str)
    run(written(tmp_path, other(pa.array([cell, *(WORDS if words else PLAIN)[1:]]))), tmp_path / "out")
    np.testing.assert_allclose(nets(read(tmp_path / "out")), NET[1:], rtol=1e-5, atol=1e-6)
    (row,) = refused(tmp_path / "out")
    assert told in row["reason"]
    assert len(row["reason"]) < 300


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([datetime.datetime(2020, 1, 1)] * 50),
        pa.array([datetime.timedelta(1)] * 50),
        pa.array([[1.0]] * 50),
        pa.array([{"a": 1.0}] * 50),
        pa.nulls(50),
    ],
    ids=["time", "span", "list", "struct", "nothing"],
)
def test_columns_that_are_no_numbers(tmp_path, cells):
    with pytest.raises(DataProblem, match=r"none of the first 50 rows can be scored: 'x1' is (.*no number|missing)"):
        run(written(tmp_path, other(cells)), tmp_path / "out")


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([None] * 50, pa.int64()),
        pa.array(["a", "b"] * 25).dictionary_encode(),
        pa.array([datetime.datetime(2020, 1, 1)] * 50, pa.timestamp("ns", "UTC")),
        pa.array([[1, 2]] * 50),
        pa.array(["y" * 100_000] * 50),
    ],
    ids=["nothing", "dictionary", "time", "list", "long words"],
)
def test_keys_of_all_kinds(tmp_path, keys):
    run(written(tmp_path, other(keys, "id")), tmp_path / "out")
    assert read(tmp_path / "out")["id"].to_pylist() == keys.to_pylist()


def test_names_of_all_kinds(tmp_path):
    names = ["größe", "名前", "x 2", "a\"b'c,", "😀"]
    folder = tmp_path / "ordner ü" / "nested"
    folder.mkdir(parents=True)
    pq.write_table(TABLE.rename_columns(["schlüssel", *names]), folder / "a[1].parquet")
    for place, source in enumerate((folder.parent, folder / "a[1].parquet", f"{folder.parent}/**/*.parquet")):
        run(source, tmp_path / f"out{place}", keep="schlüssel")
        np.testing.assert_allclose(nets(read(tmp_path / f"out{place}"), names), NET, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it is empty"),
        (HEAD, "there are no rows"),
        ("id,x0,x0,x2,x3,x4\n1,1,2,3,4,5\n", "more than one column is called 'x0'"),
        ("1,0.5,0.5,3,4,5\n2,1,2,3,4,5\n", "more than one column"),
        ("1,0.5,2.5,3,4,5\n2,1,2,3,4,5\n", "the first line is numbers"),
        (f"{HEAD}1,1,2,3,4,5\n2,1,2\n", "Expected 6 columns, got 3"),
        (f"{HEAD}ö,1,2,3,4,5\n".encode("cp1252"), "not written in UTF-8 .* --encoding cp1252"),
    ],
)
def test_text_that_is_no_table(tmp_path, text, told):
    (tmp_path / "in.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataProblem, match=told):
        run(tmp_path / "in.csv", tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (HEAD.replace("id", '"i\nd"') + "k,1,2,3,4,5\n", {"keep": ["i\nd"]}),
        ((HEAD + "k,1,2,3,4,5\n").replace("\n", "\r"), {}),
        ((HEAD + "k,1,2,3,4,5\n").replace(",", ";"), {}),
        (f"\ufeff{HEAD}\nk,1,2,3,4,5\n\n", {}),
        ((HEAD + "k,1,2,3,4,5\n").encode("utf-16"), {"encoding": "utf-16"}),
        (gzip.compress((HEAD + "k,1,2,3,4,5\n").encode()), {}),
    ],
    ids=["name of two lines", "old Mac", "semicolons", "mark and blank lines", "utf-16", "packed"],
)
def test_text_that_is_a_table(tmp_path, text, options):
    path = tmp_path / ("in.csv.gz" if isinstance(text, bytes) and not options else "in.csv")
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert run(path, tmp_path / "out", **options).rows == 1
    assert read(tmp_path / "out").column(2).to_pylist() == ["k"]


def test_files_that_do_not_go_together(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(TABLE, folder / "a.parquet")
    with pytest.raises(DataProblem, match="named twice"):
        run([folder / "a.parquet", f"{folder}/*.parquet"], tmp_path / "out")
    pq.write_table(other(pa.array(["q"] * 50), "id"), folder / "b.parquet")
    with pytest.raises(DataProblem, match=r"b\.parquet: 'id' is string here and int64 in the first file"):
        run(folder, tmp_path / "out")
    pq.write_table(TABLE.select(["x4", "x3", "id", "x2", "x1", "x0"]), folder / "b.parquet")
    run(folder, tmp_path / "mixed")
    np.testing.assert_allclose(nets(read(tmp_path / "mixed")), [*NET, *NET], rtol=1e-5, atol=1e-6)
    twice = pa.table([TABLE["id"]] + [TABLE["x0"]] * 5, names=["id", "x0", "x0", "x2", "x3", "x4"])
    with pytest.raises(DataProblem, match="more than one column has the same name"):
        run(written(tmp_path, twice), tmp_path / "out")


def test_results_are_no_input(tmp_path):
    pq.write_table(TABLE, tmp_path / "a.parquet")
    with pytest.raises(OutputProblem, match="inside of the input"):
        run(tmp_path, tmp_path / "out")
    with pytest.raises(OutputProblem, match="inside of the input"):
        run(tmp_path, tmp_path)
    assert run(tmp_path, tmp_path / "_scores").rows == 50  # passed over by those who read the folder
    assert run(f"{tmp_path}/*.parquet", tmp_path / "out").rows == 50
    with pytest.raises(OutputProblem, match="inside of the input"):
        run(f"{tmp_path}/**/*.parquet", tmp_path / "out")


@pytest.mark.parametrize(
    ("source", "options", "kind", "told"),
    [
        ([], {}, DataProblem, "no files"),
        (None, {}, TypeError, "give a file"),
        ("nothing*.parquet", {}, DataProblem, "no such file"),
        ("in.parquet", {"encoding": "klingon"}, ValueError, "no such encoding"),
        ("in.parquet", {"max_bad": -1}, ValueError, "max_bad=-1"),
        ("in.parquet", {"engine": "dask"}, ValueError, "'local', 'ray', 'spark'"),
        ("in.parquet", {"address": "here"}, ValueError, "of which engine"),
        ("in.parquet", {"engine": "ray", "address": "ray://127.0.0.1:1"}, ValueError, "does not accept connections"),
        ("in.parquet", {"engine": "spark", "address": "spark://127.0.0.1:1,a:2"}, ValueError, "does not accept connections"),
        ("in.parquet", {"keep": ["id", "id"]}, ValueError, "named twice"),
        ("reason.parquet", {"keep": ["reason"]}, ValueError, "'reason' is a column of the result, too"),
    ],
)
def test_what_is_asked_wrongly(tmp_path, monkeypatch, source, options, kind, told):
    monkeypatch.chdir(tmp_path)
    pq.write_table(TABLE, "in.parquet")
    pq.write_table(TABLE.rename_columns(["reason", *NAMES]), "reason.parquet")
    with pytest.raises(kind, match=told):
        run(source, "out", **options)


def test_words_for_nothing_are_missing_in_features_and_kept_in_keys(tmp_path):
    words = ["NA", "null", "nan", "N/A", "", "None", "a"]
    text = "id,x0\n" + "".join(f"{word},1\n" for word in words) + "b,NA\nc,null\n"
    (tmp_path / "in.csv").write_text(text)
    summary = score(CAFE(network(inputs=1)), tmp_path / "in.csv", tmp_path / "out", keep="id", workers=0)
    assert (summary.rows, summary.refused) == (7, 2)
    assert read(tmp_path / "out")["id"].to_pylist() == [word or None for word in words]
    assert [(row["id"], row["reason"]) for row in refused(tmp_path / "out")] == [
        ("b", "'x0' is missing"),
        ("c", "'x0' is missing"),
    ]


def test_empty_lines_of_a_single_column_are_rows(tmp_path):
    (tmp_path / "in.csv").write_text("x0\n1\n\n3\n")
    summary = score(CAFE(network(inputs=1)), tmp_path / "in.csv", tmp_path / "out", workers=0)
    assert (summary.rows, summary.refused) == (2, 1)
    assert read(tmp_path / "out")["source_row"].to_pylist() == [0, 2]
    assert [(row["source_row"], row["reason"]) for row in refused(tmp_path / "out")] == [(1, "'x0' is missing")]


def test_texts_in_views_are_kept(tmp_path):
    kinds = {"name": pa.string_view(), "code": pa.binary_view()}
    made = table(rows(3)).append_column("name", pa.array(["a", None, "longer than twelve letters"]).cast(kinds["name"]))
    made = made.append_column("code", pa.array([b"a", None, b"c"]).cast(kinds["code"]))
    made = made.set_column(1, "x0", pa.array(["1", "x", "3"]).cast(pa.string_view()))
    pq.write_table(made, tmp_path / "in.parquet")
    score(CAFE(network()), tmp_path / "in.parquet", tmp_path / "out", keep=["id", "name", "code"], workers=0)
    found = read(tmp_path / "out")
    assert found["name"].to_pylist() == ["a", "longer than twelve letters"]
    assert found["code"].to_pylist() == [b"a", b"c"]
    assert refused(tmp_path / "out")[0]["reason"] == "'x0' is 'x', which is no number"


@pytest.mark.parametrize("change", ["encoding", "allow_nan"])
def test_a_run_does_not_go_on_with_other_letters_or_other_missing_values(tmp_path, change):
    source = tmp_path / "in.csv"
    source.write_bytes(b"id,x0,x1,x2,x3,x4\n" + "é,1,2,3,4,5\n".encode("latin-1") * 20)
    options = {"keep": "id", "workers": 0, "rows_per_part": 10}
    score(CAFE(network()), source, tmp_path / "out", encoding="latin-1", **options)
    sorted((tmp_path / "out").glob("*.parquet"))[1].unlink()
    letters, cafe = ("cp1251", CAFE(network())) if change == "encoding" else ("latin-1", CAFE(network(), allow_nan=True))
    with pytest.raises(OutputProblem, match=f"the setting {change}"):
        score(cafe, source, tmp_path / "out", encoding=letters, **options)
    assert score(CAFE(network()), source, tmp_path / "out", encoding="ISO-8859-1", **options).rows == 20


def test_a_partition_that_readers_take_for_nothing_is_refused(tmp_path):
    made = table(rows(3)).append_column("day", pa.array(["a", "__HIVE_DEFAULT_PARTITION__", "b"]))
    pq.write_table(made, tmp_path / "in.parquet")
    summary = score(
        CAFE(network()), tmp_path / "in.parquet", tmp_path / "out", keep=["id", "day"], partition_by="day", workers=0
    )
    assert (summary.rows, summary.refused) == (2, 1)
    assert sorted(pd.read_parquet(tmp_path / "out")["day"]) == ["a", "b"]
