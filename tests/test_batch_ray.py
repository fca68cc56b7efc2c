"""Ray: the same bits, also where actors are killed."""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("fsspec")
ray = pytest.importorskip("ray")

from batch_files import network, read, rows, write  # noqa: E402
from cafexai import CAFE  # noqa: E402
from cafexai.batch import _ray, score  # noqa: E402

PARTS = {"keep": ["id"], "rows_per_part": 100}


@pytest.fixture(scope="module")
def cluster():
    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False, configure_logging=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    write(folder / "in.parquet", rows(3000))
    score(CAFE(network()), folder / "in.parquet", folder / "out", workers=0, **PARTS)
    return folder / "in.parquet", read(folder / "out")


@pytest.mark.slow
def test_two_actors_give_the_same_bits(cluster, straight, tmp_path):
    source, expected = straight
    summary = score(CAFE(network()), source, tmp_path / "out", engine="ray", workers=2, **PARTS)
    assert summary.parts == 30
    assert read(tmp_path / "out").equals(expected)


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 7])
def test_a_killed_actor_is_replaced(cluster, straight, tmp_path, after, monkeypatch):
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
