"""Models of ONNX files have the scores that they had before their export."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cafexai import CAFE
from exported import EXPORTERS, MODELS, OPSETS, REAL, built, cnn_with_biases, distances, export, stirred

pytest.importorskip("onnx", reason="ONNX files need the package onnx: pip install 'cafexai[onnx]'")
from cafexai.onnx import from_onnx

NEAR = 1e-5


def exporter(name):
    if EXPORTERS[name]:
        pytest.importorskip("onnxscript", reason="torch.onnx.export(..., dynamo=True) needs onnxscript")
    return EXPORTERS[name]


@pytest.fixture
def single():
    """Models that are built in a test are in float32, as those of files are."""
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_the_model_before(name, opset, tmp_path):
    model, x = built(name)
    export(model, x, tmp_path / "model.onnx", opset, False)
    read = from_onnx(tmp_path / "model.onnx")
    found = distances(model, read, x)
    assert max(found.values()) < NEAR, found
    assert len(read(x[:1])) == 1  # any number of rows


@pytest.mark.parametrize(
    ("name", "opset"),
    [
        pytest.param(name, opset, marks=() if (name, opset) in (("CNN", 18), ("transformer", 20)) else pytest.mark.slow)
        for name in MODELS
        for opset in OPSETS
    ],
)
def test_scores_with_the_other_exporter(name, opset, tmp_path):
    model, x = built(name)
    export(model, x, tmp_path / "model.onnx", opset, exporter("dynamo"))
    read = from_onnx(tmp_path / "model.onnx")
    found = distances(model, read, x)
    assert max(found.values()) < NEAR, found
    assert len(read(x[:1])) == 1


@pytest.mark.parametrize("name", REAL)
def test_scores_of_real_architectures(name, tmp_path):
    model, x = built(name)
    export(model, x, tmp_path / "model.onnx", 17, False)
    read = from_onnx(tmp_path / "model.onnx")
    found = distances(model, read, x)
    assert max(found.values()) < NEAR, found
    torch.testing.assert_close(read(x[:1]), model(x[:1]), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_scores_of_real_architectures_with_the_other_exporter(name, tmp_path):
    model, x = built(name)
    export(model, x, tmp_path / "model.onnx", 18, exporter("dynamo"))
    found = distances(model, from_onnx(tmp_path / "model.onnx"), x)
    assert max(found.values()) < NEAR, found


def test_what_cannot_be_put_back_is_told(single, tmp_path):
    model, x = stirred(cnn_with_biases()), torch.randn(3, 2, 8, 8)
    export(model, x, tmp_path / "model.onnx", 17, False)
    read = from_onnx(tmp_path / "model.onnx")
    assert distances(model, read, x)["published bias"] > 1e-3
    ours, theirs = (CAFE(one, variant="published", biases="reference").explain(x, target=0).positive for one in (read, model))
    torch.testing.assert_close(ours, theirs)
    assert any("multiplied batch norms into the layers" in note for note in CAFE(read).explain(x).notes)


def test_without_putting_back_scores_are_others(single, tmp_path, monkeypatch):
    """The reason for all of this: outputs agree, scores do not."""
    model, x = built("MLP, shallow, GELU")
    export(model, x, tmp_path / "model.onnx", 17, False)
    monkeypatch.setattr("cafexai.onnx.restore", lambda graph: None)
    apart = from_onnx(tmp_path / "model.onnx")
    torch.testing.assert_close(apart(x), model(x))
    assert distances(model, apart, x)["published positive"] > 0.01


def test_names_are_those_of_the_modules_before(single, tmp_path):
    model, x = built("transformer")
    export(model, x, tmp_path / "model.onnx", 17, False)
    read = from_onnx(tmp_path / "model.onnx")
    names = dict(read.named_modules())
    assert {"embed", "blocks.0.norm1", "blocks.0.mlp.1", "blocks.1.attention.qkv", "norm", "head"} <= set(names)
    torch.testing.assert_close(names["blocks.1.mlp.0"].weight, model.blocks[1].mlp[0].weight)
    by_layer = [CAFE.published(one).explain(x, target=0).bias_by_layer for one in (model, read)]
    torch.testing.assert_close(by_layer[0]["blocks.0.mlp.0"], by_layer[1]["blocks.0.mlp.0"], rtol=1e-4, atol=1e-5)
    c = {"blocks.0.mlp.1": 0.0, "*": 1.0}
    torch.testing.assert_close(CAFE(read, c).explain(x, target=0).positive, CAFE(model, c).explain(x, target=0).positive)


class TwoOfEach(nn.Module):
    def __init__(self):
        super().__init__()
        self.city, self.net = nn.Embedding(10, 3), nn.Sequential(nn.Linear(7, 8), nn.SiLU(), nn.Linear(8, 2))

    def forward(self, numbers, city):
        hidden = self.net(torch.cat([numbers, self.city(city)], 1))
        return hidden, hidden.sum(1)


def test_several_inputs_and_outputs(single, tmp_path):
    model, x = TwoOfEach().eval(), (torch.randn(3, 4), torch.randint(0, 10, (3,)))
    names = {"input_names": ["numbers", "city"], "output_names": ["scores", "total"]}
    export(model, x, tmp_path / "model.onnx", 17, False, **names)
    read = from_onnx(tmp_path / "model.onnx")
    assert (read.input_names, read.output_names) == (("numbers", "city"), ("scores", "total"))
    torch.testing.assert_close(read(*x)["total"], model(*x)[1])
    torch.testing.assert_close(read(city=x[1], numbers=x[0])["scores"], model(*x)[0])
    ours, theirs = CAFE(read).explain(x, target=1, output="scores"), CAFE(model).explain(x, target=1, output=0)
    for one, other in zip(ours.positive, theirs.positive, strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(from_onnx(tmp_path / "model.onnx", "total")(*x), model(*x)[1])
    with pytest.raises(ValueError, match="takes the inputs numbers, city and was given number 0"):
        read(x[0])


@pytest.mark.parametrize("name", ["CNN", "transformer"])
def test_a_fixed_number_of_rows(name, tmp_path):
    model, x = built(name)
    export(model, x[:2], tmp_path / "model.onnx", 17, False, fixed=True)
    read = from_onnx(tmp_path / "model.onnx")
    assert read.rows == 2
    found = distances(model, read, x)
    assert max(found.values()) < NEAR, found
    with pytest.raises(ValueError, match="exported for 2 rows at a time, and these are 3"):
        read(x[:3])
