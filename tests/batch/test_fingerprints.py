"""Fingerprints: two models that compute something else are told apart, and a model is the same in every process."""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib.util
import itertools
import logging
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
import torch
from torch import nn

pytest.importorskip("pyarrow")
pytest.importorskip("fsspec")
from batch_files import network, rows, write
from cafexai import CAFE
from cafexai.batch import score
from cafexai.batch._fingerprint import fingerprint
from cafexai.loading.file_errors import OutputProblem


@dataclasses.dataclass(slots=True)
class Config:
    factor: float = 1.0


class Kind(enum.Enum):
    SUM = 1
    MEAN = 2


class Net(nn.Module):
    def __init__(self, **attributes):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(5, 3, dtype=torch.float32)
        self.__dict__.update(attributes)

    def forward(self, x):
        return self.linear(x) * self.factor


SETTINGS = [
    *({}, {"factor": 2}, {"factor": 2.0}, {"factor": 3.0}, {"factor": "2"}, {"_factor": 2}, {"factor": None}),
    *({"a": [1, [2]]}, {"a": [[1], 2]}, {"a": [1, 2]}, {"a": {1, 2}}, {"a": {1, 3}}, {"a": {"b": 1}}, {"a": {"b": 2}}),
    *({"a": torch.relu}, {"a": torch.tanh}, {"a": lambda x: x + 1}, {"a": lambda x: x + 2}, {"a": torch.zeros(2)}),
    *({"a": functools.partial(torch.add, other=1)}, {"a": functools.partial(torch.add, other=2)}, {"a": torch.ones(2)}),
    *({"a": Config(1.0)}, {"a": Config(2.0)}, {"a": Kind.SUM}, {"a": Kind.MEAN}, {"a": SimpleNamespace(b=1)}),
    *({"a": SimpleNamespace(b=2)}, {"a": [network(0)]}, {"a": [network(1)]}, {"a": range(3)}, {"a": range(4)}),
    *({"a": torch.float32}, {"a": torch.float64}, {"a": rows(2)}, {"a": rows(2, seed=1)}, {"a": {"b": [rows(2)]}}),
]


def test_what_is_set_in_a_model_counts():
    prints = [fingerprint(Net(**settings)) for settings in SETTINGS]
    same = [(SETTINGS[i], SETTINGS[j]) for i, j in itertools.combinations(range(len(prints)), 2) if prints[i] == prints[j]]
    assert same == []
    assert prints == [fingerprint(Net(**settings)) for settings in SETTINGS]


def test_what_says_nothing_of_a_model_does_not_count():
    first, second = logging.getLogger("one"), logging.getLogger("two")
    second.setLevel("DEBUG")
    for one, other in ((first, second), (threading.Lock(), threading.Lock()), (torch.Generator(), torch.Generator())):
        assert fingerprint(Net(a=one)) == fingerprint(Net(a=other))
    for name in ("name_or_path", "_original_object_hash"):  # the second, of transformers, is new in every process
        assert fingerprint(Net(**{name: "here"})) == fingerprint(Net(**{name: "there"}))


def test_models_that_hold_each_other_have_fingerprints():
    one, other = Net(), Net()
    one.__dict__["others"], other.__dict__["others"] = [other, one], [one]
    assert fingerprint(one) != fingerprint(other)


CODE = """
from torch import nn
from torch.nn.functional import relu

FACTOR = {factor}

def scale(x, power={power}):
    return helped(x) ** power * FACTOR

def helped(x):
    return x + {shift}

def make(bonus):
    def add(x):
        return x + bonus
    return add

added = make({bonus})

class Base(nn.Module):
    def forward(self, x):
        return added(scale({function}(self.linear(x))))

class Net(Base):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 3)
        nn.init.constant_(self.linear.weight, 0.1)
        nn.init.constant_(self.linear.bias, 0.1)
"""
USUAL = {"factor": 2, "power": 1, "shift": 0, "bonus": 0, "function": "relu"}


def made(folder, **changes):
    """A network of a module that is written for it."""
    file = folder / "net_of_the_test.py"
    file.write_text(CODE.format(**(USUAL | changes)))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module.Net().eval()


def test_code_that_a_model_runs_counts_wherever_it_is(tmp_path):
    changes = [{}, {"factor": 3}, {"power": 2}, {"shift": 1}, {"bonus": 1}, {"function": "-1 * relu"}]
    assert len({fingerprint(made(tmp_path, **change)) for change in changes}) == len(changes)
    assert fingerprint(made(tmp_path)) == fingerprint(made(tmp_path))


def test_a_file_that_changes_while_the_old_code_runs_does_not_count(tmp_path):
    net = made(tmp_path)
    before = fingerprint(net)
    file = tmp_path / "net_of_the_test.py"
    file.write_text(file.read_text().replace("+ 0", "+ 1"))
    assert fingerprint(net) == before


SCRIPT = (
    "import sys; from test_fingerprints import *; print(*(fingerprint(Net(**s)) for s in SETTINGS), fingerprint(network()))"
)


def test_fingerprints_are_the_same_in_every_process():
    here = [*(fingerprint(Net(**settings)) for settings in SETTINGS), fingerprint(network())]
    folders = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    environment = {**os.environ, "PYTHONPATH": folders, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == here


@pytest.mark.parametrize("change", ["factor", "allow_nan", "probability"])
def test_a_run_does_not_go_on_with_another_model(tmp_path, change):
    source = write(tmp_path / "in.parquet", rows(40))
    options = {"keep": ["id"], "rows_per_part": 20, "workers": 0}
    score(CAFE(Net(factor=2.0)), source, tmp_path / "out", **options)
    sorted((tmp_path / "out").glob("*.parquet"))[1].unlink()
    other = {"allow_nan": {"allow_nan": True}, "probability": {"probability": "softmax"}}.get(change, {})
    with pytest.raises(OutputProblem, match=f"Changed: the {'model' if change == 'factor' else f'setting {change}'}"):
        score(CAFE(Net(factor=3.0 if change == "factor" else 2.0), **other), source, tmp_path / "out", **options)


def test_onnx_graphs_of_equal_weights_differ(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    from cafexai.onnx import from_onnx

    prints = []
    for between in (nn.ReLU(), nn.Tanh(), nn.LeakyReLU(0.1), nn.LeakyReLU(0.2)):
        file = tmp_path / "net.onnx"
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(5, 4), between, nn.Linear(4, 3)).eval()
        torch.onnx.export(net, (torch.zeros(2, 5),), str(file), dynamo=False, input_names=["x"])
        prints += [fingerprint(from_onnx(file)), fingerprint(from_onnx(file))]
    assert prints[::2] == prints[1::2]
    assert len(set(prints)) == 4
