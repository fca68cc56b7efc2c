"""Configurations of transformers made small in proportion: what had to fit each other fits still."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from typing import Any

from families._shrink import HEADS, KINDS, PICTURE, WORDS, finished, small
from transformers import CONFIG_MAPPING, PretrainedConfig

# Numbers that grow with the width of a model, and those of such names that do not.
WIDTHS = """*hidden_size* *hidden_dim* *hidden_channels* *embed_dim* *embedding_size *embedding_dim *embedding_dims
    *intermediate_size* *ffn_dim *ffn_size *feedforward* d_model d_ff n_embd n_inner dim dims *head_dim d_kv *head_size *_rank
    *projection_dim *proj_dim
    *proj_size *channels *_width width *_features *_channel_list *conv_dim tdnn_dim *latents_dim *out_dim *output_dim *mlp_dim
    *query_dim *expand_dim rotary_dim mrope_section *filters conv_kernel_dim *inner_size kv_channels *latent_size *filter_sizes
    *inner_dim d_latents *_ssm *ssm_state_size""".split()
NOT_WIDTHS = "num_channels *audio_channels *image_channels input_channels *vocab* num_* max_* *_id *_token".split()
MARKS = ["*_token_id", "*_token_index"]  # words that stand for pictures, sounds and ends
LARGEST = 40_000_000  # parameters
# Numbers without which a model is not made, where its configuration leaves them open.
OPEN = {"num_experts_per_tok": 2, "n_routed_experts": 4, "num_experts": 4, "n_shared_experts": 1, "moe_intermediate_size": 32,
        "vocab_size": 99, "head_dim": 16, "moe_topk": 2, "sliding_window": 8, "n_group": 1, "topk_group": 1,
        "image_token_index": 98, "video_token_index": 97}  # fmt: skip
EVERY = 99
# By what widths are divided, layers that are left, and the size of pictures (None: as it is), one after the other.
DIVIDED = [(16, 2, PICTURE), (16, EVERY, PICTURE), (16, EVERY, None), (4, 2, PICTURE), (4, EVERY, 2 * PICTURE), (1, 2, PICTURE),
           (1, EVERY, 2 * PICTURE), (1, EVERY, None)]  # fmt: skip
Resize = Callable[[str, int], int]


def in_proportion(kind: str) -> Iterator[PretrainedConfig]:
    """The configuration of one architecture by the fields that it declares: from a table of sizes, then divided."""
    ways = [(_by_table(layers), layers, PICTURE) for layers in (2, 6)]
    ways += [(_divided(factor), layers, picture) for factor, layers, picture in DIVIDED]
    seen = set()
    for resize, layers, picture in ways:
        try:
            config = finished(_rebuilt(CONFIG_MAPPING[kind](**KINDS.get(kind, {})), resize, layers, picture))
        except Exception:  # numbers that do not fit
            continue
        if (said := str(config.to_dict())) not in seen:
            seen.add(said)
            yield config


def _by_table(layers: int) -> Resize:
    return lambda name, value: value if (size := small(name, value, layers)) is None else size


def _divided(factor: int) -> Resize:
    def resize(name: str, value: int) -> int:
        if fits(name, WIDTHS) and not fits(name, NOT_WIDTHS):
            return value // factor if value % factor == 0 else value
        return value

    return resize


def fits(name: str, patterns: list[str]) -> bool:
    return any(fnmatch(name, one) for one in patterns)


def _rebuilt(
    config: PretrainedConfig, resize: Resize, layers: int, picture: int | None, inside: bool = False
) -> PretrainedConfig:
    special = KINDS.get(config.model_type, {})
    fields = [field.name for field in dataclasses.fields(config) if field.init]
    declared = [name for name in fields if name in vars(config) and name[0] != "_"]
    words: dict[str, Any] = {}
    for name in declared:
        value = getattr(config, name)
        if isinstance(value, PretrainedConfig):
            words[name] = _rebuilt(value, resize, layers, picture, inside=True)
        elif value is None and name in OPEN:
            words[name] = OPEN[name]
        elif name not in special:
            words[name] = _resized(name, value, resize, layers, picture)
    changed = {name: value for name, value in words.items() if value is not getattr(config, name)}
    words = ({name: value for name, value in words.items() if value is not None} if inside else changed) | special
    if places := getattr(config, "_out_indices", None):  # layers whose outputs go on
        words["out_indices"] = list(places)
        if words.get("num_hidden_layers", EVERY) < getattr(config, "num_hidden_layers", 0):
            left = words["num_hidden_layers"] = max(words["num_hidden_layers"], len(places))
            words["out_indices"] = [left - len(places) + 1 + number for number in range(len(places))]
    large = [name for name in declared if fits(name, MARKS) and isinstance(one := getattr(config, name), int) and one >= WORDS]
    words |= {name: WORDS - 1 - place for place, name in enumerate(large)}
    heads, keys = getattr(config, "num_attention_heads", None), getattr(config, "num_key_value_heads", None)
    if heads == keys and isinstance(words.get("num_attention_heads"), int):
        words["num_key_value_heads"] = words["num_attention_heads"]
    _cut_lists(config, words)
    _fit_heads(config, words)
    made = type(config)(**words)
    _add_sections(made)
    return made


def _fit_heads(config: PretrainedConfig, words: dict[str, Any]) -> None:
    """Heads of two parts, of which one is turned by its place: the parts add up to the whole."""
    turned, rest = (words.get(name, getattr(config, name, None)) for name in ("qk_rope_head_dim", "qk_nope_head_dim"))
    if isinstance(turned, int) and isinstance(rest, int):
        sizes = {"head_dim": turned, "qk_head_dim": turned + rest}
        words.update({name: size for name, size in sizes.items() if getattr(config, name, None) is not None})


def _add_sections(config: PretrainedConfig) -> None:
    """Sections of the turned part for time, height and width, which some models have by default, not by their configuration."""
    rope, heads = getattr(config, "rope_parameters", None), getattr(config, "num_attention_heads", None)
    module = sys.modules.get(type(config).__module__.replace(".configuration_", ".modeling_"))
    if (
        not isinstance(rope, dict)
        or not isinstance(heads, int)
        or module is None
        or "mrope_section" not in inspect.getsource(module)
    ):
        return
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    half = int(size * rope.get("partial_rotary_factor", getattr(config, "partial_rotary_factor", None) or 1)) // 2
    rope["mrope_section"] = [half // 4, (half - half // 4) // 2, half - half // 4 - (half - half // 4) // 2]


def _resized(name: str, value: Any, resize: Resize, layers: int, picture: int | None) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, dict) and name == "rope_parameters":
        return {key: _resized(key, one, resize, layers, picture) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        if name == "depths":
            return type(value)(min(one, 1) for one in value)
        return type(value)(_resized(name, one, resize, layers, picture) for one in value)
    if not isinstance(value, int) or value <= 0:
        return value
    if fits(name, ["*_layers", "n_layer", "num_blocks", "depth"]):
        return min(value, layers)
    if fits(name, ["*image_size", "img_size"]):
        return value if picture is None else min(value, picture)
    if fits(name, ["*vocab_size", "*num_experts", "n_routed_experts", "num_local_experts", "num_queries"]):
        return min(value, 4 * HEADS if "experts" in name else small(name, value, layers) or value)
    return resize(name, value)


def _cut_lists(config: PretrainedConfig, words: dict[str, Any]) -> None:
    """Lists by layer are as long as there are layers: every kind of layer once, if they are enough."""
    old, new = getattr(config, "num_hidden_layers", None), words.get("num_hidden_layers")
    if not isinstance(old, int) or not isinstance(new, int) or new >= old:
        return
    for name, kinds in vars(config).items():
        if (
            isinstance(kinds, (list, tuple))
            and len(kinds) == old
            and (name in words or name in type(config).__dataclass_fields__)
        ):
            words[name] = (list(dict.fromkeys(kinds)) * new)[:new] if isinstance(kinds[0], str) else list(kinds[:new])
