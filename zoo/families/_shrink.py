"""Configurations of transformers made small: few layers, narrow, few words, small pictures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from typing import Any

from transformers import CONFIG_MAPPING, PretrainedConfig

WIDTH, HEADS, LAYERS, WORDS, PICTURE = 64, 4, 2, 99, 32
# What a number of a configuration becomes, by its name: the first line with a pattern that fits.
SIZES: list[tuple[str, int]] = [
    ("num_key_value_heads n_head_kv *_kv_heads *key_value_heads", 2),
    ("*attention_heads n_head n_heads heads num_heads *_num_heads *_n_heads num_attention_head", HEADS),
    ("*_layers n_layer n_layers num_blocks depth *_depth num_layer", LAYERS),
    ("*vocab_size n_vocab num_embeddings", WORDS),
    ("*intermediate_size *ffn_dim *ffn_size d_ff n_inner dim_feedforward ff_dim mlp_dim *ffn_hidden_size", 2 * WIDTH),
    ("qk_rope_head_dim qk_nope_head_dim v_head_dim qk_head_dim rotary_dim", 8),
    ("*head_dim d_kv *head_size kv_channels", WIDTH // HEADS),
    ("*hidden_size *embed_dim *embedding_size *embedding_dim *projection_dim d_model n_embd dim hidden_dim embed_dim", WIDTH),
    ("*num_experts n_routed_experts num_local_experts", 4),
    ("*num_experts_per_tok num_experts_per_token *_top_k *_topk top_k moe_k num_selected_experts", 2),
    ("image_size img_size *_image_size", PICTURE),
    ("patch_size", 8),
    ("*lora_rank", 8),
    ("num_queries", 8),
    ("num_labels", 3),
]
SWIN = {"embed_dim": 12, "depths": [1, 1, 1], "num_heads": [1, 2, 2], "window_size": 2, "image_size": 32, "patch_size": 4}
SERIES = {"prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2], "d_model": 16}
EFFICIENT = {"width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320, "image_size": 64}
# Numbers that have to fit each other in a way of their own.
KINDS: dict[str, dict[str, Any]] = {
    "swin": SWIN, "swinv2": SWIN, "donut-swin": SWIN, "maskformer-swin": SWIN,
    "swin2sr": {"embed_dim": 12, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4, "image_size": 32, "patch_size": 1},
    "autoformer": SERIES, "informer": SERIES, "time_series_transformer": SERIES,
    "reformer": {"axial_pos_embds": False, "attn_layers": ["local", "lsh"],
                 "local_attn_chunk_length": 4, "lsh_attn_chunk_length": 4,
                 "is_decoder": False, "num_buckets": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1}, "lilt": {"channel_shrink_ratio": 2},
    "mobilebert": {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    "efficientnet": EFFICIENT, "align_vision_model": EFFICIENT, "bros": {"dim_bbox_projection": 16, "dim_bbox": 8},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 2, "expand": 2, "state_size": 8},
    "bamba": {"attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2},
    "falcon_h1": {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_ssm": 128},
    "hunyuan_v1_dense": {"head_dim": 16}, "hunyuan_v1_moe": {"head_dim": 16, "moe_topk": 2}, "ministral": {"head_dim": 16},
    "nemotron": {"head_dim": 16}, "dots1": {"n_routed_experts": 4, "n_shared_experts": 1},
    "esm": {"vocab_size": 33, "pad_token_id": 1},
    "sew": {"conv_dim": [32] * 13, "squeeze_factor": 1}, "sew-d": {"conv_dim": [32] * 13, "squeeze_factor": 1},
    "audio-spectrogram-transformer": {"max_length": 32, "num_mel_bins": 32, "patch_size": 8,
                                      "frequency_stride": 8, "time_stride": 8},
    "gemma3n_text": {"num_hidden_layers": 5, "num_kv_shared_layers": 0},
    "perceiver": {"num_latents": 8, "d_latents": 32, "d_model": 32, "num_self_attends_per_block": 2, "qk_channels": 32,
                  "v_channels": 32, "max_position_embeddings": 32},
    "depth_anything": {"neck_hidden_sizes": [8, 8, 8, 8]},
}  # fmt: skip


def shrunken(kind: str) -> Iterator[PretrainedConfig]:
    """The configuration of one architecture, made small in one way after another."""
    yield from map(finished, filter(None, (_attempt(way, kind) for way in (_constructed, _in_place, _with_more_layers))))


def _attempt(way: Callable[[str], PretrainedConfig], kind: str) -> PretrainedConfig | None:
    try:
        return way(kind)
    except Exception:
        return None


def _constructed(kind: str, layers: int = LAYERS) -> PretrainedConfig:
    """By its constructor, which derives some numbers from others."""
    return _rebuilt(CONFIG_MAPPING[kind](), KINDS.get(kind, {}), layers)


def _with_more_layers(kind: str) -> PretrainedConfig:
    return _constructed(kind, 6)


def _rebuilt(config: PretrainedConfig, special: dict[str, Any], layers: int) -> PretrainedConfig:
    words: dict[str, Any] = {}
    asked = inspect.signature(type(config).__init__).parameters
    anything = any(one.kind is one.VAR_KEYWORD for one in asked.values())
    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            words[name] = _rebuilt(value, {}, layers)
        elif isinstance(value, int) and (name in asked or anything) and (size := small(name, value, layers)) is not None:
            words[name] = size
        elif name == "rope_parameters" and isinstance(value, dict):
            words[name] = _sections(value)
        elif name == "image_size" and isinstance(value, (list, tuple)):
            words[name] = [PICTURE] * len(value)
    return type(config)(**{**words, **special})


def _sections(rope: dict[str, Any]) -> dict[str, Any]:
    """Parts of the rotary embedding that add up to half a head."""
    return {key: [2, 3, 3] if key == "mrope_section" else value for key, value in rope.items()}


def _in_place(kind: str) -> PretrainedConfig:
    """By attributes, whatever the constructor has derived."""
    config = CONFIG_MAPPING[kind](**KINDS.get(kind, {}))
    _shrink(config, KINDS.get(kind, {}))
    return config


def _shrink(config: PretrainedConfig, special: dict[str, Any]) -> None:
    for name, value in list(vars(config).items()):
        if isinstance(value, PretrainedConfig):
            _shrink(value, {})
        elif isinstance(value, int) and name not in special and (size := small(name, value, LAYERS)) is not None:
            _set(config, name, size)
        elif name == "rope_parameters" and isinstance(value, dict):
            _set(config, name, _sections(value))
        elif name == "image_size" and isinstance(value, (list, tuple)):
            _set(config, name, [PICTURE] * len(value))
    layers = getattr(config, "num_hidden_layers", None)
    if isinstance(layers, int):  # lists by layer are as long as there are layers
        for name in ("layer_types", "mlp_layer_types", "layers_block_type"):
            kinds = getattr(config, name, None)
            if isinstance(kinds, (list, tuple)) and len(kinds) > layers:
                _set(config, name, (list(dict.fromkeys(kinds)) * layers)[:layers])


def finished(config: PretrainedConfig) -> PretrainedConfig:
    """Special words are among those that there are, and padding has one."""
    for part in (config, *(one for one in vars(config).values() if isinstance(one, PretrainedConfig))):
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "sep_token_id"):
            value = getattr(part, name, None)
            if (isinstance(value, int) and not 0 <= value < WORDS) or (value is None and name == "pad_token_id"):
                _set(part, name, 0)
    return config


def small(name: str, value: int, layers: int) -> int | None:
    if name.startswith("_") or isinstance(value, bool) or value <= 0:
        return None
    for patterns, size in SIZES:
        if any(fnmatch(name, one) for one in patterns.split()):
            return min(layers if size == LAYERS and "layer" in patterns else size, value)
    return None


def _set(config: Any, name: str, value: Any) -> None:
    try:
        setattr(config, name, value)
    except Exception:  # derived from others
        return
