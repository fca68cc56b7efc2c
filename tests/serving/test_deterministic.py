"""Rows that an audit can replay bit for bit: ``--deterministic`` of serve and batch."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

pytest.importorskip("starlette")
pytest.importorskip("pyarrow")
from batch_files import read, write
from cafexai import CAFE
from cafexai._core import kernels
from cafexai.cli.app import app
from cafexai.cli.errors import run
from cafexai.serving.rows import Answerer

ROWS = np.random.default_rng(0).normal(size=(40, 30)).astype(np.float32)
MODEL = """
import torch
from torch import nn
def net():
    torch.manual_seed(0)
    layers = [nn.Linear(30, 200), nn.GELU(), nn.Linear(200, 200), nn.GELU(), nn.Linear(200, 3)]
    return nn.Sequential(*layers).float().eval()
"""


@pytest.fixture
def network():
    space = {}
    exec(MODEL, space)
    return space["net"]()


def alone(model, row):
    """As an audit does it later: one row, one thread, no kernels."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with kernels.use_kernels("never"):
            return CAFE(model).explain(torch.tensor(row[None])).combined[0].tolist()
    finally:
        torch.set_num_threads(threads)


def nets(result):
    return [feature["net"] for feature in result["features"]]


def test_a_row_that_was_answered_with_others_can_be_replayed(network):
    answer = Answerer(CAFE(network), deterministic=True)
    together = answer([row.tolist() for row in ROWS])
    found = [None] * len(ROWS)

    def one(place):
        found[place] = answer([ROWS[place].tolist()])[0]

    threads = [threading.Thread(target=one, args=(place,)) for place in range(len(ROWS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for place, row in enumerate(ROWS):
        assert nets(together[place]) == nets(found[place]) == alone(network, row)


def test_parts_of_batch_can_be_replayed(tmp_path, monkeypatch, network):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(MODEL)
    write(tmp_path / "in.parquet", ROWS)
    words = ["batch", "in.parquet", "out", "--model", "own.py:net", "--keep", "id", "--workers", "0", "--deterministic"]
    assert run(app, words) == 0
    table = read(tmp_path / "out")
    found = np.stack([table[f"net_x{place}"].to_numpy() for place in range(30)], 1)
    for place, row in enumerate(ROWS):
        assert found[place].tolist() == alone(network, row)
    assert run(app, [*words, "--batch-size", "5"]) == 2
