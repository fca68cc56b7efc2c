"""Every error of the page of errors happens as it says."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import cafexai
from cafexai import CAFE

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "scripts"))
import errors

ENTRIES = {message: kind for entries in errors.SECTIONS.values() for message, kind, _, _ in entries}


class Bessel(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x).sum(1)


class Centred(nn.Module):
    def forward(self, x):
        return (x - x.mean(0)).sum(1)


class Detached(nn.Module):
    def forward(self, x):
        return torch.tensor(x.detach().numpy()).sum(1)


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


def frame_without_a_column():
    pandas = pytest.importorskip("pandas")
    return CAFE(network(), feature_names=["a", "b", "c", "d"]).explain(pandas.DataFrame({"a": [1.0], "b": [1.0], "c": [1.0]}))


def tree():
    return cafexai.from_sklearn(pytest.importorskip("sklearn.tree").DecisionTreeClassifier())


def layer_by_its_module():
    net = network()
    return CAFE(net).explain_layer(rows(), net[0])


def rows():
    return torch.randn(2, 4)


CALLS = {
    "is in training mode": lambda: CAFE(nn.Sequential(nn.Linear(4, 1), nn.Dropout()).train()).explain(rows()),
    "there is no rule for it": lambda: CAFE(Bessel()).explain(rows()),
    "the model lets rows depend on each other": lambda: CAFE(Centred()).explain(rows()),
    "does not depend on the input in a way that can be followed": lambda: CAFE(Detached()).explain(rows()),
    "is a TorchScript program": lambda: CAFE(torch.jit.script(network())).explain(rows()),
    "is made of decision trees": tree,
    "give the name of the layer": layer_by_its_module,
    "the model has no such module": lambda: CAFE(network()).explain_layer(rows(), "fc9"),
    "the input holds nan": lambda: CAFE(network()).explain(torch.full((1, 4), float("nan"))),
    "the model does not take inputs of shape": lambda: CAFE(network()).explain(torch.randn(2, 5)),
    "its columns are not the features": frame_without_a_column,
    "Integer inputs are codes": lambda: CAFE(network()).explain(torch.ones(2, 4, dtype=torch.long)),
    "which tokenizer?": lambda: CAFE(network()).explain(["a text"]),
    "there is no feature": lambda: CAFE(network()).explain(rows(), feature_groups={"g": [0, 9]}),
    "of which data?": lambda: CAFE(network()).explain(rows(), baselines="median"),
    "does not fit the input of shape": lambda: CAFE(network()).explain(rows(), baselines=torch.zeros(5)),
    "is out of range for an output of sizes": lambda: CAFE(network()).explain(rows(), target=7),
    "there is no such class": lambda: CAFE(network()).explain(rows(), target="good"),
    "unknown variant": lambda: CAFE(network(), variant="fast"),
    "needs attention=": lambda: CAFE(network(), netting="path", attention="open"),
    "unknown parameter": lambda: CAFE(network()).explain(rows(), baseline=0),
    "the rows have no names": lambda: CAFE(network()).explain(rows())["ann"],
    "pairs(): not computed": lambda: CAFE(network()).explain(rows()).pairs(0),
    "of which rows?": lambda: CAFE(network()).conflict_scale(),
}


def test_all_entries_are_tried():
    assert set(CALLS) == set(ENTRIES)


@pytest.mark.parametrize("message", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_an_error_of_the_page_happens(message):
    with pytest.raises(Exception) as raised:  # noqa: PT011  # its class is compared below
        CALLS[message]()
    assert message in str(raised.value)
    assert type(raised.value).__name__ == ENTRIES[message]


def test_the_page_is_that_of_the_table():
    assert errors.PAGE.read_text(encoding="utf-8") == errors.page(), "write it anew: python docs/scripts/errors.py"
