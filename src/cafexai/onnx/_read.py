"""From a file to a graph, without running anything that is in it."""

from __future__ import annotations

import ast
import contextlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._extras import needs
from ..errors import ModelProblem
from ._graph import Declared, Graph, Node

LARGEST = 2**31  # bytes; no protobuf message is larger
DTYPES = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64, 9: torch.bool,
    10: torch.float16, 11: torch.float64, 16: torch.bfloat16,
}  # fmt: skip
_SCOPES = "pkg.torch.onnx.name_scopes"  # written by torch.onnx.export(..., dynamo=True): ['', 'body', 'body.0', 'relu']
_CLASSES = "pkg.torch.onnx.class_hierarchy"
_HOSTS = ("", "ai.onnx")


def read(path: Path) -> Graph:
    """The graph of an ONNX file."""
    onnx = needs("onnx", "onnx")
    proto = _parse(onnx, path)
    if proto.functions:
        proto = needs("onnx.inliner", "onnx").inline_local_functions(proto)
    graph = proto.graph
    if graph.sparse_initializer:
        raise ModelProblem(f"{path}: it has sparse constants, which are not read. Export the model with dense ones.")
    folder = path.resolve().parent
    constants = {one.name: _tensor(onnx, one, folder, path) for one in graph.initializer}
    versions = {_domain(one.domain): one.version for one in proto.opset_import}
    nodes = [_node(onnx, one, versions, folder, path) for one in graph.node]
    _in_order(nodes, {*constants, *(one.name for one in graph.input)}, [one.name for one in graph.output], path)
    return Graph(
        [one.name for one in graph.input if one.name not in constants],
        [one.name for one in graph.output],
        nodes,
        constants,
        _read_declared(onnx, proto),
    )


def _parse(onnx: Any, path: Path) -> Any:
    if not path.is_file():
        raise ModelProblem(f"{path}: there is no such file.")
    size = path.stat().st_size
    if size > LARGEST:
        raise ModelProblem(
            f"{path}: it has {size / 1e9:.1f} GB; ONNX files have 2 GB at most. Export its weights into a file of their own: "
            "torch.onnx.export(..., external_data=True)."
        )
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(path.read_bytes())
    except Exception as error:  # protobuf has its own kinds
        raise ModelProblem(f"{path}: it cannot be read: it is no ONNX model, or not complete ({error}).") from error
    if not proto.ir_version or not proto.graph.output:
        raise ModelProblem(f"{path}: it cannot be read: it is no ONNX model, or not complete (it has no graph with outputs).")
    return proto


def _domain(name: str) -> str:
    return "" if name in _HOSTS else name


def _node(onnx: Any, one: Any, versions: dict[str, int], folder: Path, path: Path) -> Node:
    domain = _domain(one.domain)
    told = {prop.key: prop.value for prop in one.metadata_props} if hasattr(one, "metadata_props") else {}
    scopes, classes = _words(told.get(_SCOPES, "")), _words(told.get(_CLASSES, ""))
    return Node(
        one.op_type,
        list(one.input),
        list(one.output),
        {attribute.name: _attribute(onnx, attribute, versions, folder, path) for attribute in one.attribute},
        one.name,
        scopes[-2] if len(scopes) > 1 else scope_of(one.name),
        versions.get(domain, 1),
        domain,
        classes[-1] if classes else "",
    )


def _words(listed: str) -> list[str]:
    """The words of a Python list in metadata; none where it is something else."""
    try:
        found = ast.literal_eval(listed) if listed and len(listed) < 20_000 else []
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(word) for word in found] if isinstance(found, (list, tuple)) else []


def scope_of(name: str) -> str:
    """The path of a module in the name of a node, as torch writes it: /body/body.0/Relu -> body.0."""
    parts: list[str] = []
    before = ""
    for part in name.split("/")[1:-1]:
        parts.append(part[len(before) + 1 :] if before and part.startswith(before + ".") else part)
        before = part
    return ".".join(filter(None, parts))


def _attribute(onnx: Any, attribute: Any, versions: dict[str, int], folder: Path, path: Path) -> Any:
    """Its value: numbers, words, lists of these, constants, graphs."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return _tensor(onnx, value, folder, path)
    if isinstance(value, onnx.GraphProto):
        constants = {one.name: _tensor(onnx, one, folder, path) for one in value.initializer}
        nodes = [_node(onnx, one, versions, folder, path) for one in value.node]
        return Graph([one.name for one in value.input], [one.name for one in value.output], nodes, constants)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (list, tuple)):
        return [part.decode(errors="replace") if isinstance(part, bytes) else part for part in value]
    return value


def _tensor(onnx: Any, proto: Any, folder: Path, path: Path) -> Tensor:
    """A constant of the file, or of a file beside it."""
    if proto.data_type not in DTYPES:
        kind = onnx.TensorProto.DataType.Name(proto.data_type) if proto.data_type else "nothing"
        raise ModelProblem(
            f"{path}: the constant {proto.name!r} holds {kind}, which has no counterpart here. Explain the model in floating "
            "point that it was made from."
        )
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        _fetch(onnx, proto, folder, path)
    array = onnx.numpy_helper.to_array(proto)
    if proto.data_type == 16:
        return torch.from_numpy(array.view("int16").copy()).view(torch.bfloat16)
    if len(proto.raw_data) > 2**16:
        proto.ClearField("raw_data")  # read; what is left serves to infer shapes
        proto.ClearField("data_location")
    return torch.from_numpy(array.copy())


def _fetch(onnx: Any, proto: Any, folder: Path, path: Path) -> None:
    """Put the bytes of a file beside the model into a constant; no other file is touched."""
    told = {entry.key: entry.value for entry in proto.external_data}
    location = told.get("location", "")
    place = (folder / location).resolve()
    if not location or Path(location).is_absolute() or not place.is_relative_to(folder):
        raise ModelProblem(
            f"{path}: the constant {proto.name!r} points to {location!r}, outside of the folder of the model. Only files in "
            "that folder are read."
        )
    if not place.is_file():
        raise ModelProblem(f"{path}: its weights are in {location}, which is not beside it. Copy both files together.")
    try:
        offset = int(told.get("offset") or 0)
        length = int(told.get("length") or place.stat().st_size - offset)
    except ValueError:
        raise ModelProblem(f"{path}: offset or length of the constant {proto.name!r} is no number.") from None
    wanted = DTYPES[proto.data_type].itemsize
    for size in proto.dims:
        wanted *= max(size, 0)
    if offset < 0 or length != wanted or offset + length > place.stat().st_size:
        raise ModelProblem(
            f"{path}: the constant {proto.name!r} should be {wanted} bytes of {location}, from byte {offset} on; the file has "
            f"{place.stat().st_size}, and says {length}. Is it complete?"
        )
    with place.open("rb") as file:
        file.seek(offset)
        proto.raw_data = file.read(length)
    proto.data_location = onnx.TensorProto.DEFAULT
    del proto.external_data[:]


def _in_order(nodes: list[Node], known: set[str], outputs: list[str], path: Path) -> None:
    """Refuse a graph in which something is used before it is made."""
    for node in nodes:
        missing = next((name for name in node.inputs if name and name not in known), None)
        if missing is not None:
            raise ModelProblem(f"{path}: it is broken: node {node.name or node.op!r} takes {missing!r}, which nothing gives.")
        known.update(node.outputs)
    missing = next((name for name in outputs if name not in known), None)
    if missing is not None:
        raise ModelProblem(f"{path}: it is broken: nothing gives its output {missing!r}.")


def _read_declared(onnx: Any, proto: Any) -> dict[str, Declared]:
    """What the file says of values, and what follows from that."""
    with contextlib.suppress(Exception):  # of a large or an odd model, what it says itself must do
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    found = {}
    for one in (*proto.graph.input, *proto.graph.value_info, *proto.graph.output):
        if not one.type.HasField("tensor_type"):
            continue
        kind = one.type.tensor_type
        sizes = tuple(dim.dim_value if dim.dim_value > 0 else None for dim in kind.shape.dim)  # Paddle writes -1: not fixed
        found[one.name] = Declared(DTYPES.get(kind.elem_type), sizes if kind.HasField("shape") else None)
    return found
