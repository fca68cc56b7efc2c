"""What exporters other than torch write: PaddlePaddle's batch of -1, one-hot codes of TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("onnx", reason="ONNX files need the package onnx: pip install 'cafexai[onnx]'")
from test_onnx_files import saved

from cafexai import CAFE
from cafexai.onnx import from_onnx
from onnx import TensorProto

CHANCE = np.random.default_rng(0)


@pytest.mark.parametrize("rows", [-1, 0, None])
def test_a_batch_that_is_not_fixed(tmp_path, rows):
    torch.set_default_dtype(torch.float32)
    nodes = [("MatMul", ["x", "w"], ["a"], {}), ("Relu", ["a"], ["b"], {}), ("MatMul", ["b", "v"], ["y"], {})]
    constants = {name: CHANCE.normal(size=size).astype(np.float32) for name, size in (("w", (3, 4)), ("v", (4, 2)))}
    model = from_onnx(saved(tmp_path / "m.onnx", nodes, (("x", TensorProto.FLOAT, [rows, 3]),), constants=constants))
    assert model.rows is None
    for count in (1, 5):
        x = torch.randn(count, 3)
        e = CAFE(model).explain(x, target=0)
        wanted = (x @ torch.tensor(constants["w"])).relu() @ torch.tensor(constants["v"])
        torch.testing.assert_close(e.output, wanted[:, 0])


@pytest.mark.parametrize("row", [np.arange(4), np.array([2, 5, 3]), np.arange(4).reshape(1, 1, 4)], ids=["range", "some", "3d"])
@pytest.mark.parametrize("first", [True, False])
def test_codes_that_are_compared_with_a_range_are_one_hot(tmp_path, row, first):
    torch.set_default_dtype(torch.float32)
    count = row.shape[-1]
    sides = ["wide", "range"] if first else ["range", "wide"]
    nodes = [
        ("Unsqueeze", ["x", "last"], ["wide"], {}),
        ("Equal", sides, ["same"], {}),
        ("Cast", ["same"], ["hot"], {"to": TensorProto.FLOAT}),
        ("Reshape", ["hot", "flat"], ["f"], {}),
        ("MatMul", ["f", "w"], ["y"], {}),
    ]
    constants = {
        "last": np.array([-1]),
        "range": row.astype(np.int64),
        "flat": np.array([-1, 2 * count]),
        "w": CHANCE.normal(size=(2 * count, 2)).astype(np.float32),
    }
    model = from_onnx(saved(tmp_path / "m.onnx", nodes, (("x", TensorProto.INT64, [None, 2]),), constants=constants))
    assert model.put_back == {"one-hot": 1}
    codes = torch.tensor([[2, 3], [3, 2], [-1, 9]])  # the last are none of the values
    e = CAFE(model).explain(codes, target=0)
    hot = (codes[..., None] == torch.tensor(row).reshape(-1)).float()
    parts = hot[..., None] * torch.tensor(constants["w"]).view(2, count, 2)
    torch.testing.assert_close(e.combined, parts.sum(2)[..., 0])
    assert e.combined[:2].abs().min() > 0
