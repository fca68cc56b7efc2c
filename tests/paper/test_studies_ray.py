"""Studies on Ray: the results of one process, also when a worker is killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from study_command import command, environment, finished

pytest.importorskip("ray", reason="ray is not installed (make engines)")
pytestmark = pytest.mark.slow
SEEDS = ("--set", "seeds=[42, 43, 44]", "--set", "epochs=40")


def descendants(parent):
    """Process ids and names below a process."""
    rows = [line.split(None, 2) for line in subprocess.check_output(["ps", "-eo", "pid=,ppid=,args="], text=True).splitlines()]
    below, found = {str(parent)}, []
    for _ in range(6):  # driver, raylet, workers
        found = [(int(pid), name) for pid, above, name in rows if above in below]
        below |= {str(pid) for pid, _ in found}
    return found


def test_a_killed_worker_costs_its_task_only(tmp_path):
    finished("shift-tabular", tmp_path / "local", *SEEDS)
    line = command("shift-tabular", tmp_path / "ray", *SEEDS, "--engine", "ray")
    process = subprocess.Popen(line, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + 900  # a busy machine takes minutes to start a cluster
        while not (busy := [pid for pid, name in descendants(process.pid) if name.startswith("ray::run_task")]):
            assert process.poll() is None, process.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(busy[0], signal.SIGKILL)
        said, _ = process.communicate(timeout=1200)
    finally:
        process.kill()
    assert process.returncode == 0, said
    local, ray = ((tmp_path / kind / "results.json").read_bytes() for kind in ("local", "ray"))
    assert local == ray


def test_an_address_where_nobody_answers(tmp_path):
    line = command("shift-tabular", tmp_path, "--engine", "ray", "--address", "127.0.0.1:9")
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode != 0
    assert "does not accept connections" in done.stderr
    assert "Traceback" not in done.stderr
