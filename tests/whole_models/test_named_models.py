"""Architectures that people name, small and random, as ``CAFE(model)`` takes them: sums, single rows, missing features."""

from __future__ import annotations

import pytest
import torch

from architectures import adds_up
from cafexai import CAFE
from engine.test_graphs import EDGES, LAYERS
from whole_models.test_language_models import LINEAR, MODELS, SCANS, SHAPE, WORDS, built, mixture, output_of

DTYPES = {"float32": (torch.float32, 1e-4), "float64": (torch.float64, 1e-9)}  # with what rounding may do to a score
GPT = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TEXT = {
    **MODELS,
    **SCANS,
    "BertForSequenceClassification": {**WORDS, **SHAPE, "max_position_embeddings": 40, "num_labels": 3},
    "GPT2LMHeadModel": GPT,
    "LlamaForCausalLM": {**WORDS, **SHAPE, "num_key_value_heads": 2},
    "MixtralForCausalLM": {**WORDS, **SHAPE, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2},
    "Qwen3NextForCausalLM, experts": {
        **WORDS, **SHAPE, **LINEAR, "head_dim": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 8,
    },
}  # fmt: skip


def holds(cafe, x, start, dtype, tolerance, missing, **options):
    """Sums, rows and missing features of an explanation by the way that is chosen, against nothing and against ``start``."""
    for reference in (None, start):
        e = cafe.explain(x, reference, **options)
        assert e.meta.settings["netting"] == "unit"
        adds_up(e)
        assert not any("float64" in note for note in e.notes) or dtype == torch.float32
        row = cafe.explain(x[1:2], None if reference is None else reference[1:2], **options)
        size = e.positive[1].abs().max().item()
        for part in ("positive", "negative", "combined", "bias", "output"):
            alone, together = getattr(row, part)[0].double(), getattr(e, part)[1].double()
            torch.testing.assert_close(alone, together, rtol=tolerance, atol=tolerance * size)
    for part in (e.positive, e.negative, e.combined):
        assert (part[:, missing] == 0).all()
    assert (e.positive > 0).any()
    return e


@pytest.mark.parametrize("name", TEXT)
@pytest.mark.parametrize("dtype", DTYPES)
def test_models_of_words(name, dtype):
    """Embeddings carry the scores of codes."""
    number, tolerance = DTYPES[dtype]
    x, start = torch.randint(3, 50, (2, 8)), torch.randint(3, 50, (2, 8))
    x[:, -1] = start[:, -1] = 2
    start[:, 2] = x[:, 2]
    kind = name.split(",")[0]
    model, output = built(kind, number, **TEXT[name]), "logits[:, -1]" if kind.startswith("GPT2") else output_of(kind)
    if dtype == "float64" and kind in ("MixtralForCausalLM", "Qwen3NextForCausalLM"):
        model.set_experts_implementation("eager")  # torch groups experts in float32 alone
    holds(CAFE(model), x, start, number, tolerance, 2, target=1, output=output)


@pytest.mark.parametrize("name", ["Qwen3NextForCausalLM", "OlmoHybridForCausalLM"])
def test_delta_rules_over_several_chunks_with_large_weights(name):
    """Chunks are 64 places long; the logarithms of decays change by more than 100 over one."""
    x, start = torch.randint(3, 50, (1, 70)), torch.randint(3, 50, (1, 70))
    model = built(name, torch.float64, **SCANS[name])
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(5 if weight.ndim > 1 else 1)
    for dtype in (torch.float64, torch.float32):
        adds_up(CAFE(model.to(dtype)).explain(x, start, target=1, output="logits[:, -1]"))
        cafe = CAFE(model, variant="default", attention="frozen")  # what the delta rules alone do
        e = cafe.explain(x, start, target=1, output="logits[:, -1]")
        adds_up(e)
        assert e.combined.abs().sum() < 20 * (e.output - e.baseline_output).abs().sum()
        assert not any("float64" in note for note in e.notes)


def test_experts_one_by_one_batched_and_grouped_have_equal_scores():
    x, start = torch.randint(3, 50, (3, 7)), torch.randint(3, 50, (3, 7))
    start[:, 2] = x[:, 2]
    exact = holds(CAFE(mixture("eager", torch.float64)), x, start, torch.float64, 1e-9, 2, target=1, output="logits[:, -1]")
    for experts in ("eager", "batched_mm", "grouped_mm"):
        e = CAFE(mixture(experts, torch.float32)).explain(x, start, target=1, output="logits[:, -1]")
        for part in ("positive", "negative", "combined", "output", "baseline_output"):
            torch.testing.assert_close(getattr(e, part).double(), getattr(exact, part), rtol=1e-4, atol=1e-6)


PATCHES = {
    "num_input_channels": 3, "context_length": 16, "patch_length": 4, "patch_stride": 4, "d_model": 16, "num_hidden_layers": 2,
    "num_attention_heads": 4, "ffn_dim": 32,
}  # fmt: skip
SERIES = {
    "PatchTSTForPrediction": ({**PATCHES, "prediction_length": 4}, "prediction_outputs[:, 0]"),
    "PatchTSTForClassification": ({**PATCHES, "num_targets": 3}, "prediction_logits"),
    "PatchTSTForRegression": ({**PATCHES, "num_targets": 2}, "regression_outputs"),
}


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_models_of_series(name, dtype):
    number, tolerance = DTYPES[dtype]
    options, output = SERIES[name]
    x, start = torch.randn(2, 16, 3).to(number), torch.randn(2, 16, 3).to(number)
    start[:, 2] = x[:, 2]
    holds(CAFE(built(name, number, **options)), x, start, number, tolerance, 2, target=1, output=output)


@pytest.mark.parametrize("dtype", DTYPES)
def test_convnext_v2(dtype):
    number, tolerance = DTYPES[dtype]
    options = {"num_labels": 3, "hidden_sizes": [2, 4, 4, 4], "depths": [1, 1, 1, 1], "image_size": 32}
    x, start = torch.randn(2, 3, 32, 32).to(number), torch.randn(2, 3, 32, 32).to(number)
    start[:, 2] = x[:, 2]
    model = built("ConvNextV2ForImageClassification", number, **options)
    holds(CAFE(model), x, start, number, tolerance, 2, target=1, output="logits")


@pytest.mark.parametrize("mask", ["sparsemax", "entmax"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_tabnet(mask, dtype):
    """As it is after some training of its batch norms; its masks are sorted, compared and summed by functions of its own."""
    networks = pytest.importorskip("pytorch_tabnet.tab_network", reason="TabNet: pip install pytorch-tabnet")
    number, tolerance = DTYPES[dtype]
    torch.set_default_dtype(number)  # it makes tensors of its own
    model = networks.TabNet(6, 3, n_d=4, n_a=4, mask_type=mask, group_attention_matrix=torch.eye(6))
    model(torch.randn(256, 6))
    x, start = torch.randn(3, 6), torch.randn(3, 6)
    start[:, 2] = x[:, 2]
    holds(CAFE(model.eval()), x, start, number, tolerance, 2, target=1, output=0)


@pytest.mark.parametrize("name", ["GAT", "GATv2"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_graph_attention(name, dtype):
    """A graph is a row; several are taken one by one by the model itself."""
    number, tolerance = DTYPES[dtype]
    model = LAYERS[name]().to(number).eval()
    x, start = torch.randn(2, 6, 4).to(number), torch.randn(2, 6, 4).to(number)
    start[:, 2] = x[:, 2]

    def graphs(nodes):
        return torch.stack([model(graph, EDGES) for graph in nodes])

    holds(CAFE(graphs), x, start, number, tolerance, 2, target=(0, 1))
