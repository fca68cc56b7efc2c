"""The same rows through onnxruntime, where it is installed."""

from __future__ import annotations

import importlib.util
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ModelProblem

NEAR = 1e-4  # of the largest output
ROWS = 4  # that are compared
_checked: weakref.WeakSet[Any] = weakref.WeakSet()  # models whose first rows were compared


def held_against_runtime(model: Any, path: Path, given: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    """Refuse a model whose outputs for the first rows are not those of onnxruntime, where that is installed."""
    if model in _checked:
        return
    with torch._C.DisableTorchFunction(), torch.no_grad():
        rows, few = len(next(iter(given.values()))), model.rows or ROWS
        if rows > few and all(one.ndim and len(one) == rows for one in (*given.values(), *found.values())):
            given, found = ({name: one[:few] for name, one in parts.items()} for parts in (given, found))
        gap = _difference(path, given, found)
    if gap is not None and not gap <= NEAR:
        raise ModelProblem(
            f"{path}: its outputs differ from those of onnxruntime by {gap:.1e} of the largest. This is a fault of the "
            "importer: please report it; from_onnx(..., check=False) explains the model all the same."
        )
    _checked.add(model)


def _session(path: Path) -> Any:
    """A session of onnxruntime, or None where there is none or it does not take the model."""
    if importlib.util.find_spec("onnxruntime") is None or not path.is_file():
        return None
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception:  # it knows fewer operators, or older versions
        return None


_KINDS = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16, "tensor(int64)": np.int64,
    "tensor(int32)": np.int32, "tensor(bool)": np.bool_, "tensor(uint8)": np.uint8, "tensor(int8)": np.int8,
}  # fmt: skip


def _difference(path: Path, given: dict[str, Tensor], found: dict[str, Tensor]) -> float | None:
    """The largest difference of the outputs, relative to the largest of them; None where onnxruntime cannot tell."""
    session = _session(path)
    if session is None:
        return None
    kinds = {one.name: _KINDS.get(one.type) for one in session.get_inputs()}
    if any(kinds.get(name) is None for name in given):
        return None
    feed = {name: value.detach().cpu().numpy().astype(kinds[name]) for name, value in given.items()}
    try:
        wanted = session.run(list(found), feed)
    except Exception:  # rows that it does not take: the model says so itself
        return None
    worst = 0.0
    for (name, ours), theirs in zip(found.items(), wanted, strict=True):
        if not isinstance(theirs, np.ndarray):
            continue
        mine, other = ours.detach().cpu().double(), torch.from_numpy(np.asarray(theirs, dtype=np.float64))
        if mine.shape != other.shape:
            raise ModelProblem(
                f"{path}: output {name!r} has the shape {tuple(mine.shape)} here and {tuple(other.shape)} in onnxruntime. "
                "This is a fault of the importer: please report it; check=False explains the model all the same."
            )
        size = other.abs()[other.isfinite()].max().item() if other.isfinite().any() else 0.0
        gap = (mine - other).abs()[other.isfinite()].max().item() if other.isfinite().any() else 0.0
        worst = max(worst, gap / max(size, 1e-6))
    return worst
