"""``cafexai monitor`` as an engineer runs it: two Parquet files, a verdict, an exit code."""

from __future__ import annotations

import json
import runpy

import numpy as np
import pandas as pd
import pytest

from cafexai import CAFE
from cafexai.cli.app import app
from cafexai.cli.errors import run
from cafexai.monitor import Monitor

CODE = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)).float()
"""


def main(words):
    return run(app, words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("monitor")
    (place / "bank.py").write_text(CODE)
    random = np.random.default_rng(0)
    for name, rows in (("reference", 1500), ("same", 300), ("shifted", 300)):
        values = random.normal(size=(rows, 3))
        values[:, 2] = 0.9 * values[:, 1] + 0.3 * values[:, 2] if name != "shifted" else values[:, 2]
        frame = pd.DataFrame(values, columns=["age", "income", "debts"]).assign(y=(values[:, 0] > 0).astype(int))
        frame.to_parquet(place / f"{name}.parquet")
    return place


@pytest.fixture
def there(folder, monkeypatch):
    monkeypatch.chdir(folder)
    if not (folder / "m.safetensors").exists():
        assert main(["monitor", "fit", "bank:net", "reference.parquet", "m.safetensors", "--label", "y"]) == 0


def test_verdict_and_exit_codes(there, capsys):
    same = ["monitor", "check", "bank:net", "same.parquet", "m.safetensors", "--label", "y", "--fail-on", "warn"]
    assert main(same) == 0
    assert "No change was found in 300 rows" in capsys.readouterr().out
    shifted = [*same[:3], "shifted.parquet", *same[4:]]
    assert main([*shifted, "--json"]) in (10, 11)
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["kind"] == "correlation shift"
    assert verdict["pairs"][0]["first"] == "income"
    assert verdict["pairs"][0]["second"] == "debts"
    assert main(shifted[:-2]) == 0  # without --fail-on the verdict is text only


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["check", "bank:net", "same.parquet", "m.safetensors", "--label", "z"], 2, "no such column"),
        (["check", "bank:net", "same.parquet", "m.safetensors", "--label", "y", "--c", "1"], 3, "Changed: c. Give"),
        (["check", "bank:net", "same.parquet", "m.safetensors", "--label", "y", "--fail-on", "x"], 2, "Allowed values"),
        (["check", "bank:net", "same.parquet", "none.safetensors"], 3, "there is no such file (the monitor)"),
        (["fit", "bank:net", "reference.parquet", "m.bin", "--label", "y"], 2, ".safetensors"),
    ],
)
def test_wrong_use(there, capsys, words, code, said):
    assert main(["monitor", *words]) == code
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown


def test_windows_by_day_and_prometheus(there, folder, capsys):
    parts = [pd.read_parquet(f"{name}.parquet").assign(day=day) for day, name in enumerate(("same", "shifted"))]
    few = parts[0].head(5).assign(day=9)
    (folder / "days").mkdir()
    for place, part in enumerate([*parts, few]):
        part.to_parquet(folder / "days" / f"{place}.parquet")
    words = ["monitor", "check", "bank:net", "days", "m.safetensors", "--label", "y", "--by", "day"]
    assert main([*words, "--prometheus", "days.prom", "--fail-on", "warn"]) in (10, 11)
    shown = capsys.readouterr()
    first, second = shown.out.splitlines()
    assert first.startswith("0: none. No change")
    assert second.startswith("1: ")
    assert "no longer move together" in second
    assert "9: 5 rows, too few" in shown.err
    text = (folder / "days.prom").read_text()
    assert 'cafexai_monitor_severity{window="0",kind="none"} 0.0' in text
    assert 'cafexai_monitor_rows{window="1"} 300.0' in text
    assert main([*words[:-1], "week"]) == 2
    assert "no such column" in capsys.readouterr().err


def test_output_of_batch_is_not_explained_again(there, capsys):
    pytest.importorskip("pyarrow")
    names = "age,income,debts"
    for name in ("same", "shifted"):
        words = ["batch", f"{name}.parquet", f"{name}-scores", "--model", "bank:net", "--columns", names, "--workers", "0"]
        assert main([*words, "--keep", names]) == 0
        capsys.readouterr()
        base = ["monitor", "check", "bank:net"]
        assert main([*base, f"{name}-scores", "m.safetensors", "--scores", "--json"]) == 0
        scored = json.loads(capsys.readouterr().out)
        pd.read_parquet(f"{name}.parquet").drop(columns="y").to_parquet(f"{name}-plain.parquet")
        assert main([*base, f"{name}-plain.parquet", "m.safetensors", "--json"]) == 0
        plain = json.loads(capsys.readouterr().out)
        assert scored["kind"] == plain["kind"]
        for family, pair in plain["statistics"].items():
            assert scored["statistics"][family] == pytest.approx(pair, abs=0.05), family
    frame = pd.read_parquet("same-scores")
    cafe = CAFE(runpy.run_path("bank.py")["net"]())
    monitor = Monitor.load("m.safetensors", cafe)
    assert len(monitor.read_scores(frame)) == 300
    with pytest.raises(ValueError, match="scores differ"):
        monitor.read_scores(frame.assign(net_age=frame["net_age"] * 1.01))
    with pytest.raises(ValueError, match="no inputs: income"):
        monitor.read_scores(frame.drop(columns="income"))
    with pytest.raises(ValueError, match="without top="):
        monitor.read_scores(frame.drop(columns="positive_age"))


def test_baseline_word_is_kept_in_the_file(there, capsys):
    words = ["monitor", "fit", "bank:net", "reference.parquet", "median.safetensors", "--label", "y", "--baseline", "median"]
    assert main(words) == 0
    assert main(["monitor", "check", "bank:net", "same.parquet", "median.safetensors", "--label", "y"]) == 0
    assert "No change was found" in capsys.readouterr().out


def test_page_of_a_window_and_of_days(there, folder, capsys):
    words = ["monitor", "check", "bank:net", "shifted.parquet", "m.safetensors", "--label", "y", "--html"]
    assert main([*words, "page.html"]) == 0
    page = (folder / "page.html").read_text()
    assert "no longer move together" in page
    assert "Rows to look at" in page
    assert main([*words, "page.txt"]) == 2
    capsys.readouterr()


def batch(source, out, *more):
    names = "age,income,debts"
    return main(
        ["batch", source, out, "--model", "bank:net", "--columns", names, "--keep", f"{names},y", "--workers", "0", *more]
    )


@pytest.mark.parametrize(
    ("output", "monitor", "code", "told"),
    [("out", "nope", 3, "nope: there is no such file (the monitor)"), ("s3://b/out", "s", 2, "in a folder of this machine")],
)
def test_batch_looks_at_the_monitor_before_the_rows(there, folder, capsys, output, monitor, code, told):
    pytest.importorskip("pyarrow")
    assert batch("reference.parquet", output, "--monitor", monitor) == code
    assert told in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_fit_and_check_from_output_of_batch(there, folder, capsys):
    """The same monitor as from the rows; rows that batch refused are seen, and its counts are read without scoring."""
    pytest.importorskip("pyarrow")
    holes = pd.read_parquet("same.parquet")
    holes.loc[:40, "income"] = None
    holes.to_parquet("holes.parquet")
    assert batch("reference.parquet", "reference-scores") == 0
    words = ["monitor", "fit", "bank:net", "reference-scores", "s.safetensors", "--scores", "--label", "y"]
    assert main(words) == 0
    assert "1500 rows, 3 features" in capsys.readouterr().out
    assert batch("holes.parquet", "holes-scores", "--monitor", "s.safetensors") == 0
    assert "Counts for monitor check: " in capsys.readouterr().err
    counts = folder / "_holes-scores.cafexai" / "monitor.safetensors"
    found = []
    for source, more in (("holes.parquet", ["--label", "y"]), ("holes-scores", ["--scores", "--label", "y"]), (counts, [])):
        assert main(["monitor", "check", "bank:net", str(source), "s.safetensors", "--json", *more]) == 0
        found.append(json.loads(capsys.readouterr().out))
    for one in found:
        assert one["columns"] == {"income": "missing"}
        assert (one["rows"], one["scored"]) == (300, 259)
    assert found[0]["performance"] == found[1]["performance"]
    assert found[2]["performance"] is None
    assert main(["monitor", "check", "bank:net", str(counts), "s.safetensors", "--by", "day"]) == 2
    assert main(["monitor", "check", "bank:net", str(counts), "m.safetensors"]) == 3
    assert "another reference, model or settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--monitor", "none.safetensors"], 3, "there is no such file (the monitor)"),
        (["--monitor", "m.safetensors", "--scores", "net"], 2, "Leave out --scores and --top"),
        (["--monitor", "m.safetensors", "--keep", "age,y"], 2, "--keep age,y,income,debts"),
        (["--monitor", "m.safetensors", "--c", "1"], 3, "Changed: c. Give"),
        (["--monitor", "m.safetensors", "--baseline", "same.parquet"], 2, "another --target or --baseline"),
    ],
)
def test_batch_refuses_a_monitor_before_it_scores(there, folder, capsys, more, code, said):
    assert batch("same.parquet", "refused-scores", *more) == code
    assert said in capsys.readouterr().err
    assert not (folder / "refused-scores").exists()
