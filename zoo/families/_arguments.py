"""Arguments of models of transformers by their names: what is explained, and what goes with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from specimen import ROWS, codes
from torch import Tensor

WORDS, TEXT = 90, 16  # words that are used, of 99 whose last stand for pictures and the like; and of one row
FRAMES = 2


class Sizes:
    """Sizes of the inputs of a model, as its configuration and those inside say them; the first that says one counts."""

    def __init__(self, config: Any) -> None:
        inside = [one for one in vars(config).values() if hasattr(one, "to_dict")]
        vision = [one for one in inside if hasattr(one, "patch_size") or hasattr(one, "image_size")]
        self.all, self.vision = [config, *inside], [*vision, config, *inside]

    def get(self, name: str, default: int, places: list[Any] | None = None) -> int:
        for place in self.all if places is None else places:
            value = getattr(place, name, None)
            value = value[0] if isinstance(value, (list, tuple)) and value else value
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return default

    @property
    def words(self) -> int:
        return min(self.get("vocab_size", WORDS), WORDS)

    @property
    def picture(self) -> tuple[int, int, int]:
        size = self.get("image_size", 64, self.vision)
        return self.get("num_channels", 3, self.vision), size, size

    @property
    def patch(self) -> int:
        return self.get("patch_size", 8, self.vision)

    @property
    def grid(self) -> tuple[int, int]:
        """Patches of a picture that is cut up before."""
        merged = self.get("spatial_merge_size", 2, self.vision)
        return 2 * merged, 2 * merged

    @property
    def flat(self) -> int:
        """Numbers of one patch."""
        channels = 3
        for name in ("num_channels", "in_chans", "in_channels"):
            channels = self.get(name, channels, self.vision)
        return channels * self.get("temporal_patch_size", 1, self.vision) * self.patch**2

    @property
    def bins(self) -> int:
        return self.get("num_mel_bins", self.get("feature_size", self.get("input_feat_size", 80)))

    @property
    def past(self) -> tuple[int, int]:
        """Steps of the past of a series, with those that lags ask for, and series."""
        lags = [lag for place in self.all for lag in getattr(place, "lags_sequence", None) or [0]]
        return self.get("context_length", 16) + max(lags), self.get("num_input_channels", self.get("input_size", 1))


def _text(s: Sizes) -> Tensor:
    ids = codes(s.words, TEXT)
    ends = s.get("eos_token_id", 0)
    if 0 < ends < s.words:
        ids[ids == ends] = 5
        ids[:, -1] = ends
    return ids


def _full(*shape: int) -> Tensor:
    return torch.ones(ROWS, *shape, dtype=torch.long)


def _shapes(*tries: Callable[[Sizes], tuple[int, ...]]) -> Callable[[Sizes], Iterator[Tensor]]:
    return lambda s: (torch.randn(ROWS, *shape(s)) for shape in tries)


def _one(make: Callable[[Sizes], Tensor]) -> Callable[[Sizes], Iterator[Tensor]]:
    return lambda s: iter([make(s)])


def flat_patches(s: Sizes) -> tuple[int, int]:
    height, width = s.grid
    return height * width, s.flat


def _grid(s: Sizes) -> Tensor:
    return torch.tensor([[1, *s.grid]] * ROWS)


# What is explained, each with the shapes that it may have, the likeliest first.
EXPLAINED: dict[str, Callable[[Sizes], Iterator[Tensor]]] = {
    "input_ids": _one(_text),
    "decoder_input_ids": _one(lambda s: codes(s.words, 5)),
    "pixel_values": _shapes(lambda s: s.picture, lambda s: (FRAMES, *s.picture), lambda s: (3, 64, 64), flat_patches,
                            lambda s: (3, 128, 128), lambda s: (3, 224, 224)),
    "pixel_values_videos": _shapes(lambda s: (s.get("num_frames", s.get("frames_per_clip", FRAMES)), *s.picture)),
    "input_values": _shapes(lambda s: (1600,), lambda s: (1, 1600), lambda s: (1, 3840),
                            lambda s: (s.get("max_length", 64), s.get("num_mel_bins", 16)), lambda s: (4000,),
                            lambda s: (1, 4000)),
    "input_features": _shapes(lambda s: (32, s.bins), lambda s: (s.bins, 32), lambda s: (s.bins, 64),
                              lambda s: (64, s.get("feature_projection_input_dim", s.get("input_dim", 80))),
                              lambda s: (1, 64, s.bins), lambda s: (s.bins, 3000)),
    "past_values": _shapes(lambda s: s.past, lambda s: s.past[:1]),
    "flattened_patches": _one(lambda s: _places(s)),
    "visual_feats": _shapes(lambda s: (4, s.get("visual_feat_dim", 2048))),
    "states": _shapes(lambda s: (5, s.get("state_dim", 17))),
    "query_embeds": _shapes(lambda s: (4, s.get("hidden_size", 64))),
    "inputs_embeds": _shapes(lambda s: (8, s.get("hidden_size", 64))),
    "audio_mel": _shapes(lambda s: (64, s.get("input_feat_size", 128))),
    "latents": _shapes(lambda s: (s.get("hidden_size", 64), 8)),
    "noise_embeds": _shapes(lambda s: (4, s.get("hidden_size", 64))),
    "hidden_states": _shapes(lambda s: (8, s.get("hidden_size", 64))),
}  # fmt: skip
# What goes with it, as it is.
CONSTANTS: dict[str, Callable[[Sizes], Any]] = {
    "bbox": lambda s: torch.randint(0, 20, (ROWS, TEXT, 4)).sort(-1).values,
    "image": lambda s: torch.randn(ROWS, 3, 224, 224),
    "grid_thw": _grid,
    "image_grid_thw": _grid,
    "merge_sizes": lambda s: torch.full((ROWS,), s.get("spatial_merge_size", 1, s.vision)),
    "spatial_shapes": lambda s: torch.tensor([s.grid] * ROWS),
    "pixel_attention_mask": lambda s: _full(s.grid[0] * s.grid[1]),
    "input_features_mask": lambda s: _full(32),
    "audio_mel_mask": lambda s: torch.zeros(ROWS, 64, dtype=torch.bool),
    "attention_mask": lambda s: _full(TEXT),
    "image_attention_mask": lambda s: _full(TEXT, 1),
    "past_time_features": lambda s: torch.randn(ROWS, s.past[0], s.get("num_time_features", 0)),
    "past_observed_mask": lambda s: torch.ones(ROWS, *s.past[: 1 if s.past[1] == 1 else 2]),
    "future_values": lambda s: torch.randn(ROWS, s.get("prediction_length", 4)),
    "future_time_features": lambda s: torch.randn(ROWS, s.get("prediction_length", 4), s.get("num_time_features", 0)),
    "visual_pos": lambda s: torch.rand(ROWS, 4, 4),
    "actions": lambda s: torch.randn(ROWS, 5, s.get("act_dim", 4)),
    "rewards": lambda s: torch.randn(ROWS, 5, 1),
    "returns_to_go": lambda s: torch.randn(ROWS, 5, 1),
    "timesteps": lambda s: torch.arange(5).repeat(ROWS, 1),
    "qformer_input_ids": lambda s: codes(s.words, 6),
    "prompt_pixel_values": lambda s: torch.randn(ROWS, *s.picture),
    "prompt_masks": lambda s: torch.randn(ROWS, *s.picture),
    "context_hidden_states": lambda s: torch.randn(ROWS, 8, s.get("hidden_size", 64)),
    "encoder_hidden_states": lambda s: torch.randn(ROWS, 6, s.get("encoder_hidden_size", s.get("hidden_size", 64))),
    "classes_input_ids": lambda s: codes(s.words, 6)[:1].repeat(ROWS * 3, 1),
    "classes_attention_mask": lambda s: torch.ones(ROWS * 3, 6, dtype=torch.long),
    "tasks_input_ids": lambda s: codes(s.words, 6),
    "tasks_attention_mask": lambda s: _full(6),
    "classes_structure": lambda s: torch.tensor([3] * ROWS),
    "task_inputs": lambda s: codes(s.words, s.get("task_seq_len", 77)),
    "state": lambda s: torch.randn(ROWS, s.get("max_state_dim", 32)),
    "input_points": lambda s: torch.rand(ROWS, 1, 1, 2) * 16,
    "is_longer": lambda s: torch.ones(ROWS, 1, dtype=torch.bool),
}  # fmt: skip


def _places(s: Sizes) -> Tensor:
    """Patches with the row and the column of each in front, as Pix2Struct has them."""
    numbers = torch.randn(ROWS, 4, 2 + s.get("num_channels", 3, s.vision) * s.patch**2)
    numbers[:, :, 0], numbers[:, :, 1] = torch.tensor([1, 1, 2, 2]), torch.tensor([1, 2, 1, 2])
    return numbers
