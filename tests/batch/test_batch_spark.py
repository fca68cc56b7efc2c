"""Spark on this machine: the bits of local files."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("pyarrow")
pytest.importorskip("fsspec")
pytest.importorskip("pyspark")
import pyarrow as pa
import pyarrow.parquet as pq

from batch_files import NAMES, hidden, network, read, rows, table, write
from cafexai import CAFE
from cafexai.batch import score, score_spark
from cafexai.loading.file_errors import OutputProblem
from command_files import process, write_all

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")]
PARTS = {"keep": ["id"], "rows_per_part": 100}


@pytest.fixture(scope="module")
def spark():
    from pyspark.sql import SparkSession

    before, os.environ["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON"), sys.executable
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    session = SparkSession.builder.master("local[2,4]").config(map=settings).getOrCreate()
    yield session
    session.stop()
    os.environ.pop("PYSPARK_PYTHON")
    os.environ.update({} if before is None else {"PYSPARK_PYTHON": before})


class Mortal(torch.nn.Module):
    """It kills its process once, at the row whose first feature is 9."""

    def __init__(self, mark):
        super().__init__()
        self.body, self.mark = network(), str(mark)

    def forward(self, x):
        if bool((x[:, 0] == 9).any()) and not Path(self.mark).exists():
            Path(self.mark).write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return self.body(x)


def test_two_tasks_give_the_same_bits(spark, tmp_path):
    x = rows(1000)
    x[40, 2] = np.nan
    source = write(tmp_path / "in.parquet", x)
    score(CAFE(network()), source, tmp_path / "local", workers=0, **PARTS)
    summary = score(CAFE(network()), source, tmp_path / "out", engine="spark", workers=2, **PARTS)
    assert (summary.parts, summary.rows, summary.refused) == (10, 999, 1)
    assert read(tmp_path / "out").equals(read(tmp_path / "local"))
    (tmp_path / "out" / "part-00000-000000000300.parquet").unlink()
    assert score(CAFE(network()), source, tmp_path / "out", engine="spark", **PARTS).scored_now == 100
    assert read(tmp_path / "out").equals(read(tmp_path / "local"))
    assert score(CAFE(network()), source, tmp_path / "out", workers=0, **PARTS).scored_now == 0  # any engine goes on


def test_spark_reads_the_folder_in_one_line(spark, tmp_path):
    """Also with folders by a column; bookkeeping and refused rows are not among the results."""
    x = rows(300)
    x[7, 2] = np.nan  # refused
    full = table(x).append_column("day", pa.array(["a b", "c/d=%", "é"] * 100))
    pq.write_table(full, tmp_path / "in.parquet")
    options = {"keep": ["id", "day"], "rows_per_part": 100, "workers": 0}
    score(CAFE(network()), tmp_path / "in.parquet", tmp_path / "flat", **options)
    score(CAFE(network()), tmp_path / "in.parquet", tmp_path / "days", partition_by="day", **options)
    expected = read(tmp_path / "flat").to_pandas()
    for folder in ("flat", "days"):
        found = spark.read.parquet(str(tmp_path / folder)).toArrow().to_pandas()
        found = found.sort_values("source_row").reset_index(drop=True)[list(expected.columns)]
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def test_a_killed_process_is_replaced(spark, tmp_path):
    x = rows(1000)
    x[450, 0] = 9
    source = write(tmp_path / "in.parquet", x)
    score(CAFE(network()), source, tmp_path / "local", workers=0, **PARTS)
    score(CAFE(Mortal(tmp_path / "killed").eval()), source, tmp_path / "out", engine="spark", workers=2, **PARTS)
    assert int((tmp_path / "killed").read_text()) != os.getpid()
    assert read(tmp_path / "out").equals(read(tmp_path / "local"))


def test_what_a_task_cannot_write_is_told(spark, tmp_path):
    source, out = write(tmp_path / "in.parquet", rows(300)), tmp_path / "out"

    def meddle(_):
        (out / "part-00000-000000000200.parquet").mkdir(exist_ok=True)  # where a file should be

    hidden(out).mkdir(parents=True)
    out.mkdir()
    meddle(None)
    with pytest.raises(OutputProblem, match="the result cannot be written"):
        score(CAFE(network()), source, out, engine="spark", **PARTS)
    (out / "part-00000-000000000200.parquet").rmdir()
    assert score(CAFE(network()), source, out, engine="spark", **PARTS).rows == 300


def test_the_command_starts_a_spark_of_its_own(tmp_path):
    folder = write_all(tmp_path)
    words = ("--model", "shop:net", "--weights", "net.safetensors", "--keep", "city")
    code, said, error = process(folder, "batch", "mixed.csv", "spark", *words, "--engine", "spark", "--workers", "2")
    assert (code, "4 rows scored, 1 refused, in 1 parts" in said) == (0, True), error
    code, _, error = process(folder, "batch", "mixed.csv", "local", *words)
    assert code == 0, error
    assert read(folder / "spark").equals(read(folder / "local"))
    code, _, error = process(folder, "batch", "mixed.csv", "other", *words, "--engine", "spark", "--address", "nowhere")
    assert code == 2
    assert "--address 'nowhere': Spark does not start" in error.splitlines()[-1]


def test_a_frame_has_the_same_bits(spark, tmp_path):
    x = rows(20_000)  # more than are scored at a time
    x[40, 2] = np.nan
    source = write(tmp_path / "in.parquet", x, group=len(x))
    score(CAFE(network()), source, tmp_path / "out", keep=["id"], workers=0)
    expected = read(tmp_path / "out").drop_columns(["source_file", "source_row"])
    frame = spark.read.parquet(str(source)).coalesce(1)
    found = score_spark(frame, CAFE(network()), keep=["id"]).toArrow()
    assert found["id"].to_pylist() == list(range(20_000))
    good = found.filter(found["reason"].is_null()).drop_columns(["reason"])
    assert good.cast(expected.schema).equals(expected)
    assert found["reason"][40].as_py() == "'x2' is missing"
    assert found["net_x0"][40].as_py() is None


def test_a_frame_in_parts_has_the_scores_of_rows_in_memory(spark, tmp_path):
    x = rows(500)
    frame = spark.read.parquet(str(write(tmp_path / "in.parquet", x))).repartition(3)
    found = score_spark(frame, CAFE(network()), keep=["id"]).toArrow().sort_by("id").to_pandas()
    expected = CAFE(network()).explain(torch.tensor(x))
    np.testing.assert_allclose(found[[f"net_{name}" for name in NAMES]].to_numpy(), expected.combined, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["conflict"], expected.conflict, rtol=1e-5, atol=1e-6)
