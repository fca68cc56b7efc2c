"""The engines of ``cafexai.batch`` beside each other: how long a start takes, and how many rows a second follow.

    python benchmarks/engines.py [--rows 262144]

Two processes, actors or tasks each; the 54-256x4-7 network; all scores, in parts of 16384 rows. Every engine is a process of
its own that scores few rows, and another that scores many; their difference has the rows per second, and the first the start.
The results of all engines that read the same units must be equal bit for bit, which is checked.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.dataset as ds
import torch

from batch import GROUP, network, write
from cafexai import CAFE
from cafexai.batch import score, score_ray, score_spark

FEW, PART = 2000, GROUP // 4


def units(engine):
    def run(source, out):
        score(CAFE(network()), source, out, keep=["id"], workers=2, rows_per_part=PART, engine=engine)

    return run


def ray_dataset(source, out):
    import ray

    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False, configure_logging=False)
    rows = ray.data.read_parquet(str(source), override_num_blocks=8)  # actors get blocks: one alone would keep one busy
    score_ray(rows, CAFE(network()), keep=["id"], workers=2).write_parquet(str(out))


def spark_frame(source, out):
    from pyspark.sql import SparkSession

    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.files.maxPartitionBytes": "16m"}
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    frame = session.read.parquet(str(source))
    score_spark(frame, CAFE(network()), keep=["id"]).write.parquet(str(out))
    session.stop()


ENGINES = {
    "local": units("local"),
    "ray": units("ray"),
    "spark": units("spark"),
    "score_ray": ray_dataset,
    "score_spark": spark_frame,
}


def seconds(engine, source, out):
    begin = time.perf_counter()
    words = [sys.executable, __file__, "--child", engine, str(source), str(out)]
    subprocess.run(words, check=True, stderr=subprocess.DEVNULL, env={**os.environ, "PYSPARK_PYTHON": sys.executable})
    return time.perf_counter() - begin


def scores_of(out):
    return ds.dataset(out, format="parquet").to_table().sort_by("id").drop_columns(["source_file", "source_row"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=262_144)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES)
    given = parser.parse_args()
    print(f"| engine | start and {FEW:,} rows, s | {given.rows:,} rows, s | rows/s | same bits |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        few, many = write(folder / "few.parquet", FEW), write(folder / "many.parquet", given.rows)
        for engine in given.engines:
            out = folder / f"{engine}-many"
            start, whole = seconds(engine, few, folder / f"{engine}-few"), seconds(engine, many, out)
            speed = (given.rows - FEW) / (whole - start)
            units = engine in ("ray", "spark") and (folder / "local-many").exists()
            same = ("yes" if scores_of(out).equals(scores_of(folder / "local-many")) else "NO") if units else ""
            print(f"| {engine} | {start:.1f} | {whole:.1f} | {speed:,.0f} | {same} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--child"]:
        ENGINES[sys.argv[2]](*sys.argv[3:])
    else:
        main()
