"""Configurations of transformers made small: few layers, narrow, few words, small pictures."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Any

from transformers import CONFIG_MAPPING, PretrainedConfig

WIDTH, HEADS, LAYERS, WORDS, PICTURE = 64, 4, 2, 99, 32
# What a number of a configuration becomes, by its name: the first pattern that fits.
# Names that are wholly one of these patterns, in which * stands for anything.
SIZES: list[tuple[str, int]] = [
    ("num_key_value_heads n_head_kv *_kv_heads *key_value_heads", 2),
    ("*attention_heads n_head n_heads heads num_heads *_num_heads *_n_heads num_attention_head", HEADS),
    ("*_layers n_layer n_layers num_blocks depth *_depth num_layer", LAYERS),
    ("*vocab_size n_vocab num_embeddings", WORDS),
    (
        "*intermediate_size *ffn_dim *ffn_size d_ff n_inner dim_feedforward ff_dim mlp_dim *ffn_hidden_size *expert_dim",
        2 * WIDTH,
    ),
    ("qk_rope_head_dim qk_nope_head_dim v_head_dim qk_head_dim", 8),
    ("*head_dim d_kv *head_size kv_channels", WIDTH // HEADS),
    ("*hidden_size *embed_dim *embedding_size *embedding_dim *projection_dim d_model n_embd dim hidden_dim embed_dim", WIDTH),
    ("*num_experts n_routed_experts num_local_experts", 4),
    ("*num_experts_per_tok num_experts_per_token *_top_k *_topk top_k moe_k num_selected_experts", 2),
    ("image_size img_size *_image_size input_size", PICTURE),
    ("patch_size", 8),
    ("*lora_rank", 8),
    ("num_labels", 3),
]


def shrunken(kind: str) -> PretrainedConfig:
    """The configuration of one architecture, made small."""
    config = CONFIG_MAPPING[kind]()
    shrink(config)
    return config


def shrink(config: PretrainedConfig) -> None:
    """Make one configuration and those inside it small, in place."""
    for name, value in list(vars(config).items()):
        if isinstance(value, PretrainedConfig):
            shrink(value)
            continue
        if name.startswith("_") or isinstance(value, bool):
            continue
        if isinstance(value, int) and (small := _small(name, value)) is not None:
            _set(config, name, small)
    # lists by layer are as long as there are layers
    layers = getattr(config, "num_hidden_layers", None)
    if isinstance(layers, int):
        for name, value in list(vars(config).items()):
            if (
                isinstance(value, (list, tuple))
                and len(value) > layers
                and name in ("layer_types", "mlp_layer_types", "layers_block_type")
            ):
                kinds = list(dict.fromkeys(value))
                _set(config, name, (kinds * layers)[:layers])
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "sep_token_id"):
        value = getattr(config, name, None)
        if (isinstance(value, int) and not 0 <= value < WORDS) or (value is None and name == "pad_token_id"):
            _set(config, name, 0)


def _small(name: str, value: int) -> int | None:
    for pattern, size in SIZES:
        if any(fnmatch(name, one) for one in pattern.split()):
            return min(size, value) if value > 0 else None
    return None


def _set(config: Any, name: str, value: Any) -> None:
    try:
        setattr(config, name, value)
    except Exception:  # derived from others
        return
