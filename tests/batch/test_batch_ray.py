"""Ray: the same bits, also where actors are killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("fsspec")
import pyarrow as pa
import pyarrow.parquet as pq

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")

from batch_files import NAMES, network, read, rows, table, write  # noqa: E402
from cafexai import CAFE  # noqa: E402
from cafexai.batch import _frames, _ray, score, score_ray  # noqa: E402
from cafexai.batch._scorer import CHUNK  # noqa: E402
from cafexai.loading.file_errors import DataProblem  # noqa: E402

PARTS = {"keep": ["id"], "rows_per_part": 100}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def cluster():
    quiet = {"log_to_driver": False, "include_dashboard": False, "configure_logging": False}
    ours = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}  # where Mortal is
    ray.init(num_cpus=2, runtime_env=ours, _node_ip_address="127.0.0.1", **quiet)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    write(folder / "in.parquet", rows(3000))
    score(CAFE(network()), folder / "in.parquet", folder / "out", workers=0, **PARTS)
    return folder / "in.parquet", read(folder / "out")


def test_two_actors_give_the_same_bits(straight, tmp_path):
    source, expected = straight
    summary = score(CAFE(network()), source, tmp_path / "out", engine="ray", workers=2, **PARTS)
    assert summary.parts == 30
    assert read(tmp_path / "out").equals(expected)


@pytest.mark.parametrize("after", [0, 7])
def test_a_killed_actor_is_replaced(straight, tmp_path, after, monkeypatch):
    """Killed when nothing is finished yet, or in the middle."""
    source, expected = straight
    seen, killed = [], []
    submit = _ray.OnRay.submit

    def and_kill(self, *rest):
        future = submit(self, *rest)
        seen.append(1)
        if len(seen) == after + 1:
            own = ray.get(self._actors[0].__ray_call__.remote(lambda _: os.getpid()))
            os.kill(own, signal.SIGKILL)
            killed.append(own)
        return future

    monkeypatch.setattr(_ray.OnRay, "submit", and_kill)
    score(CAFE(network()), source, tmp_path / "out", engine="ray", workers=2, **PARTS)
    assert len(killed) == 1
    assert read(tmp_path / "out").equals(expected)


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    """A dataset of eight blocks, each of as many rows as are scored at a time, and the scores of these rows as files."""
    folder = tmp_path_factory.mktemp("blocks")
    (folder / "in").mkdir()
    tables = [table(rows(CHUNK, seed=place), start=place * CHUNK) for place in range(8)]
    for place, one in enumerate(tables):
        pq.write_table(one, folder / "in" / f"{place}.parquet")
    score(CAFE(network()), folder / "in", folder / "out", keep=["id"], scores="net", workers=0)
    return ray.data.from_arrow(tables), read(folder / "out").drop_columns(["source_file", "source_row"])


def arrow(dataset):
    return pa.concat_tables(ray.get(dataset.to_arrow_refs())).sort_by("id")


def test_a_dataset_has_the_same_bits(blocks):
    dataset, expected = blocks
    found = arrow(score_ray(dataset, CAFE(network()), keep=["id"], scores="net", workers=2))
    assert found["reason"].null_count == len(found) == 8 * CHUNK
    assert found.drop_columns(["reason"]).cast(expected.schema).equals(expected)


@pytest.mark.parametrize("when", ["start", "middle"])
def test_a_dataset_survives_a_killed_actor(blocks, tmp_path, when, monkeypatch):
    """The first actor kills itself when it is made, or at its third batch."""
    dataset, expected = blocks
    monkeypatch.setattr(_frames, "_Actor", type("Mortal", (Mortal,), {"mark": str(tmp_path / "killed"), "when": when}))
    found = arrow(score_ray(dataset, CAFE(network()), keep=["id"], scores="net", workers=2))
    assert int((tmp_path / "killed").read_text()) != os.getpid()
    assert found.drop_columns(["reason"]).cast(expected.schema).equals(expected)


class Mortal(_frames._Actor):
    mark, when, batches = "", "", 0

    def __init__(self, *given):
        self._die("start")
        super().__init__(*given)

    def __call__(self, table):
        self.batches += 1
        if self.batches > 2:
            self._die("middle")
        time.sleep(0.2)  # so that both have something to do
        return super().__call__(table)

    def _die(self, when):
        if when == self.when:
            try:
                with Path(self.mark).open("x") as file:
                    file.write(str(os.getpid()))
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)


def test_refused_rows_of_a_dataset_have_a_reason(tmp_path):
    x = rows(300)
    x[40, 2] = np.nan
    dataset = ray.data.read_parquet(str(write(tmp_path / "in.parquet", x)))
    found = arrow(score_ray(dataset, CAFE(network()), keep=["id"], scores="net", top=2, workers=2))
    assert [place for place, reason in enumerate(found["reason"].to_pylist()) if reason] == [40]
    assert found["reason"][40].as_py() == "'x2' is missing"
    assert found["top_net"][40].as_py() is found["conflict"][40].as_py() is None
    assert all(set(names) <= set(NAMES) for names in found["top_features"].to_pylist() if names)


def test_what_a_dataset_must_have(tmp_path):
    dataset = ray.data.read_parquet(str(write(tmp_path / "in.parquet", rows(30))))
    with pytest.raises(DataProblem, match="no column 'idd'; did you mean 'id'"):
        score_ray(dataset, CAFE(network()), keep=["idd"])
    with pytest.raises(ValueError, match="does not take inputs"):
        score_ray(dataset, CAFE(network()))
