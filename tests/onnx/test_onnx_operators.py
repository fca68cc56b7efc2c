"""Every operator against the plain evaluation of ONNX itself, which is written in numpy from its definition."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

pytest.importorskip("onnx", reason="ONNX files need the package onnx: pip install 'cafexai[onnx]'")
from onnx.reference import ReferenceEvaluator

import onnx
from cafexai import CAFE
from cafexai.onnx import from_onnx
from cafexai.onnx._graph import OURS
from cafexai.onnx._operators import TABLE
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(0)


def x(*shape):
    return rng.normal(size=shape).astype(np.float32)


def positive(*shape):
    return (np.abs(x(*shape)) + 0.1).astype(np.float32)


def ints(*values):
    return np.array(values, dtype=np.int64)


def yes(*shape):
    return x(*shape) > 0


CASES = []  # operator, what varies (arrays that are inputs), what is constant, attributes, opset, domain


def case(op, inputs, constants=(), opset=17, outputs=1, domain="", **attributes):
    name = f"{domain}{op}-{opset}-{len(CASES)}"
    CASES.append(pytest.param(op, inputs, constants, attributes, opset, outputs, domain, id=name))


for _op in """Abs Asinh Atan Ceil Cos Cosh Erf Exp Floor Identity Neg Relu Round Sigmoid Sign Sin Sinh Softplus Softsign Tan
              Tanh""".split():
    case(_op, [x(3, 4)])
for _op in "Log Sqrt Reciprocal".split():
    case(_op, [positive(3, 4)])
for _op in "Acos Asin Atanh".split():
    case(_op, [np.tanh(x(3, 4)) * 0.9])
case("Acosh", [positive(3, 4) + 1])
for _op, _attributes in [
    ("LeakyRelu", {"alpha": 0.2}), ("LeakyRelu", {}), ("Elu", {"alpha": 0.7}), ("Celu", {"alpha": 0.7}), ("Selu", {}),
    ("Selu", {"alpha": 1.5, "gamma": 2.0}), ("ThresholdedRelu", {"alpha": 0.3}), ("HardSigmoid", {}),
    ("HardSigmoid", {"alpha": 1 / 6}), ("HardSwish", {}), ("Shrink", {"lambd": 0.5}), ("Shrink", {"lambd": 0.5, "bias": 0.5}),
    ("Shrink", {"lambd": 0.5, "bias": 0.2}),
]:  # fmt: skip
    case(_op, [2 * x(3, 4)], **_attributes)
case("Mish", [x(3, 4)], opset=18)
case("Gelu", [x(3, 4)], opset=20)
case("Gelu", [x(3, 4)], opset=20, approximate="tanh")
case("Dropout", [x(3, 4)])
case("PRelu", [x(2, 3, 4)], [positive(3, 1)])
case("PRelu", [x(2, 3)], [positive(3)])
case("PRelu", [x(2, 3, 4)], [positive(4)])
case("PRelu", [x(2, 3)], [positive(1)])
for _low, _high in [(0, 6), (-1, 1), (0, None), (None, 0.5)]:
    case("Clip", [4 * x(3, 4)], [None if b is None else np.array(b, np.float32) for b in (_low, _high)])
case("Clip", [4 * x(3, 4)], opset=6, min=-1.0, max=2.0)
case("IsNaN", [np.array([1, np.nan], np.float32)])
case("IsInf", [np.array([1, np.inf, -np.inf], np.float32)], detect_negative=0)
case("Not", [yes(3, 4)])
for _op in "Add Sub Mul Div Max Min Mean Sum".split():
    case(_op, [x(3, 4), positive(4)])
case("Div", [ints(7, -7, 5)], [ints(2, 2, -2)])
case("Pow", [positive(3, 4)], [np.array(1.7, np.float32)])
case("Pow", [x(3, 4)], [np.array(3, np.float32)])
case("Pow", [positive(3, 4)], [x(4)])
case("Mod", [ints(7, -7, 5)], [ints(3, 3, -3)])
case("Mod", [x(5)], [positive(5)], fmod=1)
for _op in "Greater GreaterOrEqual Less LessOrEqual Equal".split():
    case(_op, [x(3, 4), x(4)])
for _op in "And Or Xor".split():
    case(_op, [yes(3, 4), yes(4)])
case("Where", [yes(3, 4), x(3, 4), x(4)])
case("Cast", [x(3, 4)], to=TensorProto.INT64)
case("Cast", [x(3, 4)], to=TensorProto.DOUBLE)
case("CastLike", [x(3, 4)], [ints(1)])
for _attributes in ({}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}):
    case("CumSum", [x(3, 4)], [np.array(1)], **_attributes)
case("Shape", [x(3, 4)])
case("Shape", [x(3, 4, 5)], start=1, end=-1)
case("Size", [x(3, 4)])
case("ConstantOfShape", [], [ints(2, 3)], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [2.5]))
case("ConstantOfShape", [ints(2, 3)])
case("Reshape", [x(3, 4)], [ints(0, 2, -1)])
case("Reshape", [x(0, 4)], [ints(0, 2)], allowzero=1)
for _axis in (0, 1, 2, -1):
    case("Flatten", [x(2, 3, 4)], axis=_axis)
case("Transpose", [x(2, 3, 4)])
case("Transpose", [x(2, 3, 4)], perm=[1, 2, 0])
case("Squeeze", [x(2, 1, 3, 1)], [ints(1, -1)])
case("Squeeze", [x(2, 1, 3, 1)])
case("Squeeze", [x(2, 1, 3)], opset=11, axes=[1])
case("Unsqueeze", [x(2, 3)], [ints(0, -1)])
case("Unsqueeze", [x(2, 3)], opset=11, axes=[1])
case("Expand", [x(2, 1, 3)], [ints(4, 1, 5, 1)])
case("Tile", [x(2, 3)], [ints(2, 3)])
case("Concat", [x(2, 3), x(2, 1)], axis=-1)
case("Split", [x(6, 5)], [ints(2, 3)], axis=1, outputs=2)
case("Split", [x(6, 5)], opset=11, axis=1, outputs=2, split=[1, 4])
case("Split", [x(6, 5)], opset=18, axis=1, outputs=2, num_outputs=2)
case("Slice", [x(6, 5)], [ints(1, -4), ints(5, 10**9), ints(0, 1), ints(2, 1)])
case("Slice", [x(6, 5)], [ints(-1, 3), ints(-(10**9), 0), ints(0, 1), ints(-2, -1)])
case("Slice", [x(6, 5)], opset=9, starts=[1], ends=[3], axes=[1])
for _mode in "constant reflect edge".split():
    case("Pad", [x(1, 2, 4, 5)], [ints(0, 0, 1, 2, 0, 0, 3, 1)], mode=_mode)
case("Pad", [x(3, 4)], [ints(1, 0, 0, 2), np.array(1.5, np.float32)])
case("Pad", [x(3, 4)], [ints(1, 2), None, ints(1)], opset=18, mode="edge")
case("Pad", [x(3, 4)], [ints(1, 2), None, ints(1)], opset=19, mode="wrap")
case("Range", [], [np.array(1), np.array(9), np.array(2)])
case("Trilu", [x(2, 4, 4)])
case("Trilu", [x(2, 4, 4)], [np.array(-1)], upper=0)
case("EyeLike", [x(3, 4)], k=1)
for _mode in ("DCR", "CRD"):
    case("DepthToSpace", [x(2, 8, 3, 3)], blocksize=2, mode=_mode)
case("SpaceToDepth", [x(2, 3, 4, 6)], blocksize=2)
case("Gather", [x(5, 3)], [ints(4, 0, -1)])
case("Gather", [x(2, 5, 3)], [np.array([[1, 0], [2, 2]])], axis=1)
case("Gather", [x(2, 5, 3)], [np.array(2)], axis=2)
case("GatherElements", [x(3, 4)], [np.array([[0, 2], [1, 1], [-1, 3]])], axis=1)
case("GatherND", [x(3, 4, 2)], [np.array([[0, 1], [2, 3]])])
case("GatherND", [x(2, 4, 3)], [np.array([[1], [2]])], batch_dims=1)
case("ScatterElements", [x(3, 4)], [np.array([[0, 2]]), x(1, 2)], axis=1)
case("ScatterElements", [x(3, 4)], [np.array([[0, 0]]), x(1, 2)], axis=1, reduction="add", opset=16)
case("ScatterND", [x(4, 3)], [np.array([[1], [3]]), x(2, 3)])
case("TopK", [x(3, 6)], [ints(2)], outputs=2, axis=1)
case("TopK", [x(3, 6)], [ints(2)], outputs=2, axis=1, largest=0)
for _op in ("ArgMax", "ArgMin"):
    case(_op, [x(3, 4)], axis=1, keepdims=0)
case("ArgMax", [np.ones((3, 4), np.float32)], axis=1, select_last_index=1)
case("NonZero", [yes(3, 4)])
case("OneHot", [ints(0, 2, -1)], [np.array(4), np.array([-1, 3], np.float32)])
case("OneHot", [ints(0, 2, 1)], [np.array(4), np.array([0, 1], np.float32)], axis=0)
for _op in "Mean Sum Max Min Prod L1 L2 LogSumExp SumSquare".split():
    case(f"Reduce{_op}", [x(2, 3, 4)], [ints(0, -1)], opset=18, keepdims=0)
    case(f"Reduce{_op}", [x(2, 3, 4)], opset=18)
    if _op != "Sum":
        case(f"Reduce{_op}", [x(2, 3, 4)], opset=13, axes=[1])
case("ReduceLogSum", [positive(2, 3)], [ints(1)], opset=18)
case("ReduceSum", [x(2, 3)], noop_with_empty_axes=1)
for _op in ("Softmax", "LogSoftmax"):
    case(_op, [x(2, 3, 4)], axis=1)
    case(_op, [x(2, 3, 4)])
case("LpNormalization", [x(3, 4)], axis=1, p=1)
case("LpNormalization", [x(3, 4)])
case("MatMul", [x(2, 3, 4)], [x(4, 5)])
case("MatMul", [x(2, 3, 4), x(2, 4, 2)])
case("MatMul", [x(4)], [x(4, 5)])
case("Gemm", [x(3, 4)], [x(4, 5), x(5)])
case("Gemm", [x(3, 4)], [x(5, 4), x(1, 5)], transB=1)
case("Gemm", [x(4, 3)], [x(5, 4), x(3, 5)], transA=1, transB=1, alpha=0.5, beta=2.0)
case("Gemm", [x(3, 4), x(4, 2)])
case("Einsum", [x(2, 3, 4), x(2, 4, 5)], equation="bij,bjk->bik")
case("Conv", [x(2, 4, 7, 8)], [x(6, 2, 3, 3), x(6)], group=2, strides=[2, 1], pads=[1, 0, 1, 0], dilations=[1, 2])
case("Conv", [x(2, 3, 7)], [x(4, 3, 3)], pads=[0, 2])
case("Conv", [x(1, 1, 5, 6)], [x(2, 1, 3, 2)], auto_pad="SAME_UPPER", strides=[2, 2])
case("Conv", [x(1, 1, 5, 6)], [x(2, 1, 2, 2)], auto_pad="SAME_LOWER")
case("Conv", [x(1, 1, 4, 4, 4)], [x(2, 1, 2, 2, 2)], auto_pad="VALID")
case("ConvTranspose", [x(2, 4, 3, 3)], [x(4, 2, 3, 3), x(2)], strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
case("ConvTranspose", [x(1, 1, 3, 3)], [x(1, 2, 3, 3)], pads=[0, 1, 1, 0])
case("ConvTranspose", [x(1, 1, 3, 3)], [x(1, 2, 3, 3)], strides=[2, 2], auto_pad="SAME_UPPER")
case("BatchNormalization", [x(2, 3, 4)], [x(3), x(3), x(3), positive(3)], epsilon=0.01)
case("InstanceNormalization", [x(2, 3, 4, 5)], [x(3), x(3)], epsilon=0.01)
case("LayerNormalization", [x(2, 3, 4)], [x(4), x(4)])
case("LayerNormalization", [x(2, 3, 4)], [x(3, 4)], axis=1, epsilon=0.1)
case("GroupNormalization", [x(2, 6, 4)], [x(6), x(6)], opset=21, num_groups=3)
case("RMSNormalization", [x(2, 3, 4)], [x(4)], opset=23, epsilon=0.1)
case("LRN", [x(2, 5, 3, 3)], size=3, alpha=0.1, beta=0.7, bias=2.0)
for _attributes in (
    {"kernel_shape": [2, 2], "strides": [2, 2]}, {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"},
):  # fmt: skip
    case("MaxPool", [x(2, 3, 6, 7)], **_attributes)
    case("AveragePool", [x(2, 3, 6, 7)], **_attributes)
case("MaxPool", [x(2, 3, 8)], kernel_shape=[3], dilations=[2])
case("AveragePool", [x(2, 3, 6, 7)], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
case("AveragePool", [x(2, 3, 6, 7)], kernel_shape=[3, 3], pads=[1, 0, 0, 1], count_include_pad=1, strides=[2, 2])
for _op in ("GlobalAveragePool", "GlobalMaxPool"):
    case(_op, [x(2, 3, 4, 5)])
    case(_op, [x(2, 3, 4)])
_none = np.zeros(0, np.float32)
case("Resize", [x(1, 2, 3, 4)], [_none, np.array([1, 1, 2, 2], np.float32)], mode="nearest", nearest_mode="floor",
     coordinate_transformation_mode="asymmetric")  # fmt: skip
case("Resize", [x(1, 2, 3, 4)], [_none, np.array([1, 1, 2, 2], np.float32)], mode="nearest")
case("Resize", [x(1, 2, 4, 4)], [_none, _none, ints(1, 2, 7, 9)], mode="linear")
case("Resize", [x(1, 2, 4, 4)], [_none, _none, ints(1, 2, 2, 9)], mode="linear", coordinate_transformation_mode="align_corners")
case("Resize", [x(1, 2, 4, 5)], [_none, _none, ints(1, 2, 8, 10)], mode="cubic", cubic_coeff_a=-0.75)
for _op, _gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
    for _direction, _count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        if _op == "GRU" and _direction != "forward":
            continue  # onnx's own evaluation has one direction only
        _weights = [x(_count, _gates * 3, 4), x(_count, _gates * 3, 3), x(_count, _gates * 6)]
        _more = {"linear_before_reset": 1} if _op == "GRU" else {}
        case(_op, [x(5, 2, 4)], _weights, outputs=2, hidden_size=3, direction=_direction, **_more)
case("LSTM", [x(5, 2, 4)], [x(1, 12, 4), x(1, 12, 3), None, None, x(1, 2, 3), x(1, 2, 3)], outputs=3, hidden_size=3)
case("RNN", [x(5, 2, 4)], [x(1, 3, 4), x(1, 3, 3)], outputs=1, hidden_size=3, activations=["Relu"])
case("Scaler", [x(3, 2)], domain="ai.onnx.ml", opset=3, offset=[1.0, 2.0], scale=[0.5, 3.0])
case(
    "LinearRegressor",
    [x(3, 2)],
    domain="ai.onnx.ml",
    opset=1,
    coefficients=[1.0, 2.0, -1.0, 0.5],
    intercepts=[0.1, 0.2],
    targets=2,
)
case("ArrayFeatureExtractor", [x(3, 4)], [ints(0, 2)], domain="ai.onnx.ml", opset=1)


BY_RUNTIME = {  # operators that the package onnx evaluates otherwise than it defines them, or not at all
    "LpNormalization": "p of the default",
    "LRN": "the sums of squares",
    "MaxPool": "paddings that differ by dimension",
    "GlobalMaxPool": "a single dimension of space",
    "RNN": "no activation but tanh",
}


def written(path, op, inputs, constants, attributes, opset, outputs, domain):
    """A file with one node, and what goes into it."""
    given = [(f"x{place}", array) for place, array in enumerate(inputs)]
    fixed = [(f"c{place}" if array is not None else "", array) for place, array in enumerate(constants)]
    names = [name for name, _ in (*given, *fixed)]
    node = helper.make_node(op, names, [f"y{place}" for place in range(outputs)], domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), [None] * a.ndim) for name, a in given],
        [helper.make_empty_tensor_value_info(name) for name in node.output],
        [numpy_helper.from_array(array, name) for name, array in fixed if name],
    )
    imports = [helper.make_opsetid("", 17 if domain else opset)] + ([helper.make_opsetid(domain, opset)] if domain else [])
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    onnx.save(model, path)
    return model, dict(given)


@pytest.mark.parametrize(("op", "inputs", "constants", "attributes", "opset", "outputs", "domain"), CASES)
def test_operator(op, inputs, constants, attributes, opset, outputs, domain, tmp_path):
    model, given = written(tmp_path / "one.onnx", op, inputs, constants, attributes, opset, outputs, domain)
    if op in BY_RUNTIME:
        runtime = pytest.importorskip("onnxruntime", reason=f"onnx evaluates {op} in another way: {BY_RUNTIME[op]}")
        wanted = runtime.InferenceSession(model.SerializeToString()).run(None, given)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = ReferenceEvaluator(model).run(None, given)
    read = from_onnx(tmp_path / "one.onnx", [f"y{place}" for place in range(outputs)], check=False)
    found = read(**{name: torch.from_numpy(array) for name, array in given.items()})
    found = list(found.values()) if isinstance(found, dict) else [found]
    for ours, theirs in zip(found, wanted, strict=False):
        theirs = torch.from_numpy(np.array(theirs))
        torch.testing.assert_close(ours.detach(), theirs, rtol=2e-5, atol=2e-5, equal_nan=True, check_dtype=False)
        assert ours.is_floating_point() == theirs.is_floating_point()


LEFT_OUT = {
    ("", "Constant"): "in every exported model",
    ("", "Upsample"): "an old name of Resize",
    ("", "Scatter"): "an old name of ScatterElements",
    ("", "Swish"): "of opset 24, below",
    ("com.microsoft", "Gelu"): "no operator of ONNX itself",
    ("ai.onnx.ml", "ZipMap"): "gives no tensor; below",
    ("ai.onnx.ml", "LinearClassifier"): "gives labels; in the test of scikit-learn",
}


def test_every_operator_has_a_case():
    have = {(one.values[6], one.values[0]) for one in CASES}
    assert {key for key in TABLE if key[0] != OURS} - have - set(LEFT_OUT) == set()


def test_scores_behind_an_operator_add_up(tmp_path):
    """Operators call ordinary functions of torch, so that values behind them have scores."""
    known = "Relu Sigmoid Gelu Clip MaxPool Conv LayerNormalization ReduceMax Slice Pad Gemm Resize".split()
    met = set()
    for one in CASES:
        op, inputs, *rest = one.values
        if op not in known or len(inputs) != 1 or inputs[0].dtype != np.float32:
            continue
        written(tmp_path / "one.onnx", op, inputs, *rest)
        read, rows = from_onnx(tmp_path / "one.onnx", "y0", check=False), torch.from_numpy(inputs[0])
        if read(rows).shape[:1] != rows.shape[:1]:
            continue
        e = CAFE(lambda v, read=read: read(v).flatten(1).sum(1)).explain(rows)
        assert e.completeness_error.abs().max() < 1e-4, op
        met.add(op)
    assert met == set(known)
