"""Targets of causal language models as people say them: the text of a token, -1 for the predicted one, on padded rows."""

import pytest
import torch

from cafexai import CAFE

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
TEXTS = ["You may copy the Program and distribute it.", "But you can't copy the licence twice, they said."]
PROMPTS = ["You may copy the Program", "But you"]


@pytest.fixture
def tokenizer():
    level = tokenizers.pre_tokenizers.ByteLevel
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer, made.decoder = level(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=340, special_tokens=["<pad>", "<eos>"], initial_alphabet=level.alphabet(), show_progress=False
    )
    made.train_from_iterator(TEXTS * 5, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>")


def build(kind, size):
    torch.manual_seed(0)
    ends = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0, "vocab_size": size}
    if kind == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_positions=64, n_embd=16, n_layer=2, n_head=2, **ends))
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, **ends
    )
    return transformers.LlamaForCausalLM(config)


def train(model, tokenizer, steps=60):
    """The model once it knows the two texts."""
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    rows = [tokenizer(text, return_tensors="pt")["input_ids"] for text in TEXTS]
    for _ in range(steps):
        loss = sum(model(input_ids=ids, labels=ids).loss for ids in rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval().double()


def logits_after(model, tokenizer, text):
    with torch.no_grad():
        return model(**tokenizer(text, return_tensors="pt")).logits[0, -1]


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_the_predicted_token_and_tokens_by_their_text(kind, tokenizer):
    model = train(build(kind, len(tokenizer)), tokenizer)
    cafe = CAFE(model, tokenizer=tokenizer)
    last = logits_after(model, tokenizer, PROMPTS[0])
    predicted = cafe.explain(PROMPTS[0], target=-1)
    assert int(last.argmax()) == tokenizer(" and")["input_ids"][0]  # it has learnt the text
    assert predicted.target_name() == "next token ' and' after ' Program'"
    torch.testing.assert_close(predicted.output[0], last.max(), rtol=1e-6, atol=1e-6)
    named = cafe.explain(PROMPTS[0], target=" and")
    torch.testing.assert_close(named.combined, predicted.combined)
    token, other = (tokenizer(text)["input_ids"][0] for text in (" and", " copy"))
    for target in ((-1, token), (-1, " and"), [" and"], [(-1, " and")]):
        torch.testing.assert_close(cafe.explain(PROMPTS[0], target=target).combined, predicted.combined)
    by_hand = CAFE(model, tokenizer=tokenizer).explain(PROMPTS[0], output="logits[:, -1]", target=token)
    torch.testing.assert_close(by_hand.combined, predicted.combined)
    torch.testing.assert_close(cafe.explain(PROMPTS[0], output="logits[:, -1]", target=" and").combined, predicted.combined)
    e = cafe.explain(PROMPTS[0], target=-1, against=" copy")
    assert e.target_name() == "next token ' and' after ' Program' rather than ' copy'"
    torch.testing.assert_close(e.output[0], last[token] - last[other], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(cafe.attribute(PROMPTS[0], target=-1).sum(), predicted.combined.sum())
    first = cafe.explain(PROMPTS[0], target=(1, " copy"))
    assert first.target_name() == "next token ' copy' after ' may'"


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_rows_equal_single_rows(kind, side, tokenizer):
    model = build(kind, len(tokenizer)).eval().double()
    cafe = CAFE(model, tokenizer=tokenizer)
    tokenizer.padding_side = side
    alone = [cafe.explain(prompt, target=-1) for prompt in PROMPTS]
    for options in ({}, {"batch_size": 1}):
        both = cafe.explain(PROMPTS, target=-1, **options)
        for row, one in enumerate(alone):
            torch.testing.assert_close(both.output[row], one.output[0], rtol=1e-5, atol=1e-6)
            own = one.combined.shape[1]
            torch.testing.assert_close(both.combined[row, :own], one.combined[0], rtol=1e-4, atol=1e-6)
            assert both.target_name(row) == one.target_name()
            assert both[row].target_name() == one.target_name()
    copies = cafe.explain(PROMPTS, target=[" copy", " you"])
    for row, (prompt, token) in enumerate(zip(PROMPTS, (" copy", " you"), strict=True)):
        expected = logits_after(model, tokenizer, prompt)[tokenizer(token)["input_ids"][0]]
        torch.testing.assert_close(copies.output[row], expected, rtol=1e-5, atol=1e-6)


def test_the_cache_is_off_and_a_given_one_is_refused(tokenizer):
    model = build("gpt2", len(tokenizer)).eval()
    assert model.config.use_cache
    seen = []
    model.register_forward_pre_hook(lambda *given: seen.append(given[2].get("use_cache")), with_kwargs=True)
    ids = tokenizer(PROMPTS[0], return_tensors="pt")["input_ids"]
    for extra in (None, {"use_cache": True}):
        CAFE(model).explain(ids, target=-1, additional_forward_args=extra)
    assert set(seen) == {False}
    past = model(ids[:, :2], use_cache=True).past_key_values
    with pytest.raises(ValueError, match="Leave past_key_values out"):
        CAFE(model).explain(ids[:, 2:], target=-1, additional_forward_args={"past_key_values": past})


def test_mistakes_are_named(tokenizer):
    model = build("gpt2", len(tokenizer)).eval()
    cafe = CAFE(model, tokenizer=tokenizer)
    with pytest.raises(ValueError, match=r"' copy the' is 2 tokens: ' copy', ' the'\. Give one of them"):
        cafe.explain(PROMPTS[0], target=" copy the")
    with pytest.raises(ValueError, match="of which tokenizer"):
        CAFE(model).explain(torch.tensor([[5, 6]]), target=" copy")
    with pytest.raises(ValueError, match="target=-1"):
        cafe.explain(PROMPTS[0])
    ids = tokenizer(PROMPTS, padding=True, return_tensors="pt")["input_ids"]
    with pytest.raises(ValueError, match="may be padding: row 1 ends with '<pad>'"):
        cafe.explain(ids, target=-1)
    with pytest.raises(ValueError, match="that is the explained output itself"):
        cafe.explain(PROMPTS[0], target=" copy", against=" copy")


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_against_all_others_or_several_tokens(kind, side, tokenizer, tmp_path):
    model = build(kind, len(tokenizer)).eval().double()
    cafe = CAFE(model, tokenizer=tokenizer)
    tokenizer.padding_side = side
    copy, may, you = (tokenizer(text)["input_ids"][0] for text in (" copy", " may", " you"))
    logits = torch.stack([logits_after(model, tokenizer, prompt) for prompt in PROMPTS])
    rest = (logits.sum(1) - logits[:, you]) / (logits.shape[1] - 1)
    expected = {"others": logits[:, you] - rest, "several": logits[:, you] - logits[:, [copy, may]].mean(1)}
    for name, against in (("others", "others"), ("several", {" copy", may})):
        e = cafe.explain(PROMPTS, target=" you", against=against)
        torch.testing.assert_close(e.output, expected[name], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(e.baseline_output + e.bias + e.combined.sum(1), e.output)
        alone = cafe.explain(PROMPTS[1], target=" you", against=[" copy", may] if name == "several" else against)
        torch.testing.assert_close(alone.combined[0], e.combined[1, : alone.combined.shape[1]], rtol=1e-4, atol=1e-6)
        assert e.conflict_kind == "measured"  # which evaluates the model again
        assert e.target_name(1).endswith("rather than the others" if name == "others" else "rather than ' copy' or ' may'")
        e.save(tmp_path / "e.safetensors")
        again = type(e).load(tmp_path / "e.safetensors")
        assert again.against.equal(e.against)
        assert len(e.to_frame().against.unique()) <= 2
    with pytest.raises(ValueError, match="that is the explained output itself"):
        cafe.explain(PROMPTS[0], target=" you", against=[" you", " copy"])
    with pytest.raises(ValueError, match="give different tokens"):
        cafe.explain(PROMPTS[0], target=" you", against=[" copy", " copy"])
    with pytest.raises(ValueError, match="several outputs are for language models"):
        CAFE(torch.nn.Linear(2, 4)).explain(torch.ones(1, 2), against=[1, 2])


def test_a_word_against_others_is_generation(tokenizer):
    cafe = CAFE(build("gpt2", len(tokenizer)).eval(), tokenizer=tokenizer, words=False)
    one = cafe.explain(PROMPTS[0], target=" and", against="others", conflict="net")
    g = cafe.generation(PROMPTS[0], continuation=" and")
    torch.testing.assert_close(one.combined[0], g.explanation.combined[0], check_dtype=False, rtol=1e-4, atol=1e-6)


def test_a_tokenizer_without_padding_says_what_to_set(tokenizer):
    """As that of GPT-2."""
    cafe = CAFE(build("gpt2", len(tokenizer)).eval(), tokenizer=tokenizer)
    expected = cafe.explain(PROMPTS, target=" and", conflict="net").combined
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match=r"Set tokenizer.pad_token = tokenizer.eos_token"):
        cafe.explain(PROMPTS, target=" and")
    assert cafe.explain(PROMPTS[:1], target=" and", conflict="net").combined.shape[0] == 1
    tokenizer.pad_token = tokenizer.eos_token
    torch.testing.assert_close(cafe.explain(PROMPTS, target=" and", conflict="net").combined, expected)
