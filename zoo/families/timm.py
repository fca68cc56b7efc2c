"""timm: a small model of every family, with few blocks and at small pictures where it can be told so."""

from __future__ import annotations

from collections.abc import Iterator

import timm
import torch
from specimen import ROWS, Specimen

# The smallest of a family, where its name does not say so.
CHOSEN = {
    "dla": "dla46_c", "dpn": "dpn68", "fasternet": "fasternet_t0", "levit": "levit_128s",
    "mobilenetv3": "mobilenetv3_small_050",
    "regnet": "regnetx_002", "res2net": "res2net50_48w_2s", "resnest": "resnest14d", "senet": "legacy_seresnet18",
    "tresnet": "tresnet_m", "mambaout": "test_mambaout", "ghostnet": "ghostnet_050", "repghost": "repghostnet_050",
}  # fmt: skip
WORDS = "test atto femto pico nano xxs tiny xs mini small _s 18 b0 050 m0 base".split()
SIZES = (64, 128, None)  # None: what it was made for
FEWER = ({"depth": 2}, {"depths": (1, 1, 1, 1)}, {})


def names() -> Iterator[str]:
    for module in timm.list_modules():
        yield f"timm/{module}"


def build(name: str) -> Specimen:
    module = name.split("/")[1]
    if module in ("deepseek_vit", "mobilenetv5"):
        raise ValueError("its smallest model is too large")
    model = CHOSEN.get(module) or min(timm.list_models(module=module), key=_place)
    failed: Exception | None = None
    for size in SIZES:
        for fewer in FEWER:
            for words in ({"img_size": size}, {}):
                try:
                    return _specimen(model, size, {**words, **fewer})
                except Exception as error:
                    failed = error
    raise failed or LookupError(model)


def _place(model: str) -> tuple[int, int, str]:
    """Small models first, as far as their names tell."""
    return (min((number for number, word in enumerate(WORDS) if word in model), default=len(WORDS)), len(model), model)


def _specimen(model: str, size: int | None, words: dict[str, object]) -> Specimen:
    channels, _, usual = timm.get_pretrained_cfg(model).input_size
    words = {key: word for key, word in words.items() if word is not None}
    network = timm.create_model(model, pretrained=False, num_classes=10, **words).eval()
    x = torch.randn(ROWS, channels, size or usual, size or usual)
    with torch.no_grad():
        network(x)
    return Specimen(network, {0: x})
