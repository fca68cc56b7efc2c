"""``serve --monitor``: /metrics shows the verdict on the rows that were answered."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from cafexai import CAFE
from cafexai.monitor import Monitor
from cafexai.serving.rows import Answerer, Asked
from cafexai.serving.watch import Watch
from command_files import NUMBERS, write_all
from serve_process import ask, server


@pytest.fixture(scope="module")
def bench():
    torch.manual_seed(0)
    cafe = CAFE(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)).float(), feature_names=["a", "b", "c"])
    return cafe, Monitor.fit(cafe, draw(800, 0), false_alarms=0.1)


def draw(rows, seed):
    return torch.tensor(np.random.default_rng(seed).normal(size=(rows, 3)), dtype=torch.float32)


def test_answered_rows_are_counted_as_update_counts_them(bench):
    cafe, monitor = bench
    watch = Watch(monitor, rows=300)
    answerer = Answerer(cafe, watch=watch)
    x = draw(300, 1)
    rows = x.tolist()
    for start in range(0, 300, 50):
        assert watch.verdict is None
        part = rows[start : start + 50]
        answerer([dict(zip("abc", row, strict=True)) for row in part] if start else part)
    expected = monitor.copy().check(x)
    assert watch.verdict.kind == expected.kind
    for family, pair in expected.statistics.items():
        assert watch.verdict.statistics[family] == pytest.approx(pair, abs=0.02), family  # values next to an edge of a bin
    assert "cafexai_monitor_open_rows 0" in watch.text()
    assert 'cafexai_monitor_severity{window="last",kind="none"} 0.0' in watch.text()


def test_refused_rows_count_and_other_questions_do_not(bench):
    cafe, monitor = bench
    watch = Watch(monitor, rows=300)
    answerer = Answerer(cafe, watch=watch)
    answerer(draw(20, 1).tolist(), [Asked(top=1)] * 20)
    assert "open_rows 0" in watch.text()
    rows = draw(300, 1).tolist()
    for row in rows[:60]:
        row[1] = None
    answerer(rows)
    assert (watch.verdict.rows, watch.verdict.scored) == (300, 240)
    assert watch.verdict.columns == {"b": "missing"}


def test_server_shows_the_verdict(tmp_path):
    shop = write_all(tmp_path)
    random = np.random.default_rng(0)
    columns = dict(zip(NUMBERS, (random.normal(45, 9, 600), random.normal(4, 1, 600), random.integers(0, 4, 600)), strict=True))
    pd.DataFrame(columns).to_parquet(shop / "rows.parquet")
    how = ["--weights", "net.safetensors", "--columns", ",".join(NUMBERS)]
    words = ["monitor", "fit", "shop:net", "rows.parquet", "m.safetensors", *how, "--target", "1", "--false-alarms", "0.1"]
    subprocess.run([sys.executable, "-m", "cafexai", *words], cwd=shop, check=True)
    other = [sys.executable, "-m", "cafexai", "serve", "shop:net", *how, "--monitor", "m.safetensors"]
    done = subprocess.run(other, cwd=shop, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "another --target or --baseline" in done.stderr
    more = ["--target", "1", "--monitor", "m.safetensors", "--window", "150"]
    with server(shop, "shop:net", "--weights", "net.safetensors", "--columns", ",".join(NUMBERS), *more) as (port, _):
        for _ in range(2):
            assert ask(port, "POST", "/v1/explain", {"rows": [[80.0, 9.0, 1]] * 100})[0] == 200
        text = ask(port, "GET", "/metrics")[1]
    assert 'cafexai_monitor_severity{window="last",kind="missing or frozen column"} 2.0' in str(text)


def test_rows_that_cannot_be_counted_are_answered(bench, caplog):
    cafe, monitor = bench
    answerer = Answerer(cafe, watch=Watch(monitor, rows=300))
    assert answerer([["\ud800", 1, 2]]) == [{"error": "'a' is '\\ud800', which is no number"}]
    assert "monitor: 1 rows could not be counted" in caplog.text
