"""What tokenizers and processors return, straight into encoder-decoders and models of words and pictures."""

from __future__ import annotations

import pytest
import torch

from architectures import adds_up
from cafexai import CAFE
from whole_models.test_language_models import MODELS, T5, built, transformers

IDS = torch.tensor([[5, 17, 30, 8, 44, 2], [9, 9, 12, 40, 3, 2]])
WORDS = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
SHORT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
TEXT = {**SHORT, "vocab_size": 50, "max_position_embeddings": 20, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
EYES = {**SHORT, "image_size": 8, "patch_size": 4}


def generating(name, dtype):
    options = {**T5, "decoder_start_token_id": 0, "eos_token_id": 2} if name.startswith("T5") else MODELS[name]
    return built(name, dtype, **options)


@pytest.mark.parametrize("kind", [dict, transformers.BatchEncoding])
@pytest.mark.parametrize("name", ["T5ForConditionalGeneration", "BartForConditionalGeneration"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_encoder_decoders(name, dtype, kind):
    """The words of the source are explained; what was written so far goes to the model by name, as ids or as labels."""
    model, written = generating(name, dtype), torch.tensor([[0, 7, 21], [0, 33, 4]])
    cafe = CAFE(model)
    e = cafe.explain(kind({**WORDS, "decoder_input_ids": written}), target=-1, output="logits[:, -1]")
    adds_up(e)
    assert e.positive.shape == IDS.shape
    assert (e.target == 49).all()
    plain = model(**WORDS, decoder_input_ids=written).logits[:, -1, -1].detach()
    torch.testing.assert_close(e.output.to(dtype), plain)  # small changes of large outputs are explained in float64
    by_name = {"attention_mask": WORDS["attention_mask"], "decoder_input_ids": written}
    by_hand = cafe.explain(IDS, additional_forward_args=by_name, target=49, output=lambda out: out.logits[:, -1])
    assert torch.equal(by_hand.combined, e.combined)
    row = cafe.explain(
        {**{k: v[1:] for k, v in WORDS.items()}, "decoder_input_ids": written[1:]}, target=-1, output="logits[:, -1]"
    )
    torch.testing.assert_close(row.positive[0], e.positive[1], rtol=1e-4, atol=1e-6)
    labels = cafe.explain(kind({**WORDS, "labels": written}), target=-1, output="logits[:, -1]")
    adds_up(labels)
    torch.testing.assert_close(labels.output.to(dtype), model(**WORDS, labels=written).logits[:, -1, -1].detach())


def clip(dtype):
    torch.manual_seed(0)
    config = transformers.CLIPConfig(text_config={**TEXT, "projection_dim": 8}, vision_config={**EYES, "projection_dim": 8})
    return transformers.CLIPModel(config).eval().to(dtype), "logits_per_text", WORDS


def llava(dtype):
    torch.manual_seed(0)
    config = transformers.LlavaConfig(
        vision_config={"model_type": "clip_vision_model", **EYES},
        text_config={"model_type": "llama", **SHORT, "vocab_size": 50, "num_key_value_heads": 2},
        image_token_index=49,
        vision_feature_layer=-1,
    )
    ids = torch.cat([torch.full((2, 4), 49), IDS], 1)
    words = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return transformers.LlavaForConditionalGeneration(config).eval().to(dtype), "logits[:, -1]", words


def blip(dtype):
    """It takes pictures before words."""
    torch.manual_seed(0)
    config = transformers.BlipConfig(text_config={**TEXT, "encoder_hidden_size": 16}, vision_config=EYES, projection_dim=8)
    return transformers.BlipForConditionalGeneration(config).eval().to(dtype), "logits[:, -1]", WORDS


@pytest.mark.parametrize("kind", [dict, transformers.BatchFeature])
@pytest.mark.parametrize("make", [clip, llava, blip])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_words_and_pictures(make, dtype, kind):
    model, output, words = make(dtype)
    pixels, start = torch.randn(2, 3, 8, 8).to(dtype), torch.randn(2, 3, 8, 8).to(dtype)
    start[:, :, :4] = pixels[:, :, :4]
    both = kind({**words, "pixel_values": pixels})
    cafe, size = CAFE(model), {"batch_size": 1} if make is clip else {}  # CLIP compares every text with every picture
    for baselines in (None, (words["input_ids"], start)):
        e = cafe.explain(both, baselines, target=-1, output=output, **size)
        adds_up(e)
        assert [part.shape for part in e.positive] == [words["input_ids"].shape, pixels.shape]
    assert (e.positive[0] == 0).all()
    assert (e.positive[1][:, :, :4] == 0).all()
    changes = (e.output != e.baseline_output).any()  # by less than float32 resolves in Blip: then scores are 0, too
    assert (e.positive[1] > 0).any() == changes
    assert changes or dtype == torch.float32
    one = {name: part[1:] for name, part in both.items()}
    row = cafe.explain(one, (words["input_ids"][1:], start[1:]), target=-1, output=output)
    torch.testing.assert_close(row.positive[1][0], e.positive[1][1], rtol=1e-4, atol=1e-6)


def test_pictures_alone_and_pictures_that_are_no_rows():
    torch.manual_seed(0)
    pixels = torch.randn(2, 3, 8, 8)
    seeing = built("ViTForImageClassification", torch.float64, **EYES, num_labels=3)
    e = CAFE(seeing).explain(transformers.BatchFeature({"pixel_values": pixels}), target=-1, output="logits")
    adds_up(e)
    assert torch.equal(e.combined, CAFE(seeing).explain(pixels, target=2, output="logits").combined)
    model, output, _ = clip(torch.float64)
    e = CAFE(model).explain({**WORDS, "pixel_values": pixels[:1]}, target=-1, output=output)
    adds_up(e)
    assert e.positive.shape == IDS.shape
    assert any("pixel_values goes to the model as it is" in note for note in e.notes)


def test_functions_take_encodings_by_place_as_before():
    model = built("BertForSequenceClassification", torch.float64, **TEXT, num_labels=3)
    e = CAFE(lambda x, attention_mask: model(x, attention_mask).logits).explain(WORDS, target=-1)
    assert torch.equal(e.combined, CAFE(model).explain(WORDS, target=2, output="logits").combined)
