"""Models of Hugging Face that need rules of their own, small and random: complete, row by row, missing features at 0."""

from __future__ import annotations

import logging

import pytest
import torch

from architectures import adds_up
from cafexai import CAFE, UnsupportedOperation

transformers = pytest.importorskip("transformers")
logging.getLogger("transformers").setLevel(logging.ERROR)

WORDS = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}


def last_word(out):
    return out.logits[:, -1]


TWO_STACKS = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 24, "decoder_start_token_id": 2, "num_labels": 3,
}  # fmt: skip
T5 = {
    "vocab_size": 50,
    "d_model": 16,
    "d_kv": 4,
    "d_ff": 32,
    "num_layers": 2,
    "num_heads": 4,
    "pad_token_id": 0,
    "num_labels": 3,
}

MODELS = {
    "BartForSequenceClassification": {**WORDS, **TWO_STACKS, "max_position_embeddings": 30},
    "BartForConditionalGeneration": {**WORDS, **TWO_STACKS, "max_position_embeddings": 30},
    "MBartForConditionalGeneration": {**WORDS, **TWO_STACKS, "max_position_embeddings": 30},
    "T5ForSequenceClassification": {**T5, "pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 2},
    "LongformerForSequenceClassification": {
        **WORDS, **SHAPE, "attention_window": 4, "max_position_embeddings": 40, "num_labels": 3
    },
    "LEDForConditionalGeneration": {
        **WORDS, **TWO_STACKS, "attention_window": 4, "max_encoder_position_embeddings": 40,
        "max_decoder_position_embeddings": 40,
    },
    "FNetForSequenceClassification": {**WORDS, **SHAPE, "max_position_embeddings": 40, "num_labels": 3},
    "ReformerForSequenceClassification": {
        "vocab_size": 50, "hidden_size": 16, "num_attention_heads": 2, "attention_head_size": 8, "feed_forward_size": 32,
        "attn_layers": ["local", "lsh"], "axial_pos_shape": [2, 4], "axial_pos_embds_dim": [8, 8], "num_labels": 3,
        "local_attn_chunk_length": 4, "lsh_attn_chunk_length": 4, "num_buckets": 2, "num_hashes": 1, "pad_token_id": 0,
        "is_decoder": False, "hash_seed": 0,
    },
    "DeepseekV3ForCausalLM": {  # without experts, which have no float64; it writes keys into views of an empty tensor
        **WORDS, **SHAPE, "num_key_value_heads": 4, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 4, "v_head_dim": 4, "first_k_dense_replace": 2,
    },
}  # fmt: skip

DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4, "linear_value_head_dim": 4}
LINEAR = {"num_key_value_heads": 2, "layer_types": ["linear_attention", "full_attention"], **DELTA}
SCANS = {  # those that paths are too large for
    "MambaForCausalLM": {**WORDS, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, "time_step_rank": 4},
    "FalconMambaForCausalLM": {**WORDS, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, "time_step_rank": 4},
    "Mamba2ForCausalLM": {
        **WORDS, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, "num_heads": 8, "head_dim": 4, "n_groups": 2,
        "chunk_size": 4,
    },
    "RwkvForCausalLM": {
        **WORDS, "hidden_size": 16, "num_hidden_layers": 2, "attention_hidden_size": 16, "intermediate_size": 32
    },
    "OlmoHybridForCausalLM": {**WORDS, **SHAPE, **LINEAR},
    "Qwen3NextForCausalLM": {**WORDS, **SHAPE, **LINEAR, "head_dim": 4, "mlp_only_layers": [0, 1]},
}  # fmt: skip


def built(name, dtype, **options):
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    return kind(kind.config_class(**options)).eval().to(dtype)


def output_of(name):
    return last_word if name.endswith(("ForCausalLM", "ForConditionalGeneration")) else "logits"


EVERY = [(name, netting) for name in MODELS for netting in ("path", "feature", "unit")]
EVERY += [(name, "feature") for name in SCANS] + [("MambaForCausalLM", "path"), ("MambaForCausalLM", "unit")]


@pytest.mark.parametrize(("name", "netting"), EVERY)
def test_complete_by_row_and_without_scores_for_what_is_missing(name, netting):
    x, start = torch.randint(3, 50, (2, 8)), torch.randint(3, 50, (2, 8))
    x[:, -1] = start[:, -1] = 2
    start[:, 2] = x[:, 2]
    for dtype in (torch.float64, torch.float32):
        cafe = CAFE(built(name, dtype, **{**MODELS, **SCANS}[name]), variant="published", netting=netting)
        for reference in (None, start):
            e = cafe.explain(x, reference, target=1, output=output_of(name))
            adds_up(e)
            if dtype == torch.float32:
                continue
            assert (e.completeness_error.abs() <= 1e-9 * (e.output.abs() + e.combined.abs().sum(1))).all()
            row = cafe.explain(x[1:], None if reference is None else reference[1:], target=1, output=output_of(name))
            torch.testing.assert_close(row.positive[0], e.positive[1], rtol=1e-7, atol=1e-9)
            torch.testing.assert_close(row.bias[0], e.bias[1], rtol=1e-7, atol=1e-9)
            if reference is not None:
                assert (e.positive[:, 2] == 0).all()
                assert (e.negative[:, 2] == 0).all()


@pytest.mark.parametrize("name", ["FalconMambaForCausalLM", "RwkvForCausalLM"])
def test_paths_that_are_too_large_are_refused_with_a_way_out(name):
    """The way out is tested above."""
    x = torch.randint(3, 50, (1, 8))
    with pytest.raises(UnsupportedOperation, match='variant="feature"'):
        CAFE.published(built(name, torch.float64, **SCANS[name])).explain(x, target=1, output="logits[:, -1]")


def mixture(experts, dtype):
    model = built(
        "MixtralForCausalLM", dtype, **WORDS, **SHAPE, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2
    )
    model.set_experts_implementation(experts)
    return model


@pytest.mark.parametrize("netting", ["path", "feature", "unit"])
def test_experts_one_by_one_batched_and_grouped_have_equal_scores(netting):
    x, start = torch.randint(3, 50, (3, 7)), torch.randint(3, 50, (3, 7))
    start[:, 2] = x[:, 2]
    found = {}
    for experts in ("eager", "batched_mm", "grouped_mm"):
        model = mixture(experts, torch.float32)
        found[experts] = CAFE(model, variant="published", netting=netting).explain(x, start, target=1, output=last_word)
        adds_up(found[experts])
        assert (found[experts].positive[:, 2] == 0).all()
        row = CAFE(model, variant="published", netting=netting).explain(x[1:2], start[1:2], target=1, output=last_word)
        torch.testing.assert_close(row.positive[0], found[experts].positive[1], rtol=1e-4, atol=1e-6)
    exact = CAFE(mixture("eager", torch.float64), variant="published", netting=netting).explain(
        x, start, target=1, output=last_word
    )
    assert exact.completeness_error.abs().max() < 1e-10
    for e in found.values():
        torch.testing.assert_close(e.positive.double(), exact.positive, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(e.bias.double(), exact.bias, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("netting", ["path", "feature", "unit"])
def test_global_response_norms(netting):
    """ConvNeXt V2: a norm over the places of an image, divided by its mean, times the value."""
    options = {"num_labels": 3, "hidden_sizes": [2, 4, 4, 4], "depths": [1, 1, 1, 1], "image_size": 32}
    x, start = torch.randn(2, 3, 32, 32), torch.randn(2, 3, 32, 32)
    start[:, :, :8] = x[:, :, :8]
    for dtype in (torch.float64, torch.float32):
        cafe = CAFE(built("ConvNextV2ForImageClassification", dtype, **options), variant="published", netting=netting)
        groups = torch.arange(16).view(4, 4).repeat_interleave(8, 0).repeat_interleave(8, 1).expand(3, 32, 32)
        for reference in (None, start):
            e = cafe.explain(
                x.to(dtype), None if reference is None else reference.to(dtype), 1, output="logits", feature_groups=groups
            )
            adds_up(e)
        assert (e.positive[:, :4] == 0).all()
        assert (e.positive[:, 4:] > 0).any()
