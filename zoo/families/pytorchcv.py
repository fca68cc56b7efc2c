"""pytorchcv: one small network of many families."""

from __future__ import annotations

from collections.abc import Iterator

from pytorchcv.model_provider import get_model
from specimen import Specimen, pictures

NAMES = """alexnet zfnet vgg11 resnet10 preresnet10 resnext14_16x4d seresnet10 sepreresnet10 senet16 densenet121
    condensenet74_c4_g4 squeezenet_v1_1 squeezeresnet_v1_1 shufflenet_g1_wd4 shufflenetv2_wd2 mobilenet_wd4 mobilenetv2_wd4
    mobilenetv3_small_w7d20 igcv3_wd4 mnasnet_small darknet_tiny efficientnet_b0 fbnet_cb ghostnet hardnet39ds menet108_8x1_g3
    nin_cifar10 resnet20_cifar10 densenet40_k12_cifar10 ror3_56_cifar10
    sepreresnet20_cifar10 diaresnet20_cifar10 bam_resnet18 cbam_resnet18 sknet""".split()


def names() -> Iterator[str]:
    for name in NAMES:
        yield f"pytorchcv/{name}"


def build(name: str) -> Specimen:
    model = get_model(name.split("/")[1], pretrained=False)
    size = 32 if "cifar" in name else 224 if "alexnet" in name or "zfnet" in name or "vgg" in name else 96
    size = getattr(model, "in_size", (size, size))[0] if "cifar" not in name and size == 96 and _fixed(model) else size
    return Specimen(model.eval(), {0: pictures(3, size)})


def _fixed(model: object) -> bool:
    """Whether the last pooling has the size of the usual pictures."""
    pool = getattr(getattr(model, "features", None), "final_pool", None)
    return isinstance(getattr(pool, "kernel_size", None), int)
