"""What exporters take apart is put back, however it is spelled; what is not known is told."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cafexai import CAFE
from exported import distances, export

pytest.importorskip("onnx", reason="ONNX files need the package onnx: pip install 'cafexai[onnx]'")
from cafexai.onnx import from_onnx


@pytest.fixture(autouse=True)
def single():
    """Models of files are in float32."""
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)


class Between(nn.Module):
    """A function between two linear layers."""

    def __init__(self, function, behind=6):
        super().__init__()
        self.first, self.last = nn.Linear(5, 6), nn.Linear(behind, 3)
        self.function = function

    def forward(self, x):
        return self.last(self.function(self.first(x)))


def read(model, path, opset=17, rows=4):
    x = 3 * torch.randn(rows, 5)
    export(model.eval(), x, path / "model.onnx", opset, False)
    return from_onnx(path / "model.onnx"), x


ACTIVATIONS = [
    nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Mish(), nn.Hardswish(), nn.Hardsigmoid(), nn.ELU(0.7), nn.CELU(0.7), nn.SELU(),
    nn.LeakyReLU(0.2), nn.Softplus(), nn.Softplus(2.0), nn.Softsign(), nn.Tanhshrink(), nn.Hardshrink(0.4), nn.Softshrink(0.4),
    nn.LogSigmoid(), nn.Threshold(0.0, 0.0), nn.ReLU6(), nn.Hardtanh(-0.5, 0.8), nn.PReLU(6), nn.RReLU(), nn.GLU(),
]  # fmt: skip


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("function", ACTIVATIONS, ids=lambda one: f"{type(one).__name__}")
def test_activation_functions_of_torch(function, opset, tmp_path):
    model = Between(function, 3 if isinstance(function, nn.GLU) else 6)
    found, x = read(model, tmp_path, opset)
    gaps = distances(model, found, x)
    assert max(gaps.values()) < 1e-5, (gaps, found.put_back)
    assert found.explanation_notes == ()


SPELLINGS = {
    "gelu": (F.gelu, [
        lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
        lambda x: x * 0.5 * (1 + torch.erf(x * math.sqrt(0.5))),
        lambda x: (torch.erf(x / 1.41421356) + 1) * x / 2,
        lambda x: x * (0.5 + 0.5 * torch.erf(x * 0.70710678)),
    ]),
    "gelu (tanh)": (lambda x: F.gelu(x, approximate="tanh"), [
        lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3)))),
        lambda x: 0.5 * x * (1 + torch.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))),
        lambda x: x * torch.sigmoid(1.5957691216 * (x + 0.044715 * x * x * x)),
    ]),
    "silu": (F.silu, [lambda x: x * torch.sigmoid(x), lambda x: torch.sigmoid(x) * x, lambda x: x / (1 + torch.exp(-x))]),
    "mish": (F.mish, [lambda x: x * torch.tanh(F.softplus(x)), lambda x: x * torch.tanh(torch.log(1 + torch.exp(x)))]),
    "hardswish": (F.hardswish, [lambda x: x * F.relu6(x + 3) / 6, lambda x: x * torch.clamp(x + 3, 0, 6) * (1 / 6)]),
    "elu": (F.elu, [lambda x: torch.where(x > 0, x, torch.exp(x) - 1)]),
}  # fmt: skip


@pytest.mark.parametrize(("name", "place"), [(name, i) for name, (_, many) in SPELLINGS.items() for i in range(len(many))])
def test_functions_are_known_however_they_are_written(name, place, tmp_path):
    known, spellings = SPELLINGS[name]
    model = Between(spellings[place])
    found, x = read(model, tmp_path)
    assert sum(found.put_back.values()) == 1, found.put_back
    meant = Between(known)
    meant.load_state_dict(model.state_dict())
    gaps = distances(meant.eval(), found, x)
    assert max(gaps.values()) < 1e-5, gaps


@pytest.mark.parametrize("function", [lambda x: x * torch.sigmoid(1.702 * x), lambda x: x * torch.exp(-x * x)])
def test_functions_that_are_not_known_are_told(function, tmp_path):
    model = Between(function)
    found, x = read(model, tmp_path)
    assert found.put_back == {}
    e = CAFE(found).explain(x)
    assert any("functions of one value that are written out in parts" in note for note in e.notes)
    torch.testing.assert_close(e.positive, CAFE(model).explain(x).positive, rtol=1e-4, atol=1e-5)  # it was written so before


@pytest.mark.parametrize("function", [torch.sin, lambda x: x + torch.relu(x), lambda x: x * 2 + 1, lambda x: x.abs().sqrt()])
def test_what_nobody_took_apart_is_left_alone(function, tmp_path):
    model = Between(function)
    found, x = read(model, tmp_path)
    assert (found.put_back, found.explanation_notes) == ({}, ())
    assert max(distances(model, found, x).values()) < 1e-5


# ---- norms -------------------------------------------------------------------------------------------------------------


def spelled(x, weight, bias):
    middle = x - x.mean(-1, keepdim=True)
    return middle * torch.rsqrt((middle * middle).mean(-1, keepdim=True) + 1e-5) * weight + bias


def spelled_with_roots(x, weight, bias):
    middle = x - x.mean(-1, keepdim=True)
    return bias + weight * (middle / ((middle**2).mean(-1, keepdim=True) + 1e-5) ** 0.5)


class Norm(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.weight, self.bias = function, nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(6))

    def forward(self, x):
        return self.function(x, self.weight, self.bias)


@pytest.mark.parametrize("function", [spelled, spelled_with_roots, lambda x, w, b: F.layer_norm(x, (6,), w, b)])
def test_layer_norms(function, tmp_path):
    model = Between(Norm(function))
    found, x = read(model, tmp_path, 13)
    assert found.put_back == {"layer norm": 1}
    meant = Between(Norm(lambda x, w, b: F.layer_norm(x, (6,), w, b)))
    meant.load_state_dict(model.state_dict())
    gaps = distances(meant.eval(), found, x)
    assert max(gaps.values()) < 1e-5, gaps


@pytest.mark.parametrize("shape", [(6,), (2, 3)])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norms_of_several_dimensions(shape, affine, tmp_path):
    norm = nn.LayerNorm(shape, elementwise_affine=affine)
    if affine:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    model = Between(nn.Sequential(nn.Unflatten(1, (1, *shape)), norm, nn.Flatten()))
    found, x = read(model, tmp_path, 13)
    assert found.put_back == {"layer norm": 1}
    assert max(distances(model, found, x).values()) < 1e-5


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, b: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
        lambda x, w, b: w * (x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6)),
    ],
)
def test_rms_norms(function, tmp_path):
    model = Between(Norm(function))
    found, x = read(model, tmp_path)
    assert found.put_back == {"RMS norm": 1}
    meant = Between(Norm(lambda x, w, b: F.rms_norm(x, (6,), w, 1e-6)))
    meant.load_state_dict(model.state_dict())
    gaps = distances(meant.eval(), found, x)
    assert max(gaps.values()) < 1e-5, gaps


class GroupNorm(nn.Module):
    def __init__(self, affine):
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv1d(1, 6, 2), nn.GroupNorm(3, 6, affine=affine), nn.Linear(24, 3)
        if affine:
            nn.init.normal_(self.norm.weight)
            nn.init.normal_(self.norm.bias)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.conv(x[:, None]))).flatten(1))


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("opset", [13, 17, 18])
def test_group_norms(affine, opset, tmp_path):
    model = GroupNorm(affine)
    found, x = read(model, tmp_path, opset)
    assert found.put_back == {"group norm": 1}
    gaps = distances(model, found, x)
    assert max(gaps.values()) < 1e-5, gaps


def test_instance_and_batch_norms(tmp_path):
    class Norms(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.one, self.two = nn.Conv1d(1, 6, 2), nn.InstanceNorm1d(6, affine=True), nn.BatchNorm1d(24)
            self.last = nn.Linear(24, 3)
            nn.init.uniform_(self.two.running_var, 0.5, 2)
            nn.init.normal_(self.two.running_mean)

        def forward(self, x):
            return self.last(self.two(torch.relu(self.one(self.conv(x[:, None]))).flatten(1)))

    model = Norms()
    found, x = read(model, tmp_path)
    assert max(distances(model, found, x).values()) < 1e-5


def test_vectors_of_length_one(tmp_path):
    model = Between(lambda x: F.normalize(x, dim=-1))
    found, x = read(model, tmp_path)
    assert found.put_back == {"normalize": 1}
    assert max(distances(model, found, x).values()) < 1e-5


def test_a_norm_that_is_not_known_is_told(tmp_path):
    model = Between(lambda x: x / torch.sqrt(x.abs().mean(-1, keepdim=True) + 1e-5))
    found, x = read(model, tmp_path)
    assert any("a normalisation that is written out in parts" in note for note in CAFE(found).explain(x).notes)
