"""Results in an object store: published as a whole, resumed from what is there; other addresses are refused before any work."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("fsspec")
import fsspec
import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from batch_files import network, read, rows, write
from cafexai import CAFE
from cafexai.batch import score, verify
from cafexai.cli.app import app
from cafexai.cli.errors import run
from cafexai.loading.file_errors import DataProblem, OutputProblem

HERE = Path(__file__).parents[1]
PARTS = {"keep": ["id"], "rows_per_part": 100}


@pytest.fixture
def memory():
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield store
    store.store.clear()


def parts(store, root):
    return {path.rpartition("/")[2]: store.cat_file(path) for path in store.find(root) if path.endswith(".parquet")}


def count(store, root):
    return sum(path.endswith(".parquet") for path in store.find(root))


@pytest.mark.parametrize(
    "address",
    [
        "gs://bucket/out",
        "http://example.org/out",
        "ftp://host/out",
        "simplecache::s3://bucket/out",
        "abfs://c/out",
        Path("s3://b/o"),
        "s3://",
        "memory://",
    ],
)
def test_other_addresses_are_refused_before_any_work(tmp_path, monkeypatch, address):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in.parquet", rows(10))
    model = network()
    model.register_forward_pre_hook(lambda *_: pytest.fail("the model was called"))
    with pytest.raises(OutputProblem, match=r"this kind of address\. Allowed: .*s3://|Give it as a string|names no folder"):
        score(CAFE(model), tmp_path / "in.parquet", address, **PARTS)
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_a_store_that_cannot_be_looked_at_is_told(tmp_path, memory, monkeypatch):
    class NoCredentialsError(Exception):
        """As of botocore: no OSError."""

    def fail(*_, **__):
        raise NoCredentialsError("Unable to locate credentials")

    monkeypatch.setattr(type(memory), "isdir", fail)
    with pytest.raises(DataProblem, match=r"memory://in: it cannot be looked at \(Unable to locate credentials\)"):
        score(CAFE(network()), "memory://in", tmp_path / "out", **PARTS)


def test_the_command_writes_no_local_folder_for_an_address(tmp_path, monkeypatch, capsys, memory):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in.parquet", rows(50))
    (tmp_path / "net.py").write_text("from torch import nn\ndef net():\n    return nn.Linear(5, 1)\n")
    words = ["batch", "in.parquet", "memory://out", "--model", "net.py:net", "--keep", "id"]
    assert run(app, words) == 0
    assert not (tmp_path / "memory:").exists()
    assert len(parts(memory, "/out")) == 1
    assert run(app, ["batch", "in.parquet", "gs://b/out", "--model", "net.py:net"]) == 5
    assert "Allowed" in capsys.readouterr().err
    assert not (tmp_path / "gs:").exists()


def test_remote_parts_are_the_local_ones_and_a_run_goes_on(tmp_path, memory):
    source = write(tmp_path / "in.parquet", rows(600))
    score(CAFE(network()), source, tmp_path / "out", workers=0, **PARTS)

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score(CAFE(network()), source, "memory://out", say=stop, **PARTS)
    assert len(parts(memory, "/out")) == 1
    summary = score(CAFE(network()), source, "memory://out", **PARTS)
    assert (summary.rows, summary.scored_now) == (600, 500)
    found = parts(memory, "/out")
    assert found == {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.parquet")}
    assert score(CAFE(network()), source, "memory://out", **PARTS).scored_now == 0
    assert verify("memory://out").problems == ()
    with pytest.raises(OutputProblem, match="begun with something else"):
        score(CAFE(network(seed=1)), source, "memory://out", **PARTS)
    memory.pipe_file("/out/part-00000-000000000100.parquet", found["part-00000-000000000100.parquet"][:-1] + b"2")
    assert "checksum is wrong" in verify("memory://out").problems[0]
    with pytest.warns(UserWarning, match="checksum is wrong"):
        assert score(CAFE(network()), source, "memory://out", **PARTS).scored_now == 100
    assert parts(memory, "/out") == found
    assert json.loads(memory.cat_file("/_out.cafexai/summary.json"))["rows"] == 600
    assert not memory.exists("/_out.cafexai/lock")


def test_memory_is_of_one_process(tmp_path, memory):
    source = write(tmp_path / "in.parquet", rows(100))
    with pytest.raises(ValueError, match="other processes do not see it"):
        score(CAFE(network()), source, "memory://out", workers=2, **PARTS)


def test_a_store_that_fails_is_told(tmp_path, memory, monkeypatch):
    source = write(tmp_path / "in.parquet", rows(300))

    def fail(path, *_, **__):
        raise RuntimeError("slow down")

    monkeypatch.setattr(type(memory), "pipe_file", lambda self, *a, **k: fail(*a))
    with pytest.raises(OutputProblem, match=r"cannot be written.*slow down"):
        score(CAFE(network()), source, "memory://out", **PARTS)


@pytest.fixture(scope="module")
def s3():
    """An S3 server on this machine."""
    pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        store = fsspec.filesystem("s3", use_listings_cache=False)
        for _ in range(100):
            try:
                store.mkdir("bucket")
                break
            except Exception:
                time.sleep(0.2)
        yield store
    finally:
        server.kill()
        server.wait()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def frame_of(address, package, s3):
    """What a reader makes of a folder in S3."""
    if package == "pandas":
        return pd.read_parquet(address)
    if package == "polars":
        store = {"endpoint_url": os.environ["AWS_ENDPOINT_URL"], "aws_region": "us-east-1", "allow_http": "true"}
        found = pytest.importorskip(package).read_parquet(f"{address}/*.parquet", storage_options=store)
        return pd.DataFrame(found.to_dict(as_series=False))
    if package == "duckdb":
        connection = pytest.importorskip(package).connect()
        connection.register_filesystem(s3)  # as the extension httpfs would do
        return connection.sql(f"from '{address}/**/*.parquet'").df()
    return ds.dataset(address.removeprefix("s3://"), filesystem=s3, format="parquet").to_table().to_pandas()


def assert_read(address, package, s3, expected, count):
    """The reader finds these rows, and no others."""
    s3.invalidate_cache()
    found = frame_of(address, package, s3)
    assert len(found) == count
    found = found.sort_values("source_row").reset_index(drop=True)[list(expected.columns)]
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


READERS = ["pandas", "polars", "duckdb", "pyarrow"]


@pytest.mark.parametrize("package", READERS)
def test_readers_read_results_in_s3_in_one_line(tmp_path, s3, package):
    pytest.importorskip(package)
    x = rows(300)
    x[7, 2] = np.nan  # refused
    source = write(tmp_path / "in.parquet", x)
    score(CAFE(network()), source, tmp_path / "out", workers=0, **PARTS)
    score(CAFE(network()), source, f"s3://bucket/read-{package}", workers=0, **PARTS)
    assert_read(f"s3://bucket/read-{package}", package, s3, read(tmp_path / "out").to_pandas(), 299)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_killed_ten_times_with_results_in_s3(tmp_path, s3, workers):
    x, root = rows(6000, inputs=30), f"bucket/out{workers}"
    x[77, 2] = np.nan  # refused
    source = write(tmp_path / "in.parquet", x)
    options = {"rows_per_part": 30, "workers": workers, "width": 1024, "inputs": 30}
    words = [sys.executable, str(HERE / "batch_files.py"), str(source)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert (
        subprocess.run([*words, str(tmp_path / "straight"), json.dumps(options)], env=environment, check=False).returncode == 0
    )
    expected = {path.name: path.read_bytes() for path in (tmp_path / "straight").glob("*.parquet")}
    chance = random.Random(0)
    for _ in range(10):
        process = subprocess.Popen([*words, f"s3://{root}", json.dumps(options)], env=environment)
        wanted = count(s3, root) + chance.randrange(1, 6)
        while count(s3, root) < wanted and process.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.random() / 20)
        assert process.poll() is None
        process.kill()
        process.wait()
        seen = parts(s3, root)
        assert seen.items() <= expected.items()  # all that a reader sees is whole
        s3.invalidate_cache()
        least = sum(pq.read_metadata(tmp_path / "straight" / name).num_rows for name in seen)
        assert len(frame_of(f"s3://{root}", "pandas", s3)) >= least  # a worker may outlive its run by a part
    assert subprocess.run([*words, f"s3://{root}", json.dumps(options)], env=environment, check=False).returncode == 0
    assert parts(s3, root) == expected
    assert verify(f"s3://{root}").problems == ()
    for package in READERS:
        assert_read(f"s3://{root}", package, s3, read(tmp_path / "straight").to_pandas(), 5999)
    assert all(path.endswith(".parquet") for path in s3.find(root))  # no orphan, nothing but parts
    with pytest.raises(OutputProblem, match="cannot be written"):
        score(CAFE(network(inputs=30)), source, "s3://no-such-bucket-here/out", keep=["id"])
