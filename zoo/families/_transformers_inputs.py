"""Rows for a model of transformers, from what its forward asks for."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from specimen import ROWS, codes
from torch import Tensor

LENGTH = 16


def inputs_of(model: Any) -> Iterator[tuple[dict[str, Tensor], dict[str, Any]]]:
    """What to explain and further arguments, the likeliest first."""
    asked = inspect.signature(model.forward).parameters
    config = model.config
    more: dict[str, Any] = {}
    if "decoder_input_ids" in asked:
        more["decoder_input_ids"] = codes(_words(config), 5)
    if "bbox" in asked:
        more["bbox"] = torch.randint(0, 20, (ROWS, LENGTH, 4)).sort(-1).values
    main = getattr(model, "main_input_name", "input_ids")
    for name in dict.fromkeys([main, "input_ids", "pixel_values", "input_values", "input_features", *asked]):
        if name in asked and (values := _values(name, model)) is not None:
            for value in values:
                extra = {} if name == "decoder_input_ids" else more
                yield {name: value}, extra
                if extra:
                    yield {name: value}, {}


def _words(config: Any) -> int:
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return min(int(getattr(text, "vocab_size", None) or getattr(config, "vocab_size", None) or 99), 99)


def _values(name: str, model: Any) -> list[Tensor] | None:
    config = model.config
    if name in ("input_ids", "decoder_input_ids"):
        ids = codes(_words(config), LENGTH)
        eos = getattr(config, "eos_token_id", None)
        if isinstance(eos, int) and 0 <= eos < _words(config):
            ids[ids == eos] = 5
            ids[:, -1] = eos
        return [ids]
    if name in ("pixel_values", "pixel_values_videos"):
        vision = getattr(config, "vision_config", None) or config
        channels = getattr(vision, "num_channels", 3)
        size = getattr(vision, "image_size", None) or 32
        height, width = (size, size) if isinstance(size, int) else tuple(size)[:2]
        frames = getattr(vision, "num_frames", None)
        shapes = [(channels, height, width), (channels, 64, 64)]
        if isinstance(frames, int):
            shapes.insert(0, (frames, channels, height, width))
        return [torch.randn(ROWS, *shape) for shape in shapes]
    if name == "input_values":
        spectrum = (getattr(config, "max_length", 64), getattr(config, "num_mel_bins", 16))
        return [torch.randn(ROWS, *shape) for shape in [(1600,), (1, 1600), spectrum]]
    if name == "input_features":
        bins = getattr(config, "num_mel_bins", None) or getattr(config, "feature_size", None) or 80
        return [torch.randn(ROWS, *shape) for shape in [(32, bins), (bins, 32), (bins, 64)]]
    if name == "past_values":
        length = getattr(config, "context_length", 16)
        channels = getattr(config, "num_input_channels", getattr(config, "input_size", 1))
        return [torch.randn(ROWS, length, channels), torch.randn(ROWS, length)]
    return None
