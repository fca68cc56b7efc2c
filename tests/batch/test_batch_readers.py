"""Results are a folder that every reader reads; partitions, moved and added input, estimates, fingerprints."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("fsspec")
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from batch_files import hidden, nets, network, read, refused, rows, table, write
from cafexai import CAFE, Column, Schema
from cafexai._engine.request import Request
from cafexai.batch import Fingerprints, estimate, score, verify
from cafexai.batch._fingerprint import fingerprint
from cafexai.cli.app import app
from cafexai.cli.errors import run
from cafexai.loading.file_errors import DataProblem, OutputProblem

PARTS = {"keep": ["id"], "rows_per_part": 100, "workers": 0}


@pytest.fixture
def out(tmp_path):
    """Scores of 300 rows, of which one is refused."""
    x = rows(300)
    x[7, 2] = np.nan
    score(CAFE(network()), write(tmp_path / "in.parquet", x), tmp_path / "out", **PARTS)
    return tmp_path / "out"


def test_the_folder_holds_parquet_files_only(out):
    assert {path.suffix for path in out.rglob("*") if path.is_file()} == {".parquet"}
    assert not list(hidden(out).rglob("*.parquet"))  # a glob over the parent does not meet refused rows
    assert [row["id"] for row in refused(out)] == [7]


@pytest.mark.parametrize(
    ("package", "one_line"),
    [
        ("pandas", "pandas.read_parquet('out')"),
        ("polars", "polars.read_parquet('out')"),
        ("polars", "polars.read_parquet('**/*.parquet')"),
        ("duckdb", "duckdb.sql(\"from 'out/**/*.parquet'\").df()"),
        ("duckdb", "duckdb.sql(\"from read_parquet('_out.cafexai/refused/*')\").df()"),
        ("pyarrow.parquet", "pyarrow.parquet.read_table('out').to_pandas()"),
    ],
)
def test_readers_read_it_in_one_line(out, monkeypatch, package, one_line):
    pytest.importorskip(package)
    (out.parent / "in.parquet").unlink()
    monkeypatch.chdir(out.parent)
    space = {}
    exec(f"import {package}\nfound = {one_line}", space)
    if "refused" in one_line:
        assert list(space["found"]["id"]) == [7]
        return
    assert len(space["found"]) == 299
    assert sorted(space["found"]["id"]) == [place for place in range(300) if place != 7]


def test_partitions_become_a_column_again(tmp_path):
    x, days = rows(250), np.array(["a b", "c/d=%", "3", "é"], dtype=object)[np.arange(250) % 4]
    days = np.where(np.arange(250) < 100, "a b", days)  # the first part has one folder only
    full = table(x).append_column("day", pa.array(days, pa.string())).append_column("n", pa.array(np.arange(250) % 2))
    pq.write_table(full, tmp_path / "in.parquet", row_group_size=100)
    options = {**PARTS, "keep": ["id", "day", "n"]}
    score(CAFE(network()), tmp_path / "in.parquet", tmp_path / "flat", **options)
    score(CAFE(network()), tmp_path / "in.parquet", tmp_path / "out", partition_by=["day", "n"], **options)
    assert {path.parent.parent.name for path in (tmp_path / "out").rglob("*.parquet")} == {
        "day=a b",
        "day=c%2Fd%3D%25",
        "day=3",
        "day=é",
    }
    flat = pd.read_parquet(tmp_path / "flat").sort_values("id").reset_index(drop=True)
    for back in _read_by_all(tmp_path / "out"):
        back = back.sort_values("id").reset_index(drop=True)
        assert back["day"].tolist() == days.tolist()
        assert back["n"].astype(int).tolist() == flat["n"].tolist()
        names = [name for name in flat.columns if name not in ("day", "n")]
        pd.testing.assert_frame_equal(back[names], flat[names], check_dtype=False)
    assert verify(tmp_path / "out").problems == ()
    assert (
        score(CAFE(network()), tmp_path / "in.parquet", tmp_path / "out", partition_by=["day", "n"], **options).scored_now == 0
    )


def _read_by_all(folder):
    yield pd.read_parquet(folder)
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    yield pd.DataFrame(polars.read_parquet(folder).to_dict(as_series=False))
    yield duckdb.sql(f"from '{folder}/**/*.parquet'").df()


def test_partitions_that_cannot_be_are_refused(tmp_path):
    full = table(rows(300)).append_column("day", pa.array(["", "a", None] * 100)).append_column("f", pa.array([0.5] * 300))
    pq.write_table(full, tmp_path / "in.parquet")
    cafe, source = CAFE(network()), tmp_path / "in.parquet"
    options = {"keep": ["id", "day", "f"], "workers": 0}
    with pytest.raises(ValueError, match=r"'x1' is no kept column\. Give keep"):
        score(cafe, source, tmp_path / "out", partition_by="x1", **options)
    with pytest.raises(ValueError, match="'f' is double"):
        score(cafe, source, tmp_path / "out", partition_by="f", **options)
    assert not (tmp_path / "out").exists()
    assert score(cafe, source, tmp_path / "out", partition_by="day", **options).refused == 200
    assert {row["reason"] for row in refused(tmp_path / "out")} == {"'day' is missing, and partition_by makes a folder of it"}
    assert read(tmp_path / "out")["source_row"].to_pylist() == list(range(1, 300, 3))
    with pytest.raises(DataProblem, match=r"300 folders .* Choose a column with fewer values"):
        score(cafe, source, tmp_path / "ids", partition_by="id", **options)
    assert not list((tmp_path / "ids").rglob("*.parquet"))


def test_compression(tmp_path):
    source = write(tmp_path / "in.parquet", rows(300))
    for word, code in {"snappy": "SNAPPY", "zstd": "ZSTD", "none": "UNCOMPRESSED"}.items():
        score(CAFE(network()), source, tmp_path / word, compression=word, **PARTS)
        part = pq.ParquetFile(next((tmp_path / word).glob("*.parquet")))
        assert part.metadata.row_group(0).column(0).compression == code
    assert read(tmp_path / "zstd").equals(read(tmp_path / "none"))
    with pytest.raises(ValueError, match=r"compression='lz4'.*Allowed values: 'snappy', 'zstd', 'none'"):
        score(CAFE(network()), source, tmp_path / "x", compression="lz4", **PARTS)


def test_a_run_goes_on_when_its_input_was_moved(tmp_path):
    (tmp_path / "here" / "deep").mkdir(parents=True)
    write(tmp_path / "here" / "a.parquet", rows(150))
    write(tmp_path / "here" / "deep" / "b.parquet", rows(150, 1), 150)

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score(CAFE(network()), tmp_path / "here", tmp_path / "out", say=stop, **PARTS)
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert score(CAFE(network()), tmp_path / "there", tmp_path / "out", **PARTS).scored_now == 200
    found = read(tmp_path / "out")
    assert set(found["source_file"].to_pylist()) == {"a.parquet", "deep/b.parquet"}
    shutil.move(tmp_path / "out", tmp_path / "results")  # the results can be moved with their bookkeeping
    shutil.move(hidden(tmp_path / "out"), hidden(tmp_path / "results"))
    assert verify(tmp_path / "results").problems == ()


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_files_that_are_added_are_scored_when_asked_for(tmp_path, kind):
    folder = tmp_path / "in"
    folder.mkdir()

    def put(name, seed, start):
        if kind == "csv":
            table(rows(120, seed), start).to_pandas().to_csv(folder / f"{name}.csv", index=False)
        else:
            write(folder / f"{name}.parquet", rows(120, seed), start)

    put("b", 0, 0)
    put("d", 1, 120)
    cafe = CAFE(network())
    score(cafe, folder, tmp_path / "out", **PARTS)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.parquet")}
    put("a", 2, 240)  # before all others, and between them
    put("c", 3, 360)
    with pytest.raises(OutputProblem, match=r"New files are scored with append=True \(--append\)"):
        score(cafe, folder, tmp_path / "out", **PARTS)
    calls = []

    def stop(_):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score(cafe, folder, tmp_path / "out", append=True, say=stop, **PARTS)
    assert score(cafe, folder, tmp_path / "out", **PARTS).rows == 480  # known now, and gone on with
    put("e", 4, 480)
    summary = score(cafe, folder, tmp_path / "out", append=True, **PARTS)
    assert (summary.rows, summary.scored_now) == (600, 120)
    now = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.parquet")}
    assert before.items() <= now.items()
    found = read(tmp_path / "out")
    ids = found["id"].to_numpy().astype(int)
    assert sorted(ids) == list(range(600))
    x = np.concatenate([rows(120, seed) for seed in range(5)])
    expected = cafe.explain(x[ids]).combined.numpy()
    np.testing.assert_allclose(nets(found), expected, rtol=1e-4, atol=1e-6)
    assert verify(tmp_path / "out").problems == ()
    next(folder.glob("b.*")).unlink()
    with pytest.raises(OutputProblem, match="the input b"):
        score(cafe, folder, tmp_path / "out", append=True, **PARTS)


def test_a_manifest_that_has_lost_added_files_is_refused(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for seed, name in enumerate(("b", "c")):
        write(folder / f"{name}.parquet", rows(50, seed))
        score(CAFE(network()), folder, tmp_path / "out", append=True, **PARTS)
    manifest = hidden(tmp_path / "out") / "manifest.jsonl"
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join(line for line in lines if '"more"' not in line))
    write(folder / "a.parquet", rows(50, 7))
    with pytest.raises(OutputProblem, match=r"does not know of c\.parquet any more"):
        score(CAFE(network()), folder, tmp_path / "out", append=True, **PARTS)


def test_output_of_an_earlier_version_and_other_files_are_refused(tmp_path):
    source = write(tmp_path / "in.parquet", rows(20))
    (tmp_path / "old" / "_cafexai").mkdir(parents=True)
    with pytest.raises(OutputProblem, match="begun by another version"):
        score(CAFE(network()), source, tmp_path / "old", **PARTS)
    (tmp_path / "other" / "day=1").mkdir(parents=True)
    write(tmp_path / "other" / "day=1" / "x.parquet", rows(5))
    with pytest.raises(OutputProblem, match="no run of cafexai has written"):
        score(CAFE(network()), source, tmp_path / "other", **PARTS)


def test_an_estimate_is_near_what_comes_out_and_writes_nothing(tmp_path):
    source = write(tmp_path / "in.parquet", rows(20000), group=5000)
    options = {**PARTS, "rows_per_part": 5000}
    found = estimate(CAFE(network()), source, tmp_path / "out", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]
    score(CAFE(network()), source, tmp_path / "out", **options)
    size = sum(path.stat().st_size for path in (tmp_path / "out").glob("*.parquet"))
    assert (found.rows, found.parts, found.columns) == (20000, 4, read(tmp_path / "out").num_columns)
    assert 0.8 < found.size / size < 1.25
    assert found.seconds > 0
    again = estimate(CAFE(network()), source, tmp_path / "out", **options)
    assert (again.rows, again.finished, again.size) == (0, 20000, 0)
    small = estimate(CAFE(network()), source, tmp_path / "x", **options, top=1, scores="net")
    assert small.bytes_per_row < found.bytes_per_row


def test_the_command_estimates_and_partitions(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table(rows(300)).to_pandas().to_csv("in.csv", index=False)
    (tmp_path / "net.py").write_text("from torch import nn\ndef net():\n    return nn.Linear(5, 1)\n")
    words = ["batch", "in.csv", "out", "--model", "net.py:net", "--keep", "id"]
    assert run(app, [*words, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "about 300 rows in 1 parts" in told
    assert "bytes and" in told
    assert not (tmp_path / "out").exists()
    assert run(app, [*words, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 300
    assert run(app, [*words, "--compression", "zstd"]) == 0
    assert run(app, ["batch", "in.csv", "ids", "--model", "net.py:net", "--keep", "id", "--partition-by", "nothing"]) != 0
    assert "is no kept column" in capsys.readouterr().err


def test_fingerprints_tell_what_made_the_scores(tmp_path, out):
    cafe = CAFE(network())
    made = Fingerprints.of(cafe, columns=[f"x{place}" for place in range(5)]).as_dict()
    about = json.loads(pq.read_schema(next(out.glob("*.parquet"))).metadata[b"cafexai"])
    assert about["fingerprint"] == made
    assert json.loads((hidden(out) / "summary.json").read_text())["fingerprint"] == made
    changes = {
        "model": Fingerprints.of(CAFE(network(1))),
        "settings": Fingerprints.of(CAFE(network(), 0.25)),
        "baseline": Fingerprints.of(cafe, Request(baselines=1.0)),
        "schema": Fingerprints.of(CAFE(network(), schema=Schema(tuple(Column(f"x{place}") for place in range(5))))),
    }
    plain = Fingerprints.of(cafe)
    for name, other in changes.items():
        assert [key for key in vars(plain) if vars(plain)[key] != vars(other)[key]] == [name]
        assert other.as_dict()["id"] != plain.as_dict()["id"]
    assert fingerprint(network()) == plain.model
