"""Kernels of a run: decided once, the same when it goes on, and never a condition."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

pytest.importorskip("pyarrow")
pytest.importorskip("fsspec")
import pyarrow.parquet as pq

from batch_files import nets, network, read, rows, write
from cafexai import CAFE
from cafexai._scores import kernels
from cafexai._sources.problems import OutputProblem
from cafexai.batch import _kernels, score

WIDE = 64  # units, so that the rows of a probe are counted


@pytest.fixture
def scored(tmp_path, monkeypatch):
    """A run over 600 rows into a folder of that name; says what its manifest tells of kernels."""
    monkeypatch.delenv(_kernels.VARIABLE, raising=False)
    monkeypatch.setattr(_kernels, "FEW", 0)
    source = write(tmp_path / "in.parquet", rows(600))

    def run(name, workers=0, **options):
        score(CAFE(network(width=WIDE)), source, tmp_path / name, keep=["id"], rows_per_part=200, workers=workers, **options)
        with (tmp_path / name / "_cafexai" / "manifest.jsonl").open() as lines:
            return json.loads(next(lines))["settings"]["kernels"]

    return run


def made_by(monkeypatch, problem=None):
    """Formulas that were run as kernels, which are not made here, as that takes long; or none can be made."""
    used = []
    kernels.problem.cache_clear()
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


def test_words_and_the_environment(scored, monkeypatch):
    used = made_by(monkeypatch)
    with pytest.raises(ValueError, match=r"kernels='sometimes'.*'auto', 'always', 'never'"):
        scored("out", kernels="sometimes")
    monkeypatch.setenv(_kernels.VARIABLE, "always")
    assert scored("first") == "always"
    assert used
    assert scored("second", kernels="never") == "never"  # the call counts more
    monkeypatch.setenv(_kernels.VARIABLE, "perhaps")
    with pytest.raises(ValueError, match="CAFEXAI_COMPILE=perhaps"):
        scored("third")


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_real_kernels_in_two_processes_give_the_same_bits(scored, tmp_path, monkeypatch):
    monkeypatch.setattr(_kernels, "WORTH", 1)
    assert scored("two", workers=2) == "always"
    assert scored("never", kernels="never") == "never"
    assert scored("one", workers=1, kernels="always") == "always"
    assert read(tmp_path / "one").equals(read(tmp_path / "two"))
    np.testing.assert_allclose(nets(read(tmp_path / "two")), nets(read(tmp_path / "never")), rtol=1e-5, atol=1e-6)


def test_a_compiler_that_fails_is_told(monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("the compiler is out\nof order")

    kernels.problem.cache_clear()
    monkeypatch.setattr(kernels, "_broken", False)
    monkeypatch.setattr(torch, "compile", fails)
    try:
        assert kernels.problem() == "RuntimeError: the compiler is out"
    finally:
        kernels.problem.cache_clear()


# ---- files


def test_numbers_that_do_not_get_shorter_are_not_compressed(tmp_path):
    x = rows(500)
    x[:, 2] = 0
    write(tmp_path / "in.parquet", x)
    score(CAFE(network()), tmp_path / "in.parquet", tmp_path / "out", keep=["id"], workers=0)
    (part,) = (tmp_path / "out").glob("part-*.parquet")
    group = pq.ParquetFile(part).metadata.row_group(0)
    packing = {group.column(place).path_in_schema: group.column(place).compression for place in range(group.num_columns)}
    assert packing["net_x2"] == packing["source_file"] == packing["target"] == "SNAPPY"
    assert packing["net_x0"] == packing["output"] == "UNCOMPRESSED"
    score(CAFE(network()), tmp_path / "in.parquet", tmp_path / "top", keep=["id"], top=2, workers=0)
    (part,) = (tmp_path / "top").glob("part-*.parquet")
    group = pq.ParquetFile(part).metadata.row_group(0)
    assert {group.column(place).compression for place in range(group.num_columns)} == {"SNAPPY"}  # lists
