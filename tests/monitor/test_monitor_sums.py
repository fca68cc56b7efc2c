"""Counts and sums of a monitor: exact in any order, in constant memory, and after a process was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from torch import nn

from cafexai import CAFE
from cafexai.monitor import Monitor, Signals
from cafexai.monitor._reference import chance_statistics, chunk_statistics
from cafexai.monitor._statistics import correlations
from cafexai.monitor._window import ARRAYS, NUMBERS, place_values, rank_rows, summarise


def draw(rows, seed, move=0.0):
    random = np.random.default_rng(seed)
    base = random.normal(size=(rows, 3)) + np.array([0.0, move, 0.0])
    base[:, 2] += 0.8 * base[:, 1]
    return torch.tensor(np.column_stack([base, random.integers(0, 3, rows)]), dtype=torch.float32)


def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8, dtype=torch.float32), nn.ReLU(), nn.Linear(8, 1, dtype=torch.float32))
    return Monitor.fit(CAFE(model, feature_names=["a", "b", "c", "d"]), draw(1000, 0), false_alarms=0.2)


@pytest.fixture(scope="module")
def fitted():
    return make()


def same_windows(one, two):
    return all(np.array_equal(getattr(one, name), getattr(two, name)) for name in (*ARRAYS, *NUMBERS))


@pytest.mark.parametrize("move", [0.0, 0.37, 40.0])
def test_merged_monitors_are_equal_bit_for_bit(fitted, move):
    """Rows in another order, in ten parts of different sizes: the same sums and the same verdict, shifted or not."""
    x = draw(1200, 3, move)
    whole = fitted.copy().update(x)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    merged = fitted.copy()
    for part in (fitted.read(x).values[order.numpy()][:, None],):
        sizes = np.cumsum(np.arange(40, 40 + 9 * 18, 18))
        for values in np.split(part[:, 0], sizes):
            merged.merge(fitted.copy().update(Signals(fitted.reference.features, values)))
    assert same_windows(whole.window, merged.window)
    assert whole.check() == merged.check()
    assert (whole.check().kind == "none") == (move == 0.0)


def test_limits_are_those_of_windows(fitted):
    """The fast statistics of chunks, against windows of the chunk and of all the rest."""
    random, names = np.random.default_rng(0), fitted.reference.features
    signals = Signals(names, random.normal(size=(600, 4 * len(names) + 3)))
    reference = fitted.reference
    whole = summarise(reference.bins, reference.ranks, signals)
    chunks = [random.choice(600, 100, replace=False) for _ in range(3)]
    places = place_values(reference.bins, signals.values)
    z = rank_rows(reference.ranks, places)
    counted = np.isfinite(signals.values).all()
    assert counted
    found = chunk_statistics(whole, places, z, chunks, reference.pair_noise)
    for place, chunk in enumerate(chunks):
        parts = (signals.take(rows) for rows in (chunk, np.setdiff1d(np.arange(600), chunk)))
        windows = (summarise(reference.bins, reference.ranks, part) for part in parts)
        naive = chance_statistics(*windows, reference.pair_noise)
        assert {family: values[place] for family, values in found.items()} == pytest.approx(naive, abs=1e-9)


def test_correlations_are_those_of_ranks(fitted):
    """Spearman's, by definition: of mean ranks, with ties; columns of many values have those of their bins."""
    signals = fitted.read(draw(700, 4))
    whole = Monitor.fit(fitted.cafe, draw(700, 4), false_alarms=0.2).reference
    places = place_values(whole.bins, signals.values)[:, :4]
    ranks = [[(column < one).sum() + ((column == one).sum() - 1) / 2 for one in column] for column in places.T]
    found = correlations(whole.window.sums, whole.window.products, 700)
    assert found == pytest.approx(np.corrcoef(ranks), abs=2e-3)  # ranks are kept in steps
    exact = [[(column < one).sum() for one in column] for column in signals.inputs.T]
    assert found == pytest.approx(np.corrcoef(exact), abs=0.01)


def test_sums_of_many_rows_are_exact(fitted):
    """Values far beyond the reference and sums over many windows still do not depend on the order."""
    signals = fitted.read(draw(300, 1))
    windows = [summarise(fitted.reference.bins, fitted.reference.ranks, signals.take(slice(i, i + 1))) for i in range(300)]
    one = two = fitted.copy().window
    for i in range(300):
        one, two = one + windows[i], two + windows[-1 - i]
    assert same_windows(one, two)
    plain = signals.inputs.sum(0)
    assert one.totals[:4].sum(1) == pytest.approx(plain, rel=1e-6, abs=1e-5)


LOOP = """
import sys
sys.path.insert(0, {folder!r})
from pathlib import Path
from test_monitor_sums import draw, make
monitor, path = make(), Path({path!r})
for part in range(1000):
    monitor.update(draw(50, part))
    monitor.save(path)
    print(part, flush=True)
"""


@pytest.mark.slow
def test_a_killed_process_goes_on(tmp_path):
    """``kill -9`` at any moment: the file is whole, and holds as many parts as were written; the rest is added."""
    path = tmp_path / "monitor.safetensors"
    code = LOOP.format(folder=os.path.dirname(__file__), path=str(path))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    while process.stdout.readline().strip() not in ("7", ""):
        pass
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    again = Monitor.load(path, make().cafe)
    done = again.window.rows // 50
    assert 8 <= done < 1000
    for part in range(done, done + 5):
        again.update(draw(50, part))
    whole = make()
    for part in range(done + 5):  # explained in the same parts: float32 scores differ in their last bits with the chunk
        whole.update(draw(50, part))
    assert same_windows(again.window, whole.window)


MANY = """
import json, resource, sys
sys.path.insert(0, {folder!r})
from test_monitor_sums import draw, make
def memory():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20
monitor = make()
parts = [monitor.read(draw(50_000, seed)) for seed in range(2)]
for part in parts:
    monitor.update(part)
before, sizes = memory(), []
for turn in range(198):
    monitor.update(parts[turn % 2])
    sizes.append(memory())
print(json.dumps([monitor.window.rows, before, max(sizes), monitor.check().kind]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")
def test_ten_million_rows_in_constant_memory(capsys):
    code = MANY.format(folder=os.path.dirname(__file__))
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    rows, before, most, _ = json.loads(done.stdout)
    with capsys.disabled():
        print(f"\n{rows} rows through update: {before:.0f} MiB after two parts, {most:.0f} MiB at most")
    assert rows == 10_000_000
    assert most - before < 100
