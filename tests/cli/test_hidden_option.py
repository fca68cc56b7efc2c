"""``--hidden``, and columns that the model does not take."""

import re

import pandas as pd
import pytest
import torch

from cafexai import CAFE
from cafexai.cli.app import app
from cafexai.cli.errors import run
from command_files import network, write_all


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """Commands in this process: code, standard output, standard error."""
    write_all(tmp_path)
    monkeypatch.chdir(tmp_path)
    torch.set_default_dtype(torch.float32)

    def command(*words):
        code = run(app, list(map(str, words)))
        return (code, *capsys.readouterr())

    return command


def test_hidden_conflicts_are_those_of_python_and_their_price_is_said(here, tmp_path):
    net = ("shop:net", "people.csv", "--weights", "net.safetensors")
    code, out, error = here("explain", *net, "--hidden")
    assert code == 0, error
    assert "hidden conflicts: 7 evaluations of the model for each of 3 rows" in error
    cafe = CAFE(network())
    found = cafe.hidden_conflicts(cafe.explain(pd.read_csv("people.csv")[["age", "income", "children"]]))
    for row in range(3):
        assert all(line in out for line in found.sentences(row) or ["No large conflict is hidden."])
    code, out, error = here("report", *net, "--hidden", "--out", "r.html")
    assert code == 0, error
    assert len(re.findall("Hidden conflicts:", (tmp_path / "r.html").read_text())) == len(pd.read_csv("people.csv"))
    code, out, error = here("explain", *net, "--hidden", "--json")
    assert code == 2
    assert "--hidden" in error
