"""The engines of ``cafexai.batch`` beside each other: how long few rows take, which is starting, and how long many.

    python benchmarks/engines.py [--rows 300000]

Two processes, actors or slots each; the 54-256x4-7 network; scores of all signs. On a machine that
others use, too, the figures of one run differ by a factor of two or more.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from batch import GROUP, network, write
from cafexai import CAFE
from cafexai.batch import score, score_spark

FEW = 2000


def local(source, out):
    score(CAFE(network()), source, out, keep=["id"], workers=2, rows_per_part=GROUP // 4)


def on_ray(source, out):
    score(CAFE(network()), source, out, keep=["id"], workers=2, rows_per_part=GROUP // 4, engine="ray")


def spark(source, out):
    from pyspark.sql import SparkSession

    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.files.maxPartitionBytes": "16m"}
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    frame = session.read.parquet(str(source))
    score_spark(frame, CAFE(network()), keep=["id"]).write.parquet(str(out))
    session.stop()


ENGINES = {"local": local, "ray": on_ray, "spark": spark}


def seconds(engine, source, out):
    begin = time.perf_counter()
    words = [sys.executable, __file__, "--child", engine, str(source), str(out)]
    subprocess.run(words, check=True, stderr=subprocess.DEVNULL, env={**os.environ, "PYSPARK_PYTHON": sys.executable})
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=300_000)
    rows = parser.parse_args().rows
    print(f"| engine | {FEW:,} rows, s | {rows:,} rows, s |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        few, many = write(folder / "few.parquet", FEW), write(folder / "many.parquet", rows)
        for engine in ENGINES:
            start = seconds(engine, few, folder / f"{engine}-few")
            whole = seconds(engine, many, folder / f"{engine}-many")
            print(f"| {engine} | {start:.1f} | {whole:.1f} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--child"]:
        ENGINES[sys.argv[2]](*sys.argv[3:])
    else:
        main()
