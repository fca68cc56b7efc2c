"""Kernels of a run: decided once, the same when it goes on, and never a condition."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("pyarrow")
pytest.importorskip("fsspec")

from batch_files import hidden, nets, network, read, rows, write
from cafexai import CAFE
from cafexai._core import kernels
from cafexai.batch import _kernels, score
from cafexai.loading.file_errors import OutputProblem

WIDE = 64  # units, so that the rows of a probe are counted


@pytest.fixture
def scored(tmp_path, monkeypatch):
    """A run over 600 rows into a folder of that name; says what its manifest tells of kernels."""
    monkeypatch.delenv(_kernels.VARIABLE, raising=False)
    monkeypatch.setattr(_kernels, "FEW", 0)
    source = write(tmp_path / "in.parquet", rows(600))

    def run(name, workers=0, **options):
        score(CAFE(network(width=WIDE)), source, tmp_path / name, keep=["id"], rows_per_part=200, workers=workers, **options)
        with (hidden(tmp_path / name) / "manifest.jsonl").open() as lines:
            return json.loads(next(lines))["settings"]["kernels"]

    return run


def made_by(monkeypatch, problem=None):
    """Formulas that were run as kernels, which are not made here, as that takes long; or none can be made."""
    used = []
    monkeypatch.setattr(kernels, "problem", lambda: problem)
    monkeypatch.setattr(
        kernels, "run", lambda formula, tensors, points, phi, c: used.append(phi) or formula(*tensors, points, phi, c)
    )
    return used


def test_short_runs_have_none(scored, monkeypatch):
    used = made_by(monkeypatch)
    assert scored("out") == "never"
    assert not used


def test_long_runs_have_them_from_the_first_row_on(scored, monkeypatch, tmp_path):
    used = made_by(monkeypatch)
    monkeypatch.setattr(_kernels, "WORTH", 600 * WIDE)
    assert scored("long") == "always"
    assert used == [torch.relu] * 3  # parts
    monkeypatch.setattr(_kernels, "WORTH", 600 * WIDE + 1)
    assert scored("short") == "never"
    np.testing.assert_allclose(nets(read(tmp_path / "long")), nets(read(tmp_path / "short")), rtol=1e-5, atol=1e-6)


def test_a_run_goes_on_as_it_was_begun(scored, monkeypatch, tmp_path):
    made_by(monkeypatch)
    assert scored("out", kernels="always") == "always"
    before = read(tmp_path / "out")
    sorted((tmp_path / "out").glob("part-*"))[1].unlink()
    assert scored("out") == "always"
    assert read(tmp_path / "out").equals(before)
    with pytest.raises(OutputProblem, match='the setting kernels, which was "always" and is "never"'):
        scored("out", kernels="never")


def test_without_a_compiler_long_runs_have_none(scored, monkeypatch, tmp_path):
    made_by(monkeypatch, problem="no compiler")
    monkeypatch.setattr(_kernels, "WORTH", 1)
    assert scored("out") == "never"
    with pytest.raises(ValueError, match=r"kernels='always'\): kernels cannot be made here \(no compiler\)"):
        scored("other", kernels="always")
    assert not list((tmp_path / "other").glob("*.parquet"))
    assert scored("other", kernels="never") == "never"  # as nothing was finished there
    assert scored("third") == "never"


def test_words_and_the_environment(scored, monkeypatch):
    used = made_by(monkeypatch)
    with pytest.raises(ValueError, match=r"kernels='sometimes'.*'auto', 'always', 'never'"):
        scored("out", kernels="sometimes")
    monkeypatch.setenv(_kernels.VARIABLE, "always")
    assert scored("first") == "always"
    assert used
    assert scored("second", kernels="never") == "never"  # the call counts more
    monkeypatch.setenv(_kernels.VARIABLE, "perhaps")
    assert scored("third") == "never"  # it says nothing, as elsewhere


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_real_kernels_in_two_processes_give_the_same_bits(scored, tmp_path, monkeypatch):
    monkeypatch.setattr(_kernels, "WORTH", 1)
    assert scored("two", workers=2) == "always"
    assert scored("never", kernels="never") == "never"
    assert scored("one", workers=1, kernels="always") == "always"
    assert read(tmp_path / "one").equals(read(tmp_path / "two"))
    np.testing.assert_allclose(nets(read(tmp_path / "two")), nets(read(tmp_path / "never")), rtol=1e-5, atol=1e-6)


@pytest.fixture
def untried(monkeypatch):
    """Nothing is known of compilers."""
    monkeypatch.setattr(kernels, "_broken", None)
    monkeypatch.setattr(kernels, "_kernels", {})
    tried = kernels._try_kernel
    tried.cache_clear()
    yield
    tried.cache_clear()


@pytest.mark.usefixtures("untried")
def test_a_compiler_that_fails_is_told(monkeypatch):
    class Wrapped(Exception):
        inner_exception = RuntimeError("\nthe compiler is out\nof order")

    def fails(*_, **__):
        raise Wrapped("backend raised:")

    monkeypatch.setattr(torch, "compile", fails)
    assert kernels.problem() == "RuntimeError: the compiler is out"


@pytest.mark.usefixtures("untried")
def test_a_compiler_that_does_nothing_is_told(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    assert kernels.problem() == "torch.compile is switched off"


@pytest.mark.usefixtures("untried")
def test_kernels_that_fail_later_end_the_run(scored, monkeypatch, tmp_path):
    """A part without kernels does not get the name of one with kernels."""
    monkeypatch.setattr(kernels, "_try_kernel", lambda: None)

    def fails(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(torch, "compile", fails)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"cannot be made here \(OSError: no space left\)"):
            scored("out", kernels="always")
        assert not list((tmp_path / "out").glob("*.parquet"))
        assert not list(hidden(tmp_path / "out").glob("*.part"))
    assert scored("out") == "never"


def test_a_part_without_a_line_keeps_others_out(scored, monkeypatch, tmp_path):
    """As after a kill between both."""
    made_by(monkeypatch)
    scored("out", kernels="never")
    manifest = hidden(tmp_path / "out") / "manifest.jsonl"
    manifest.write_text(manifest.read_text().splitlines()[0] + "\n")
    with pytest.raises(OutputProblem, match="the setting kernels"):
        scored("out", kernels="always")
    for part in (tmp_path / "out").glob("*.parquet"):
        part.unlink()
    assert scored("out", kernels="always") == "always"
    assert read(tmp_path / "out").num_rows == 600


def test_threads_do_not_see_each_other(scored, monkeypatch):
    """What one run has is no wish of another, and leaves nothing behind."""
    made_by(monkeypatch)
    words = ["always", "never"] * 3
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda pair: scored(f"out{pair[0]}", kernels=pair[1]), enumerate(words)))
        plain = [pool.submit(scored, f"plain{place}") for place in range(2)]
    assert found == words
    assert [one.result() for one in plain] == ["never"] * 2
    assert _kernels.VARIABLE not in os.environ


def test_the_first_rows_need_not_be_good_or_many(monkeypatch, tmp_path):
    made_by(monkeypatch)
    x = rows(600)
    x[:150] = np.nan
    write(tmp_path / "in.parquet", x)
    few = write(tmp_path / "few.parquet", rows(3))
    monkeypatch.setattr(_kernels, "FEW", 0)
    for source, worth in (([tmp_path / "in.parquet"], 600 * WIDE), ([few, tmp_path / "in.parquet"], 603 * WIDE)):
        monkeypatch.setattr(_kernels, "WORTH", worth)
        out = tmp_path / f"out{worth}"
        score(CAFE(network(width=WIDE)), source, out, keep=["id"], workers=0)
        assert json.loads((hidden(out) / "manifest.jsonl").read_text().splitlines()[0])["settings"]["kernels"] == "always"


def test_processes_that_cannot_begin_are_told(tmp_path):
    """A script that comes from standard input is no file that they could read."""
    write(tmp_path / "in.parquet", rows(600))
    script = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from batch_files import network
from cafexai import CAFE
from cafexai.batch import _kernels, score
_kernels.FEW, _kernels.WORTH = 0, 1
try:
    score(CAFE(network(width=64)), {str(tmp_path / "in.parquet")!r}, {str(tmp_path / "out")!r}, keep=["id"], workers=2)
except ChildProcessError as error:
    print("told:", error)
"""
    said = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "told: score(...): a process has ended without a result" in said.stdout, said.stderr
