"""``cafexai monitor`` as an engineer runs it: two Parquet files, a verdict, an exit code."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from cafexai.cli.app import app
from cafexai.cli.errors import run

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
        (["check", "bank:net", "same.parquet", "m.safetensors", "--label", "y", "--c", "1"], 3, "another model, variant or c"),
        (["check", "bank:net", "same.parquet", "m.safetensors", "--label", "y", "--fail-on", "x"], 2, "Allowed values"),
        (["fit", "bank:net", "reference.parquet", "m.bin", "--label", "y"], 2, ".safetensors"),
    ],
)
def test_wrong_use(there, capsys, words, code, said):
    assert main(["monitor", *words]) == code
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown
