"""Studies whose tasks are done by several processes: same results, nothing left behind, errors as with one process."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import types

import pytest

from cafexai.studies import STUDIES, run
from study_command import command, environment, finished

SEEDS = ("--set", "seeds=[42, 43, 44]")
TWO = ("--jobs", "2")
# One task of seconds and one of hours.
LONG = ("--set", 'data=["compas", "titanic"]', "--set", 'per_data={"titanic": {"epochs": 10000000}}')


def obey_interrupts():
    """A process started by nohup or cron ignores SIGINT, and so do its children; the study here is to hear it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def started(data, tmp_path):
    """A study whose first task is done and whose second would take hours, and its worker processes."""
    line = command("infidelity-mlp", tmp_path, *LONG, *TWO, "--data", data)
    process = subprocess.Popen(
        line, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=obey_interrupts
    )
    deadline = time.monotonic() + 600  # seconds; a busy machine takes minutes
    try:
        while not ((tmp_path / "parts" / "compas-42.json").exists() and list((tmp_path / "models").glob("*.part.safetensors"))):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield process, workers(process.pid)
    finally:
        process.kill()


def left_as_it_was(out):
    """What was done is kept, and nothing else."""
    files = {path.name for path in (out / "parts").iterdir()}
    return files == {"compas-42.json"} and not (out / "results.json").exists()


def ps(*words):
    """What ps says, however wide the terminal is."""
    return subprocess.run(["ps", "-ww", *map(str, words)], capture_output=True, text=True, check=False).stdout


def workers(parent):
    """Process ids of the spawned children (not of Python's resource tracker)."""
    return [int(line.split()[0]) for line in ps("-o", "pid=,args=", "--ppid", parent).splitlines() if "spawn_main" in line]


def alive(pid):
    """Whether a process still runs; one that has ended and was not waited for does not."""
    state = ps("-o", "stat=", "-p", pid).strip()
    return bool(state) and not state.startswith("Z")


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


@pytest.mark.parametrize(("seeds", "jobs"), [([42], 2), ([42, 43, 44], 4)])
def test_no_more_processes_than_tasks(seeds, jobs, tmp_path):
    """Two networks for each seed; the config says how many processes there were."""
    finished("shift-tabular", tmp_path, "--set", f"seeds={seeds}", "--jobs", "4")
    assert json.loads((tmp_path / "config.json").read_text())["jobs"] == jobs


def test_it_goes_on_with_what_is_left(whole, tmp_path):
    finished("shift-tabular", tmp_path, *SEEDS, *TWO)
    for part in sorted((tmp_path / "parts").iterdir())[1:4]:
        part.unlink()
    _, said = finished("shift-tabular", tmp_path, *SEEDS, *TWO)
    assert "6 tasks, 3 of them done before" in said
    assert (tmp_path / "results.json").read_bytes() == whole


def test_killed_it_leaves_no_process(started, tmp_path):
    process, pids = started
    assert pids
    process.kill()
    process.wait()
    assert gone(pids)
    assert left_as_it_was(tmp_path)


@pytest.mark.parametrize("all_of_them", [False, True])  # as a service manager tells one process, as a terminal tells all
def test_interrupted_it_ends_at_once(all_of_them, started, tmp_path):
    process, pids = started
    for pid in (*pids, process.pid) if all_of_them else (process.pid,):
        os.kill(pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "Traceback" not in said
    assert gone(pids)
    assert left_as_it_was(tmp_path)


def test_a_lost_process_is_told(started, tmp_path):
    process, pids = started
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in said
    assert f"is kept in {tmp_path}" in said
    assert "one of 2 processes has ended without a result" in said
    assert left_as_it_was(tmp_path)


def test_a_script_without_a_guard_is_told(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from cafexai.studies import STUDIES, run\n"
        f"run(STUDIES['properties'], 'toy', {str(tmp_path / 'out')!r}, jobs=2, show_progress=False)\n"
    )
    told = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment(), check=False, timeout=120)
    assert told.returncode == 1
    assert 'under if __name__ == "__main__":' in told.stderr.splitlines()[-1]


def test_a_wrong_setting_does_not_take_the_folder(data, tmp_path):
    out = tmp_path / "out"
    for wrong in ('["titanic@abc"]', '["nosuch"]', "[1]"):
        line = command("infidelity-mlp", out, "--data", data, "--set", f"data={wrong}")
        told = subprocess.run(line, capture_output=True, text=True, env=environment(), check=False)
        assert told.returncode == 2
        assert "Traceback" not in told.stderr
    finished("infidelity-mlp", out, "--data", data)


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
    assert told.returncode == 2
    assert "give at least 1" in told.stderr


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_can_be_sent_to_a_process(name):
    assert pickle.loads(pickle.dumps(STUDIES[name])) == STUDIES[name]


@pytest.mark.parametrize("kind", [Exception, RuntimeError])
def test_a_cluster_that_does_not_start_is_an_error_of_the_call(kind, tmp_path, monkeypatch):
    """Ray raises a plain Exception where a busy machine starts it too slowly."""

    def init(**options):
        raise kind("The current node timed out during startup.\nMore of Ray's advice.")

    fake = types.ModuleType("ray")
    fake.is_initialized, fake.init = (lambda: False), init
    monkeypatch.setitem(sys.modules, "ray", fake)
    with pytest.raises(
        ValueError, match=r"address=None\): Ray does not start \(The current node timed out during startup\.\)\.$"
    ):
        run(STUDIES["worked-tables"], "toy", tmp_path, engine="ray", show_progress=False)
