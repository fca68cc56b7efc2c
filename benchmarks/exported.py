"""Scores of exported models beside those of the model before: python benchmarks/exported.py [--dynamo] [--real] [MODEL ...].

Prints a table: the largest difference of positive, negative and combined scores and of the biases, relative to the largest, by
default and as published; and the same where nothing is put back from its parts.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from unittest import mock

import torch

import onnx

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from cafexai.onnx import from_onnx
from exported import MODELS, OPSETS, REAL, built, distances, export

HEAD = "| model | exporter | opset | default | published | put back | published, left apart | notes |"


def line(name: str, opset: int, dynamo: bool, folder: Path) -> str:
    """One export, read and compared."""
    model, x = built(name)
    path = folder / "model.onnx"
    first = [name, "dynamo" if dynamo else "TorchScript", str(opset)]
    try:
        export(model, x, path, opset, dynamo)
    except Exception as error:
        return f"| {' | '.join(first)} | torch does not export it: {type(error).__name__} | | | | |"
    written = next(one.version for one in onnx.load(path).opset_import if not one.domain)
    if written != opset:
        first[-1] += f" (written: {written})"
    read = from_onnx(path)
    found = distances(model, read, x)
    with mock.patch("cafexai.onnx.restore", return_value=None):
        apart = distances(model, from_onnx(path), x)
    cells = [f"{max(gap for word, gap in found.items() if word.startswith(way)):.0e}" for way in ("default", "published")]
    told = ", ".join(f"{count} x {what}" for what, count in read.put_back.items()) or "-"
    left = f"{max(gap for word, gap in apart.items() if word.startswith('published')):.0e}"
    return f"| {' | '.join([*first, *cells, told, left, str(len(read.explanation_notes))])} |"


def main(words: list[str]) -> None:
    """The table."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    chosen = [word for word in words if not word.startswith("--")]
    names = chosen or [*MODELS, *(REAL if "--real" in words else ())]
    print(HEAD, "| --- " * 8 + "|", sep="\n")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            for dynamo in (False, True) if "--dynamo" in words else (False,):
                for opset in OPSETS if name in MODELS else (18 if dynamo else 17,):
                    print(line(name, opset, dynamo, Path(folder)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
