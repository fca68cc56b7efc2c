"""vit-pytorch: every model that has classes, by what its constructor asks for."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import torch
import vit_pytorch
from specimen import ROWS, Specimen
from torch import nn

SMALL: dict[str, Any] = {
    "image_size": 32, "patch_size": 8, "image_patch_size": 8, "freq_patch_size": 8, "num_classes": 5, "dim": 32, "depth": 2,
    "heads": 2, "mlp_dim": 64, "dim_head": 16, "frames": 4, "frame_patch_size": 2, "seq_len": 32, "spatial_depth": 1,
    "temporal_depth": 1, "cls_depth": 1, "max_tokens_per_depth": (12, 8), "num_residual_streams": 2, "ndim": 2,
    "input_shape": 32, "num_slots": 4, "channels": 3, "max_frames": 4,
}  # fmt: skip
SPECIAL: dict[str, dict[str, Any]] = {
    "cross_vit": {"sm_dim": 32, "lg_dim": 32, "sm_patch_size": 8, "lg_patch_size": 16, "lg_enc_depth": 1},
    "crossformer": {"dim": (64, 64, 64, 64), "depth": (1, 1, 1, 1), "global_window_size": (8, 4, 2, 1), "image": 224},
    "cvt": {"image": 64, "s3_depth": 2},
    "levit": {"image_size": 64, "image": 64, "mlp_mult": 2, "stages": 2},
    "look_vit": {"image": 64, "image_size": 64, "patch_size": 16, "highres_patch_size": 8, "heads": 2},
    "looped_vit": {"pre_loop_depth": 1, "num_looped_blocks": 1, "post_loop_depth": 1, "loop_depth": 2},
    "max_vit": {"depth": (1, 1), "window_size": 4, "image": 32},
    "max_vit_with_registers": {"depth": (1, 1), "window_size": 4, "image": 32},
    "mobile_vit": {"image": 64, "image_size": (64, 64), "dims": [32, 32, 32], "channels": [16] * 10},
    "nest": {"patch_size": 4, "num_hierarchies": 2, "block_repeats": (1, 1)},
    "pit": {"depth": (1, 1)},
    "regionvit": {"dim": (16, 32, 32, 32), "depth": (1, 1, 1, 1), "image": 224},
    "scalable_vit": {"depth": (1, 1), "heads": (2, 2), "reduction_factor": (4, 2), "window_size": (4, None), "image": 32},
    "sep_vit": {"depth": (1, 1), "heads": (2, 2), "image": 56},
    "t2t": {"depth": 2, "heads": 2, "mlp_dim": 64, "t2t_layers": ((3, 2), (3, 2))},
    "twins_svt": {
        f"s{i}_{word}": 16 if word == "emb_dim" else 2 for i in range(1, 5) for word in ("emb_dim", "local_patch_size")
    },
    "jet_vit": {"window_size": 3},
}


def names() -> Iterator[str]:
    for module in pkgutil.iter_modules(vit_pytorch.__path__):
        try:
            if _class(module.name) is not None:
                yield f"vit-pytorch/{module.name}"
        except ImportError:
            yield f"vit-pytorch/{module.name}"


def _class(name: str) -> type[nn.Module] | None:
    """The first model of a file that has classes."""
    module = importlib.import_module(f"vit_pytorch.{name}")
    for one in vars(module).values():
        if inspect.isclass(one) and issubclass(one, nn.Module) and one.__module__ == module.__name__:
            asked = inspect.signature(one.__init__).parameters
            if "num_classes" in asked and not {"transformer", "seq_pool"} & set(list(asked)[1:6]) and name != "efficient":
                return one
    return None


def build(name: str) -> Specimen:
    file = name.split("/")[1]
    kind = _class(file)
    assert kind is not None
    asked = inspect.signature(kind.__init__).parameters
    special = dict(SPECIAL.get(file, {}))
    size = special.pop("image", 32)
    words = {key: SMALL[key] for key, one in asked.items() if key in SMALL and (one.default is one.empty or key == "dim_head")}
    if "image_size" in asked and "input_shape" in asked:
        words |= {"image_size": 32, "patch_size": 8}
        words.pop("input_shape", None)
    model = kind(**{**words, **{key: value for key, value in special.items() if key in asked}})
    takes = next(iter(list(inspect.signature(kind.forward).parameters)[1:]))
    shapes = {"video": (3, 4, size, size), "volumes": (3, 4, size, size), "series": (3, 32)}
    return Specimen(model, {0: torch.randn(ROWS, *shapes.get(takes, (3, size, size)))})
