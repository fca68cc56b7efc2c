"""Models of ONNX files as PyTorch modules that are explained like any other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import ModelProblem
from ._check import remember
from ._fold import fold
from ._graph import Graph
from ._module import OnnxModel, refuse_unknown
from ._read import read
from ._restore import restore

__all__ = ["OnnxModel", "from_onnx"]


def from_onnx(path: str | os.PathLike[str], outputs: str | Sequence[str] | None = None, *, check: bool = True) -> OnnxModel:
    """The model of an ONNX file as a PyTorch module, ready for ``CAFE(model)``.

    What exporters take apart (GELU, SiLU, layer norms ...) is put back, because scores depend on it. ``model.put_back`` counts
    it, and the notes of every explanation list what could not be put back. Modules have the names they had before the export,
    if the file has them.

    Args:
        path: The file.
        outputs: Names of the wanted outputs; None takes all that are numbers. Several come as a dictionary.
        check: Also run the first rows through the file as it is written, and through onnxruntime if it is installed.

    Returns:
        The module.

    Raises:
        ModelProblem: The file cannot be read, has an unknown operator, or an output differs.

    Example:
        >>> import torch
        >>> from cafexai import CAFE
        >>> from cafexai.onnx import from_onnx
        >>> net = torch.nn.Linear(2, 1).float()
        >>> _ = torch.onnx.export(net, (torch.ones(3, 2, dtype=torch.float32),), "net.onnx", dynamo=False)
        >>> CAFE(from_onnx("net.onnx")).explain(torch.ones(3, 2, dtype=torch.float32)).net.shape
        torch.Size([3, 2])
    """
    place = Path(path)
    graph = read(place)
    _choose(graph, outputs, place)
    fold(graph)
    graph.prune()
    refuse_unknown(graph, str(path))
    as_written = OnnxModel(graph).eval() if check else None
    restore(graph)
    model = OnnxModel(graph, place.resolve() if check else None).eval()
    if as_written is not None:
        remember(model, as_written)
    return model


def _choose(graph: Graph, outputs: str | Sequence[str] | None, path: Path) -> None:
    """Keep the outputs that are wanted: by default numbers, not labels."""
    wanted = [outputs] if isinstance(outputs, str) else outputs
    if wanted is None:
        known = {name: graph.declared[name].kind if name in graph.declared else None for name in graph.outputs}
        numbers = [name for name, kind in known.items() if kind is None or kind.is_floating_point]
        graph.outputs = numbers or graph.outputs
        return
    unknown = [name for name in wanted if name not in graph.outputs]
    if unknown:
        raise ModelProblem(f"{path}: it has no output {unknown[0]!r}. It has: {', '.join(graph.outputs)}.")
    graph.outputs = list(wanted)
