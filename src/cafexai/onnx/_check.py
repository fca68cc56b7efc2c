"""The first rows once more: through the file as it is written, and through onnxruntime where it is installed."""

from __future__ import annotations

import importlib.util
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._torch import DisableTorchFunction
from ..errors import ModelProblem

NEAR = 1e-4  # of the largest output
SIGMOID = 4 * 2.0**-23  # onnxruntime rounds a sigmoid by up to 1.6e-7 at any size, even where it is 1e-11
ROWS = 4  # that are compared
Values = Mapping[str, Tensor]
_checked: weakref.WeakSet[Any] = weakref.WeakSet()  # models whose first rows were compared
_as_written: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # models -> the same without anything put back


def remember(model: Any, as_written: Any) -> None:
    """The model with nothing put back, for the first rows."""
    _as_written[model] = as_written


def compare_with_others(model: Any, path: Path, given: Values, found: Values) -> None:
    """Refuse a model whose outputs for the first rows are not those of the file as it is written, and of onnxruntime."""
    if model in _checked:
        return
    with DisableTorchFunction(), torch.no_grad():
        rows, few = len(next(iter(given.values()))), model.rows or ROWS
        if rows > few and all(one.ndim and len(one) == rows for one in (*given.values(), *found.values())):
            given, found = ({name: one[:few] for name, one in parts.items()} for parts in (given, found))
        plain = _as_written.pop(model, None)
        if plain is not None:
            _refuse(path, found, _run_as_written(plain, given), "with nothing put back from its parts")
        rounded = dict.fromkeys(model.sigmoids, SIGMOID)
        _refuse(path, found, _run_by_runtime(path, given, list(found)), "in onnxruntime", rounded)
    _checked.add(model)


def _refuse(
    path: Path, found: Values, wanted: Values | None, where: str, rounded: Mapping[str, float] = MappingProxyType({})
) -> None:
    """An error where outputs differ by more than they are rounded; nothing where there are none to compare with."""
    fault = "This is a fault of the importer: please report it; from_onnx(..., check=False) explains the model all the same."
    for name, other in (wanted or {}).items():
        ours, theirs = found[name].detach().cpu().double(), other.detach().cpu().double()
        if ours.shape != theirs.shape:
            raise ModelProblem(
                f"{path}: output {name!r} has the shape {tuple(ours.shape)} here and {tuple(theirs.shape)} {where}. {fault}"
            )
        finite = theirs.isfinite()
        size, gap = (part[finite].max().item() if bool(finite.any()) else 0.0 for part in (theirs.abs(), (ours - theirs).abs()))
        if not gap <= NEAR * max(size, 1e-6) + rounded.get(name, 0.0):
            raise ModelProblem(
                f"{path}: output {name!r} differs by {gap:.1e}, {gap / max(size, 1e-6):.1e} of the largest, from what it is "
                f"{where}. {fault}"
            )


def _run_as_written(plain: Any, given: Values) -> Values | None:
    try:
        outputs = plain(**given)
    except (RuntimeError, ValueError):  # a model that was moved to another device or kind of numbers since
        return None
    return outputs if isinstance(outputs, dict) else {plain.output_names[0]: outputs}


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


def _run_by_runtime(path: Path, given: Values, names: list[str]) -> Values | None:
    session = _session(path)
    if session is None:
        return None
    kinds = {one.name: _KINDS.get(one.type) for one in session.get_inputs()}
    if any(kinds.get(name) is None for name in given):
        return None
    try:
        outputs = session.run(names, {name: value.detach().cpu().numpy().astype(kinds[name]) for name, value in given.items()})
    except Exception:  # rows that it does not take: the model says so itself
        return None
    arrays = {name: one for name, one in zip(names, outputs, strict=True) if isinstance(one, np.ndarray)}
    return {name: torch.from_numpy(one.astype(np.float64)) for name, one in arrays.items()}
