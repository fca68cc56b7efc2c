"""Spark on this machine: the scores of local files."""

from __future__ import annotations

import shutil
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("pyarrow")
pytest.importorskip("fsspec")
pytest.importorskip("pyspark")

from batch_files import NAMES, network, rows, write
from cafexai import CAFE
from cafexai.batch import score_spark

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")]


def test_scores_are_those_of_rows_in_memory(tmp_path, monkeypatch):
    from pyspark.sql import SparkSession

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    x = rows(500)
    x[40, 2] = np.nan
    write(tmp_path / "in.parquet", x)
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    try:
        frame = spark.read.parquet(str(tmp_path / "in.parquet")).repartition(2)
        found = score_spark(frame, CAFE(network()), keep=["id"]).toArrow().sort_by("id").to_pandas()
    finally:
        spark.stop()
    assert found["id"].tolist() == list(range(500))
    good = np.isfinite(x).all(1)
    expected = CAFE(network()).explain(torch.tensor(x[good]))
    own = found[good]
    assert own["reason"].isna().all()
    np.testing.assert_allclose(own[[f"net_{name}" for name in NAMES]].to_numpy(), expected.combined, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(own["conflict"], expected.conflict, rtol=1e-5, atol=1e-6)
    assert "'x2' is missing" in found["reason"][40]
    assert np.isnan(found["net_x0"][40])
