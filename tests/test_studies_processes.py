"""Studies whose tasks are done by several processes: same results, nothing left behind, errors as with one process."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import time

import pytest

from cafexai.studies import STUDIES
from study_command import command, environment, finished

SEEDS = ("--set", "seeds=[42, 43, 44]")
TWO = ("--jobs", "2")


def started(out, *options):
    """A study of six tasks, and its worker processes as soon as a first task is done."""
    line = command("shift-tabular", out, *SEEDS, *TWO, *options)
    process = subprocess.Popen(line, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list((out / "parts").glob("[!.]*.json")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return process, workers(process.pid)


def workers(parent):
    """Process ids of the spawned children (not of Python's resource tracker)."""
    listed = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(parent)], capture_output=True, text=True, check=False)
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if "spawn_main" in line]


def alive(pid):
    """Whether a process still runs; one that has ended and was not waited for does not."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(listed.stdout.strip()) and not listed.stdout.startswith("Z")


def gone(pids, seconds=20):
    """Whether all processes end in time."""
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(alive, pids))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The results of one process."""
    out = tmp_path_factory.mktemp("studies") / "whole"
    finished("shift-tabular", out, *SEEDS)
    return (out / "results.json").read_bytes()


def test_two_processes_find_the_same(whole, tmp_path):
    results, said = finished("shift-tabular", tmp_path, *SEEDS, *TWO)
    assert "6 tasks, 0 of them done before" in said
    assert (tmp_path / "results.json").read_bytes() == whole
    assert list(results) == [f"{family}-{seed}" for family in dict.fromkeys(key.rsplit("-", 1)[0] for key in results)
                             for seed in (42, 43, 44)]  # fmt: skip


def test_killed_it_leaves_no_process_and_goes_on(whole, tmp_path):
    process, pids = started(tmp_path)
    assert len(pids) == 2
    process.kill()
    process.wait()
    assert gone(pids)
    done = len(list((tmp_path / "parts").glob("[!.]*.json")))
    assert 1 <= done < 6
    assert not (tmp_path / "results.json").exists()
    _, said = finished("shift-tabular", tmp_path, *SEEDS, *TWO)
    assert f"6 tasks, {done} of them done before" in said
    assert (tmp_path / "results.json").read_bytes() == whole


def test_interrupted_it_ends_at_once(tmp_path):
    process, pids = started(tmp_path)
    os.kill(process.pid, signal.SIGINT)  # this process alone, as a service manager does; a terminal tells all of them
    assert process.wait(30) != 0
    assert gone(pids)
    assert not (tmp_path / "results.json").exists()


def test_a_lost_process_is_told(tmp_path):
    process, pids = started(tmp_path)
    os.kill(pids[0], signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in said
    assert f"is kept in {tmp_path}" in said
    assert "one of 2 processes was ended from outside" in said
    assert gone(pids)


@pytest.mark.parametrize("jobs", [1, 2])
def test_missing_data_are_told_by_the_same_message(jobs, tmp_path):
    line = command("infidelity-mlp", tmp_path / "out", "--data", tmp_path / "nothing", "--set", 'data=["titanic"]')
    line += ["--set", "seeds=[42, 43]", "--jobs", str(jobs)]
    told = subprocess.run(line, capture_output=True, text=True, env=environment(), check=False)
    assert told.returncode == 1
    assert "Traceback" not in told.stderr
    assert "titanic" in told.stderr
    assert str(tmp_path / "nothing") in told.stderr


def test_no_processes(tmp_path):
    line = [*command("properties", tmp_path), "--jobs", "0"]
    told = subprocess.run(line, capture_output=True, text=True, env=environment(), check=False)
    assert told.returncode == 1
    assert "give at least 1" in told.stderr


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_can_be_sent_to_a_process(name):
    assert pickle.loads(pickle.dumps(STUDIES[name])) == STUDIES[name]
