"""ONNX files as they come: broken, hostile, with weights beside them, of other makers, and on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

pytest.importorskip("onnx", reason="ONNX files need the package onnx: pip install 'cafexai[onnx]'")
import onnx
from cafexai import CAFE
from cafexai.cli.app import app
from cafexai.cli.errors import run
from cafexai.loading import ModelProblem, load_model
from cafexai.onnx import from_onnx
from cafexai.onnx._graph import OURS
from cafexai.onnx._operators import TABLE
from command_files import network, write_all
from exported import built, export
from onnx import TensorProto, helper, numpy_helper


def saved(path, nodes, inputs=(("x", TensorProto.FLOAT, [None, 3]),), outputs=("y",), constants=(), opset=17, **imports):
    """A file of these nodes."""
    graph = helper.make_graph(
        [helper.make_node(op, takes, gives, name=f"the_{op}", **more) for op, takes, gives, more in nodes],
        "made",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in dict(constants).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(name, 1) for name in imports)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def test_all_unknown_operators_are_named_at_once(tmp_path):
    nodes = [
        ("Relu", ["x"], ["a"], {}),
        ("Det", ["a"], ["b"], {}),
        ("QuantizeLinear", ["b", "scale"], ["y"], {}),
        ("FancyThing", ["a"], ["unused"], {"domain": "com.example"}),
    ]
    path = saved(tmp_path / "odd.onnx", nodes, constants={"scale": np.ones(1, np.float32)})
    with pytest.raises(ModelProblem) as error:
        from_onnx(path)
    told = str(error.value)
    assert "Det (opset 17) at node 'the_Det'" in told
    assert "QuantizeLinear (opset 17)" in told
    assert "FancyThing" not in told  # no output needs it
    assert "before it is quantised" in told


def test_a_form_that_torch_does_not_have_names_its_node(tmp_path):
    weights = {"w": np.ones((1, 6, 3), np.float32), "r": np.ones((1, 6, 2), np.float32)}
    path = saved(tmp_path / "gru.onnx", [("GRU", ["x", "w", "r"], ["y"], {"hidden_size": 2})], [("x", 1, [5, None, 3])],
                 constants=weights)  # fmt: skip
    with pytest.raises(ModelProblem, match=r"the_GRU.*opset 17.*linear_before_reset=0"):
        from_onnx(path)(torch.randn(5, 2, 3))


def test_dropout_that_drops(tmp_path):
    more = {"share": np.array(0.5, np.float32), "yes": np.array(True)}
    path = saved(tmp_path / "d.onnx", [("Dropout", ["x", "share", "yes"], ["y"], {})], constants=more)
    with pytest.raises(ModelProblem, match="Dropout in training mode"):
        from_onnx(path)(torch.ones(2, 3))


def test_a_kind_of_number_that_torch_lacks_names_its_node(tmp_path):
    nodes = [("Cast", ["x"], ["a"], {"to": TensorProto.STRING}), ("Cast", ["a"], ["y"], {"to": TensorProto.FLOAT})]
    with pytest.raises(ModelProblem, match=r"the_Cast.*Cast \(opset 17\)"):
        from_onnx(saved(tmp_path / "c.onnx", nodes))(torch.ones(2, 3))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ModelProblem, match="no such file"):
        from_onnx(tmp_path / "none.onnx")


@pytest.mark.parametrize("content", [b"", b"no model", b"\x08\x07" + b"\xff" * 50])
def test_what_is_no_model(content, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(content)
    with pytest.raises(ModelProblem, match="cannot be read"):
        from_onnx(tmp_path / "bad.onnx")


def test_a_file_that_is_cut_off(tmp_path):
    model, x = built("MLP")
    export(model, x, tmp_path / "whole.onnx", 17, False)
    whole = (tmp_path / "whole.onnx").read_bytes()
    for size in range(10, len(whole), 97):
        (tmp_path / "cut.onnx").write_bytes(whole[:size])
        with pytest.raises(ModelProblem):
            load_model(tmp_path / "cut.onnx")


def test_a_value_that_nothing_gives(tmp_path):
    with pytest.raises(ModelProblem, match="takes 'ghost', which nothing gives"):
        from_onnx(saved(tmp_path / "a.onnx", [("Add", ["x", "ghost"], ["y"], {})]))
    with pytest.raises(ModelProblem, match="nothing gives its output 'z'"):
        from_onnx(saved(tmp_path / "b.onnx", [("Relu", ["x"], ["y"], {})], outputs=("z",)))


def test_sizes_that_no_machine_has(tmp_path):
    huge = {"sizes": np.array([2**40, 3], np.int64)}
    with pytest.raises(ModelProblem, match="the_Expand"):
        from_onnx(saved(tmp_path / "a.onnx", [("Expand", ["x", "sizes"], ["y"], {})], constants=huge), check=False)(
            torch.ones(1, 3)
        )
    nodes = [("ConstantOfShape", ["sizes"], ["z"], {}), ("Add", ["x", "z"], ["y"], {})]
    with pytest.raises(ModelProblem, match="the_ConstantOfShape"):
        from_onnx(saved(tmp_path / "b.onnx", nodes, constants=huge))(torch.ones(1, 3))


# ---- weights in files of their own ---------------------------------------------------------------------------------------


def beside(folder, location=None, **changed):
    """A model whose weights lie in another file, which its entries may lie about."""
    model, x = built("MLP")
    export(model, x, folder / "model.onnx", 17, False)
    proto = onnx.load(folder / "model.onnx")
    onnx.save(proto, folder / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    proto = onnx.load(folder / "model.onnx", load_external_data=False)
    for one in proto.graph.initializer:
        for entry in one.external_data:
            entry.value = str({"location": location, **changed}.get(entry.key) or entry.value)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return model, x


def test_weights_beside_the_model(tmp_path):
    model, x = beside(tmp_path)
    assert (tmp_path / "weights.bin").exists()
    torch.testing.assert_close(from_onnx(tmp_path / "model.onnx")(x), model(x))
    (tmp_path / "weights.bin").write_bytes(b"short")
    with pytest.raises(ModelProblem, match="Is it complete"):
        from_onnx(tmp_path / "model.onnx")
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelProblem, match="not beside it"):
        from_onnx(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "location", ["../secret.bin", "/etc/passwd", "down/../../secret.bin", "link.bin", "elsewhere/secret.bin"]
)
def test_no_file_elsewhere_is_read(location, tmp_path):
    (tmp_path / "secret.bin").write_bytes(bytes(10_000))
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "elsewhere").symlink_to(tmp_path)
    beside(folder, location)
    with pytest.raises(ModelProblem, match="outside of the folder of the model"):
        from_onnx(folder / "model.onnx")


@pytest.mark.parametrize("changed", [{"offset": -8}, {"offset": 10**12}, {"length": 10**12}, {"length": 4}, {"offset": "x"}])
def test_entries_that_lie(changed, tmp_path):
    beside(tmp_path, **changed)
    with pytest.raises(ModelProblem):
        from_onnx(tmp_path / "model.onnx")


# ---- graphs of all kinds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("yes", [True, False])
def test_a_branch_that_is_decided_is_taken(yes, tmp_path):
    """torch writes such ones for squeeze."""
    info = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    branches = {
        word: helper.make_graph([helper.make_node(op, ["x"], ["z"])], word, [], [info])
        for word, op in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    path = saved(tmp_path / "if.onnx", [("If", ["yes"], ["y"], branches)], constants={"yes": np.array(yes)})
    x = torch.randn(2, 3)
    torch.testing.assert_close(from_onnx(path)(x), torch.relu(x) if yes else -x)


def test_functions_of_the_file_are_followed(tmp_path):
    double = helper.make_function(
        "mine", "Double", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    path = saved(tmp_path / "f.onnx", [("Double", ["x"], ["y"], {"domain": "mine"})], mine=1)
    proto = onnx.load(path)
    proto.functions.append(double)
    onnx.save(proto, path)
    torch.testing.assert_close(from_onnx(path)(torch.ones(2, 3)), 2 * torch.ones(2, 3))


@pytest.mark.parametrize("opset", [9, 12])
def test_softmax_of_old_versions_is_over_all_that_follows(opset, tmp_path):
    path = saved(tmp_path / "s.onnx", [("Softmax", ["x"], ["y"], {"axis": 1})], [("x", 1, [None, 2, 3])], opset=opset)
    x = torch.randn(4, 2, 3)
    torch.testing.assert_close(from_onnx(path)(x), torch.softmax(x.flatten(1), 1).view_as(x))


def test_outputs_are_held_against_onnxruntime(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="outputs are compared where onnxruntime is installed")
    path = saved(tmp_path / "r.onnx", [("Relu", ["x"], ["y"], {})])
    monkeypatch.setitem(TABLE, ("", "Relu"), lambda node, x: torch.relu(x) * 1.01)
    with pytest.raises(ModelProblem, match=r"differs by 1.0e-02, 1.0e-02 of the largest, from what it is in onnxruntime"):
        from_onnx(path)(torch.ones(2, 3))
    from_onnx(path, check=False)(torch.ones(2, 3))


def test_a_small_sigmoid_may_differ_by_the_rounding_of_onnxruntime(tmp_path, monkeypatch):
    runtime = pytest.importorskip("onnxruntime", reason="outputs are compared where onnxruntime is installed")
    path = saved(tmp_path / "s.onnx", [("Sigmoid", ["x"], ["y"], {})])
    x = torch.linspace(-20, -12, 600, dtype=torch.float32).view(-1, 3)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    theirs, exact = session.run(None, {"x": x.numpy()})[0], torch.sigmoid(x.double())
    assert (torch.from_numpy(theirs) - exact).abs().max() < 4.8e-7
    torch.testing.assert_close(from_onnx(path)(x).double(), exact, rtol=1e-6, atol=0)
    monkeypatch.setitem(TABLE, ("", "Sigmoid"), lambda node, x: torch.sigmoid(x + 0.2))
    with pytest.raises(ModelProblem, match="from what it is in onnxruntime"):
        from_onnx(path)(x.flip(0))


def test_outputs_are_held_against_the_file_as_it_is_written(tmp_path, monkeypatch):
    path = saved(tmp_path / "s.onnx", [("Sigmoid", ["x"], ["a"], {}), ("Mul", ["a", "x"], ["y"], {})])
    monkeypatch.setitem(TABLE, (OURS, "silu"), lambda node, x: torch.nn.functional.silu(x) * 1.01)
    with pytest.raises(ModelProblem, match="from what it is with nothing put back"):
        from_onnx(path)(torch.ones(2, 3))
    from_onnx(path, check=False)(torch.ones(2, 3))


def test_names_of_modules_that_torch_has_itself(tmp_path):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleDict({"train ": nn.Linear(3, 4), "weights": nn.ReLU(), "a": nn.Linear(4, 2)})

        def forward(self, x):
            for part in self.parts.values():
                x = part(x)
            return x

    torch.set_default_dtype(torch.float32)
    model, x = Odd().eval(), torch.randn(2, 3)
    export(model, x, tmp_path / "odd.onnx", 17, False)
    proto = onnx.load(tmp_path / "odd.onnx")
    for place, node in enumerate(proto.graph.node):
        node.name = ("/forward/Gemm", "/train/Relu", "/../x y/Gemm")[place]
    onnx.save(proto, tmp_path / "odd.onnx")
    read = from_onnx(tmp_path / "odd.onnx")
    torch.testing.assert_close(read(x), model(x))
    assert {"forward_", "train_"} <= {name for name, _ in read.named_modules()}


# ---- scikit-learn ----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("classes", [2, 3])
def test_perceptrons_of_scikit_learn(classes, tmp_path):
    skl2onnx = pytest.importorskip("skl2onnx", reason="converts models of scikit-learn")
    from sklearn.neural_network import MLPClassifier

    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    fitted = MLPClassifier((8, 6), max_iter=50, random_state=0).fit(x, rng.integers(0, classes, 60))
    proto = skl2onnx.to_onnx(fitted, x[:1], target_opset=17)
    (tmp_path / "mlp.onnx").write_bytes(proto.SerializeToString())
    read = from_onnx(tmp_path / "mlp.onnx")
    found = read(torch.from_numpy(x[:5])).numpy()
    np.testing.assert_allclose(found, fitted.predict_proba(x[:5]), atol=1e-6)
    e = CAFE(read).explain(torch.from_numpy(x[:5]), target=1)
    assert e.completeness_error.abs().max() < 1e-5


# ---- the command line ----------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """Commands in a folder with a network as an ONNX file."""
    write_all(tmp_path)
    torch.set_default_dtype(torch.float32)
    export(network(), torch.randn(2, 3), tmp_path / "net.onnx", 17, False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def command(*words, code=0):
        found = run(app, list(map(str, words)))
        out, error = capsys.readouterr()
        assert found == code, error
        return error if code else json.loads(out) if out.startswith("{") else out

    return command


def test_explain(here):
    expected = CAFE(network()).explain(pd.read_csv("people.csv"))
    found = here("explain", "net.onnx", "people.csv", "--json")
    assert [row["conflict"] for row in found["rows"]] == pytest.approx(expected.conflict.tolist(), rel=1e-5)
    assert "supported" in here("supported", "net.onnx", "people.csv")


def test_batch(here):
    here("batch", "people.csv", "scores", "--model", "net.onnx", "--workers", "0")
    found = pd.concat([pd.read_parquet(one) for one in sorted(Path("scores").rglob("*.parquet"))])
    expected = CAFE(network()).explain(pd.read_csv("people.csv"))
    np.testing.assert_allclose(found["conflict"], expected.conflict, rtol=1e-5)


def test_serve(here, tmp_path):
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    from serving.test_serve import ROW, ask, server

    with server(tmp_path, "net.onnx") as (port, _):
        status, told = ask(port, "POST", "/v1/explain", {"rows": [ROW]})
    expected = CAFE(network()).explain(torch.tensor([ROW]))
    assert status == 200
    found = [feature["positive"] for feature in told["results"][0]["features"]]
    assert found == pytest.approx(expected.positive[0].tolist(), rel=1e-5)


def test_errors_are_one_line(here, tmp_path):
    saved(tmp_path / "odd.onnx", [("Det", ["x"], ["y"], {})])
    told = here("explain", "odd.onnx", "people.csv", code=4)
    assert told.startswith("cafexai: odd.onnx: operators that are not known: Det (opset 17)")
    assert told.count("\n") == 1


def test_several_arrays_by_the_names_of_the_inputs(here, tmp_path):
    nodes = [
        ("Mul", ["a", "two"], ["c"], {}),
        ("Add", ["c", "b"], ["d"], {}),
        ("ReduceSum", ["d", "one"], ["y"], {"keepdims": 0}),
    ]
    inputs = [("b", 1, [None, 3]), ("a", 1, [None, 3])]
    saved(tmp_path / "two.onnx", nodes, inputs, constants={"two": np.array(2, np.float32), "one": np.array([1])})
    np.savez(tmp_path / "two.npz", a=np.ones((2, 3), np.float32), b=np.zeros((2, 3), np.float32), other=np.ones((2, 3)))
    found = here("explain", "two.onnx", "two.npz", "--json")
    assert [row["output"] for row in found["rows"]] == [6, 6]
