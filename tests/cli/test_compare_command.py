"""``cafexai compare`` and ``audit`` on models with preprocessing of their own, and with a schema."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("sklearn")
import joblib
from sklearn.compose import ColumnTransformer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from cafexai import Schema, compare, from_sklearn
from cafexai.cli.app import app
from cafexai.cli.errors import run

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
MODULE = "import numpy as np\n\ndef logs(x):\n    return np.log1p(x)\n"
CODE = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2))
"""
FEW = ("--methods", "cafe,integrated_gradients", "--metrics", "complexity,completeness_error")


def people(rows=40):
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": random.integers(20, 70, rows).astype(float),
            "income": random.lognormal(1, 0.5, rows).round(2),
            "city": random.choice(["Rome", "Oslo", "Lima"], rows),
        }
    )


def pipeline():
    frame = people()
    steps = ColumnTransformer([("cat", OneHotEncoder(), ["city"]), ("num", StandardScaler(), ["age", "income"])])
    made = make_pipeline(steps, MLPClassifier((6,), max_iter=20, random_state=0))
    return made.fit(frame, np.where(frame.income > 2.5, "good", "bad"))


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    people().to_csv("people.csv", index=False)
    (tmp_path / "ours.py").write_text(CODE)
    joblib.dump(pipeline(), "pipeline.joblib")
    Schema.from_frame(people(), one_hot=True, classes=["no", "yes"]).write("schema.toml")

    def command(*words):
        code = run(app, list(words))
        out, error = capsys.readouterr()
        assert code == 0, error
        return out

    return command


def test_pipelines_are_compared_on_what_their_network_gets(here):
    found = json.loads(here("compare", "pipeline.joblib", "people.csv", "--trust", "--json", "--target", "good", *FEW))
    made = pipeline()
    x = torch.tensor(made[:-1].transform(people()))
    groups = torch.tensor([0, 0, 0, 1, 2])
    metrics = ("complexity", "completeness_error")
    expected = compare(from_sklearn(made[-1]), x, 0, ["cafe", "integrated_gradients"], metrics, feature_groups=groups)
    for line, name in zip(found["methods"], ("cafe", "integrated_gradients"), strict=True):
        assert line["method"] == name
        assert line["complexity"] == pytest.approx(float(expected.values[name]["complexity"].mean()))
    assert "underlined" in here("compare", "pipeline.joblib", "people.csv", "--trust", "--baseline", "median", *FEW)


def test_pipelines_are_audited(here):
    out = here("audit", "pipeline.joblib", "people.csv", "--trust", "--rows", "0:10")
    assert "hidden1" in out


def test_a_schema_names_classes_and_makes_blocks_one_feature(here):
    found = json.loads(here("compare", "ours:net", "people.csv", "--schema", "schema.toml", "--target", "yes", "--json", *FEW))
    by_number = json.loads(
        here("compare", "ours:net", "people.csv", "--schema", "schema.toml", "--target", "1", "--json", *FEW)
    )
    assert found["methods"][0]["complexity"] == by_number["methods"][0]["complexity"]
    assert "conflicts" in here("audit", "ours:net", "people.csv", "--schema", "schema.toml", "--baseline", "mode")


def test_a_pickle_finds_modules_of_the_current_folder(tmp_path):
    import subprocess
    import sys

    (tmp_path / "own_steps.py").write_text(MODULE)
    people().to_csv(tmp_path / "people.csv", index=False)
    code = """
import joblib, pandas, own_steps
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
frame = pandas.read_csv("people.csv")[["age", "income"]]
joblib.dump(make_pipeline(FunctionTransformer(own_steps.logs), LinearRegression()).fit(frame, frame.age), "own.joblib")
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env={**__import__("os").environ, "PYTHONPATH": "."})
    start = "import sys; sys.path = [p for p in sys.path if p]; from cafexai.cli import main; main()"
    words = ["explain", "own.joblib", "people.csv", "--trust", "--rows", "0"]
    found = subprocess.run([sys.executable, "-c", start, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "output" in found.stdout
