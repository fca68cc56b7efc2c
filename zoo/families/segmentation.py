"""segmentation_models_pytorch: every decoder on a small encoder."""

from __future__ import annotations

from collections.abc import Iterator

import segmentation_models_pytorch as segmentation
from specimen import Specimen, pictures

NAMES = "Unet UnetPlusPlus MAnet Linknet FPN PSPNet DeepLabV3 DeepLabV3Plus PAN UPerNet Segformer ".split()


def names() -> Iterator[str]:
    for name in NAMES:
        yield f"segmentation_models_pytorch/{name}"


def build(name: str) -> Specimen:
    name = name.split("/")[1]
    model = getattr(segmentation, name)("resnet18", encoder_weights=None, classes=2)
    return Specimen(model, {0: pictures(3, 128 if name == "PAN" else 64)})
