"""Runs that are killed, disks that are full, files that are broken: nothing lost, nothing twice, and a clear word."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("fsspec")
import pyarrow.parquet as pq

from batch_files import hidden, network, read, rows, write
from cafexai import CAFE
from cafexai.batch import score
from cafexai.loading.file_errors import DataProblem, OutputProblem

HERE = Path(__file__).parents[1]
PARTS = {"keep": ["id"], "rows_per_part": 100, "workers": 0}


def begun(source, sink, **options):
    """A process that scores, as a script of a user."""
    words = [sys.executable, str(HERE / "batch_files.py"), str(source), str(sink), json.dumps(options)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def parts(folder):
    return sorted(path.name for path in folder.glob("*.parquet"))


def all_whole(folder):
    """Whatever has a final name can be read; nothing half is visible."""
    return all(pq.read_table(folder / name).num_rows for name in parts(folder))


def killed_and_finished(tmp_path, kills, workers):
    x = rows(6000, inputs=30)
    source = write(tmp_path / "in.parquet", x)
    options = {"rows_per_part": 50, "workers": workers, "width": 1024, "inputs": 30}
    straight, out = tmp_path / "straight", tmp_path / "out"
    assert begun(source, straight, **options).wait() == 0
    chance = random.Random(0)
    reached = []
    for turn in range(kills):
        process = begun(source, out, **options)
        wanted = len(parts(out)) + chance.randrange(1, 120 // kills)
        while len(parts(out)) < wanted and process.poll() is None:
            time.sleep(0.005)
        time.sleep(chance.random() / 20)
        assert process.poll() is None, f"it was over before kill {turn}: {process.communicate()}"
        process.kill()
        process.communicate()
        assert all_whole(out)
        reached.append(len(parts(out)))
    process = begun(source, out, **options)
    told, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "6,000 rows scored, 0 refused (" in told
    assert parts(out) == parts(straight)
    assert read(out).equals(read(straight))
    assert read(out)["id"].to_pylist() == list(range(6000))
    assert not list(hidden(out).glob("*.part"))
    return reached


@pytest.mark.parametrize("workers", [0, 2])
def test_killed_twice_and_finished(tmp_path, workers):
    assert len(killed_and_finished(tmp_path, 2, workers)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_killed_ten_times_and_finished(tmp_path, workers):
    reached = killed_and_finished(tmp_path, 10, workers)
    assert len(reached) == 10
    assert reached == sorted(reached)


def test_no_worker_outlives_its_run(tmp_path):
    process = begun(write(tmp_path / "in.parquet", rows(20000)), tmp_path / "out", rows_per_part=50, workers=2)
    while not parts(tmp_path / "out") and process.poll() is None:
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        process.kill()
        pytest.skip("no list of children here")
    own = children.read_text().split()
    assert len(own) >= 2
    process.kill()
    process.communicate()
    until = time.monotonic() + 20
    while any(_alive(number) for number in own) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [number for number in own if _alive(number)]


def _alive(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_line_that_was_being_written_is_done_again(tmp_path):
    source, out = write(tmp_path / "in.parquet", rows(300)), tmp_path / "out"
    score(CAFE(network()), source, out, **PARTS)
    manifest = hidden(out) / "manifest.jsonl"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    whole = read(out)
    assert score(CAFE(network()), source, out, **PARTS).scored_now == 100
    assert read(out).equals(whole)
    assert score(CAFE(network()), source, out, **PARTS).scored_now == 0


def test_file_sizes_at_the_limit(tmp_path):
    """The system refuses to write more: told, nothing half is left, and it goes on."""
    source, out = write(tmp_path / "in.parquet", rows(4000)), tmp_path / "out"
    process = subprocess.run(
        [sys.executable, str(HERE / "batch_files.py"), str(source), str(out), '{"rows_per_part": 1000, "workers": 0}'],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode != 0
    assert "the result cannot be written (File too large)" in process.stderr
    assert parts(out) == []
    assert list(hidden(out).glob("*.part")) == []
    assert score(CAFE(network()), source, out, keep=["id"], rows_per_part=1000, workers=0).rows == 4000


@contextlib.contextmanager
def small_disk(place, size):
    """A file system of its own, where this user may mount one."""
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(words, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("no file system can be mounted here")
    try:
        yield place, lambda options: subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk(tmp_path):
    source = write(tmp_path / "in.parquet", rows(6000))
    options = {"keep": ["id"], "rows_per_part": 1000, "workers": 2}
    with small_disk(tmp_path / "disk", "400k") as (disk, remount):
        out = disk / "out"
        with pytest.raises(OutputProblem, match=r"No space left on device.*make room"):
            score(CAFE(network()), source, out, **options)
        assert 0 < len(parts(out)) < 6
        assert all_whole(out)
        assert not list(hidden(out).glob("*.part"))
        remount("size=4m")
        summary = score(CAFE(network()), source, out, **options)
        assert summary.rows == 6000
        assert summary.scored_now < 6000
        assert read(out)["id"].to_pylist() == list(range(6000))


def test_a_read_only_disk(tmp_path):
    source = write(tmp_path / "in.parquet", rows(400))
    with small_disk(tmp_path / "disk", "4m") as (disk, remount):
        remount("ro")
        with pytest.raises(OutputProblem, match=r"the result cannot be written \(Read-only file system\)"):
            score(CAFE(network()), source, disk / "out", **PARTS)
        remount("rw")
        assert score(CAFE(network()), source, disk / "out", **PARTS).rows == 400


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_somebody_else(tmp_path):
    source, sink = write(tmp_path / "in.parquet", rows(100)), tmp_path / "sink"
    sink.mkdir()
    sink.chmod(0o555)
    with pytest.raises(OutputProblem, match=r"the result cannot be written \(Permission denied\)"):
        score(CAFE(network()), source, sink / "out", **PARTS)
    sink.chmod(0o755)
    assert score(CAFE(network()), source, sink / "out", **PARTS).rows == 100


def test_two_runs_at_once(tmp_path):
    source, out = write(tmp_path / "in.parquet", rows(20000)), tmp_path / "out"
    process = begun(source, out, rows_per_part=50, workers=0)
    while not parts(out) and process.poll() is None:
        time.sleep(0.01)
    with pytest.raises(OutputProblem, match=f"another run is writing here \\(process {process.pid}\\)"):
        score(CAFE(network()), source, out, keep=["id"], rows_per_part=50, workers=0)
    process.kill()
    process.communicate()
    assert score(CAFE(network()), source, out, keep=["id"], rows_per_part=50, workers=0).rows == 20000


def test_a_truncated_file_is_told_and_mended(tmp_path):
    x = rows(600)
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    write(folder / "a.parquet", x[:300])
    whole = write(folder / "b.parquet", x[300:], start=300).read_bytes()
    (folder / "b.parquet").write_bytes(whole[:-500])
    with pytest.raises(DataProblem, match=r"b\.parquet: it cannot be read .* Is it complete\?"):
        score(CAFE(network()), folder, out, **PARTS)
    assert parts(out) == []
    (folder / "b.parquet").write_bytes(whole)
    assert score(CAFE(network()), folder, out, **PARTS).rows == 600


def test_broken_pages_are_told_and_mended(tmp_path):
    x = rows(600)
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    write(folder / "a.parquet", x[:300])
    whole = write(folder / "b.parquet", x[300:], start=300).read_bytes()
    (folder / "b.parquet").write_bytes(whole[:100] + bytes(2000) + whole[2100:])
    with pytest.raises(DataProblem, match=r"b\.parquet: it cannot be read"):
        score(CAFE(network()), folder, out, **PARTS)
    assert len(parts(out)) == 3
    (folder / "b.parquet").write_bytes(whole)
    summary = score(CAFE(network()), folder, out, **PARTS)
    assert (summary.rows, summary.scored_now) == (600, 300)


def test_input_that_changes_meanwhile(tmp_path):
    x = rows(600)
    source, out = write(tmp_path / "in.parquet", x), tmp_path / "out"

    def meddle(_):
        write(source, x[:500])

    with pytest.raises(DataProblem, match="changed while its rows were scored"):
        score(CAFE(network()), source, out, say=meddle, **PARTS)
    assert all_whole(out)
    write(source, x)
    assert score(CAFE(network()), source, out, **PARTS).rows == 600


def test_the_way_is_the_same_in_all_processes(tmp_path):
    source = write(tmp_path / "in.parquet", rows(400))
    for place, workers in enumerate((0, 2)):
        cafe = CAFE(network(), variant="published", netting="unit", flows="mean", biases="reference")
        score(cafe, source, tmp_path / str(place), keep=["id"], rows_per_part=50, workers=workers)
    assert read(tmp_path / "0").equals(read(tmp_path / "1"))
