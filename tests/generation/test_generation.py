"""Generated texts: all tokens from one forward pass, equal to one explanation per token."""

import pytest
import torch

from cafexai import CAFE, Explanation
from cafexai._inputs.word_spans import word_index, word_names

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
TEXTS = ["You may copy the Program and distribute it.", "But you can't copy the licence twice, they said."]
PROMPT = "You can't copy the Program"


def byte_pairs():
    """A tokenizer of bytes that knows the words of the texts."""
    level = tokenizers.pre_tokenizers.ByteLevel
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer, made.decoder = level(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<pad>", "<eos>"], initial_alphabet=level.alphabet(), show_progress=False
    )
    made.train_from_iterator(TEXTS * 5, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>")


@pytest.fixture(scope="module")
def tokenizer():
    return byte_pairs()


def build(kind, size):
    torch.manual_seed(0)
    ends = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0, "vocab_size": size}
    if kind == "gpt2":
        config = transformers.GPT2Config(n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3, **ends)
        return transformers.GPT2LMHeadModel(config).eval()
    if kind == "llama":  # grouped queries
        config = transformers.LlamaConfig(
            hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            initializer_range=0.3, **ends,
        )  # fmt: skip
        return transformers.LlamaForCausalLM(config).eval()
    if kind == "t5":
        config = transformers.T5Config(
            d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0, **ends
        )  # fmt: skip
        return transformers.T5ForConditionalGeneration(config).eval()
    config = transformers.BartConfig(
        d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=64, decoder_start_token_id=1, forced_eos_token_id=None,
        init_std=0.3, **ends,
    )  # fmt: skip
    return transformers.BartForConditionalGeneration(config).eval()


def check_sums(g):
    e = g.explanation
    torch.testing.assert_close(e.baseline_output + e.bias + e.combined.sum(1), e.output, atol=1e-4, rtol=1e-5)
    assert (e.combined[~g.seen] == 0).all()  # what comes later


@pytest.mark.parametrize("kind", ["gpt2", "llama", "t5", "bart"])
def test_equal_to_one_explanation_per_token(kind, tokenizer):
    model = build(kind, len(tokenizer))
    g = CAFE(model, tokenizer=tokenizer, words=False).generation(PROMPT, max_new_tokens=4)
    check_sums(g)
    ids = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    whole = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False, pad_token_id=0)
    encoder = kind in ("t5", "bart")
    made = whole[0, 1:] if encoder else whole[0, ids.shape[1] :]
    assert g.text == "".join(tokenizer.decode([one]) for one in made.tolist())
    for step, token in enumerate(made.tolist()):
        place = step if encoder else ids.shape[1] + step - 1
        if encoder:
            cafe = CAFE(lambda x, y: model(input_ids=x, decoder_input_ids=y, use_cache=False).logits)
            inputs = (ids, whole[:, :-1])
        else:
            cafe, inputs = CAFE(lambda x: model(input_ids=x, use_cache=False).logits), whole[:, :-1]
        pick = {"output": lambda logits, place=place: logits[:, place], "target": token, "against": "others"}
        e = cafe.explain(inputs, conflict="net", **pick)
        for name in ("positive", "negative", "combined"):
            torch.testing.assert_close(
                getattr(g.explanation, name)[step], e.flat(getattr(e, name))[0], atol=1e-5, rtol=1e-5, check_dtype=False
            )
        with torch.no_grad():
            logits = model(input_ids=ids, decoder_input_ids=whole[:, :-1]).logits if encoder else model(whole[:, :-1]).logits
        own = logits[0, place]
        rest = torch.cat([own[:token], own[token + 1 :]]).mean()
        torch.testing.assert_close(g.explanation.output[step], own[token] - rest, atol=1e-4, rtol=1e-4, check_dtype=False)
        torch.testing.assert_close(
            g.explanation.probability[step], own.softmax(0)[token], atol=1e-5, rtol=1e-3, check_dtype=False
        )


@pytest.mark.parametrize("kind", ["gpt2", "llama", "t5", "bart"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batches_equal_single_prompts(kind, side, tokenizer):
    cafe = CAFE(build(kind, len(tokenizer)), tokenizer=tokenizer)
    prompts = [PROMPT, "copy the"]
    tokenizer.padding_side = side
    batch = cafe.generation(tokenizer(prompts, padding=True, return_tensors="pt"), max_new_tokens=3)
    texts = cafe.generation(prompts, max_new_tokens=3)
    for prompt, padded, listed in zip(prompts, batch, texts, strict=True):
        alone = cafe.generation(prompt, max_new_tokens=3)
        for one in (padded, listed):
            assert one.generated == alone.generated
            torch.testing.assert_close(one.by("token").scores, alone.by("token").scores)


def test_what_is_explained(tokenizer):
    model = build("gpt2", len(tokenizer))
    cafe = CAFE(model, tokenizer=tokenizer)
    ids = tokenizer(PROMPT + " and you", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        own = model(ids).logits[0, -3:-1]
    made = ids[0, -2:]
    copy, the = (tokenizer(text)["input_ids"][0] for text in (" copy", " the"))
    rows = torch.arange(2)
    expected = {
        "logit": ({"against": None}, own[rows, made]),
        "token": ({"against": " copy"}, own[rows, made] - own[:, copy]),
        "tokens": ({"against": [" copy", the]}, own[rows, made] - own[:, [copy, the]].mean(1)),
        "log": ({"log_probability": True}, own.log_softmax(1)[rows, made]),
    }
    for options, output in expected.values():
        g = cafe.generation(PROMPT, continuation=" and you", **options)
        assert g.generated == (" and", " you")
        check_sums(g)
        torch.testing.assert_close(g.explanation.output, output, atol=1e-4, rtol=1e-4, check_dtype=False)
    # with frozen weights, the scores of the log-probability are those of the logit minus the weighted mean of all logits
    weights = own.softmax(1)
    one = cafe.generation(PROMPT, continuation=" and you", log_probability=True).by("token").explanation
    twin = CAFE(
        lambda x: (lambda z: z[:, -2:][:, [0], made[:1]] - (z[:, -2] * weights[0]).sum(1, keepdim=True))(model(x).logits)
    )
    torch.testing.assert_close(one.combined[0], twin.explain(ids[:, :-1]).combined[0], atol=1e-4, rtol=1e-4, check_dtype=False)
    assert cafe.generation(PROMPT, continuation=" and", against=" copy").explanation.target_name() == (
        "next token ' and' after ' Program' rather than ' copy'"
    )


def test_words_spans_and_tables(tokenizer, tmp_path):
    cafe = CAFE(build("gpt2", len(tokenizer)), tokenizer=tokenizer)
    g = cafe.generation(PROMPT + ", they", continuation=" said you may")
    assert g.sources[:7] == ("You", "can't", "copy", "the", "Program", ",", "they")
    tokens = g.by("token")
    torch.testing.assert_close(g.scores.sum(0), tokens.scores.sum(0))
    part = g.span(0, 2)
    torch.testing.assert_close(part.scores[:, 0], g.scores[:, :2].sum(1))
    torch.testing.assert_close(part.explanation.output[0], g.explanation.output[:2].sum())
    check_sums(part)
    frame = g.to_frame()
    assert len(frame) == int(g.seen.sum())
    assert frame[frame.step == 1].combined.sum() == pytest.approx(g.scores[:, 1].sum().item())
    g.explanation.save(tmp_path / "g.safetensors")
    again = Explanation.load(tmp_path / "g.safetensors")
    assert again.target_name(1) == g.explanation.target_name(1)
    assert again[1:].target_name() == g.explanation.target_name(1)
    page = cafe.generation("<b>you", continuation=" said").html()
    assert "<b>you" not in page
    assert "#t0" in page
    assert "next token" in g.explanation.ledger(0)
    with pytest.raises(ValueError, match="0 <= start < stop"):
        g.span(2, 2)
    with pytest.raises(ValueError, match="Allowed values: 'token', 'word'"):
        g.by("message")


def test_chats_and_segments(tokenizer):
    model = build("gpt2", len(tokenizer))
    cafe = CAFE(model, tokenizer=tokenizer)
    chat = [{"role": "system", "content": "you may copy"}, {"role": "user", "content": "can't I?"}]
    with pytest.raises(ValueError, match="no chat template"):
        cafe.generation(chat, max_new_tokens=1)
    tokenizer.chat_template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    try:
        g = cafe.generation(chat, max_new_tokens=2)
        parts = [{**one, "content": [{"type": "text", "text": one["content"]}]} for one in chat]
        torch.testing.assert_close(cafe.generation(parts, max_new_tokens=2).scores, g.scores)
        with pytest.raises(ValueError, match="parts of the types 'image'"):
            cafe.generation([{"role": "user", "content": [{"type": "image", "url": "x"}]}], max_new_tokens=2)
    finally:
        tokenizer.chat_template = None
    messages = g.by("message")
    assert messages.sources == ("1 system: you may copy", "2 user: can't I?", "(template)", "(generated)")
    torch.testing.assert_close(messages.scores.sum(0), g.scores.sum(0))
    text = "copy the Program. you said"
    for segments in ({"first": (0, 17), "second": (18, 26)}, {"first": "copy the Program.", "second": "you said"}):
        g = cafe.generation(text, continuation=" the", segments=segments).by("segment")
        assert g.sources[:2] == ("first", "second")
        words = cafe.generation(text, continuation=" the")
        torch.testing.assert_close(g.scores[0, 0], words.scores[:4, 0].sum())
    with pytest.raises(ValueError, match="overlap"):
        cafe.generation(text, continuation=" the", segments={"a": (0, 9), "b": (8, 12)})
    with pytest.raises(ValueError, match="occurs 0 times"):
        cafe.generation(text, continuation=" the", segments={"a": "nothing"})


def test_mistakes_are_named(tokenizer):
    model = build("gpt2", len(tokenizer))
    cafe = CAFE(model, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="is 2 tokens: ' copy', ' the'"):
        cafe.generation(PROMPT, continuation=" and", against=" copy the")
    with pytest.raises(ValueError, match="itself"):
        cafe.generation(PROMPT, continuation=" and", against=" and")
    with pytest.raises(ValueError, match="which tokenizer"):
        CAFE(model).generation(PROMPT)
    with pytest.raises(ValueError, match="no generate"):
        CAFE(torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9))).generation([1, 2])
    with pytest.raises(ValueError, match="max_new_tokens=0"):
        cafe.generation(PROMPT, max_new_tokens=0)
    with pytest.raises(ValueError, match=r"the model has 64 positions\. Shorten the prompt, or give max_new_tokens fewer"):
        cafe.generation(PROMPT, max_new_tokens=64)
    with pytest.raises(ValueError, match="the prompt has 70 tokens"):
        cafe.generation([5] * 70, continuation=" and")
    assert len(cafe.generation([5] * 63, max_new_tokens=2)) <= 2  # as many as fit
    with pytest.raises(ValueError, match=r"target=\(-1, token id\)"):
        cafe.explain(PROMPT)


def test_the_heat_map_shows_all_sources(tokenizer):
    pytest.importorskip("matplotlib")
    g = CAFE(build("gpt2", len(tokenizer)), tokenizer=tokenizer).generation(PROMPT, continuation=" and you may")
    axes = g.plot().axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [name.strip() for name in g.sources]
    assert [label.get_text().split("\n")[0] for label in axes.get_xticklabels()] == ["and", "you", "may"]
    import matplotlib as mpl

    assert tuple(g.plot(figsize=(4, 3)).get_size_inches()) == (4, 3)
    assert g.plot(style="paper").get_figwidth() in (3.3, 7.0)
    given = mpl.figure.Figure().subplots()
    assert g.plot(ax=given) is given.figure
    assert len(given.get_yticklabels()) == len(g.sources)
    folded = g.plot(most=3).axes[0]
    assert folded.get_yticklabels()[-1].get_text() == f"({len(g.sources) - 2} others)"
    with pytest.raises(ValueError, match="Allowed values: 'combined'"):
        g.plot("net")


def test_words_follow_the_text():
    text = "I can't, 東京 x"
    spans = [(0, 1), (2, 5), (5, 6), (6, 7), (7, 8), (9, 10), (10, 11), (11, 12), (12, 13)]
    index = word_index(text, spans, [0, 1, 2, 3, 4, 5, 6, 7, 7])
    assert word_names(text, spans, index) == ("I", "can't", ",", "東", "京", "x")
    assert word_index("ab", [None, (0, 1), (1, 2), (2, 2)]) == [-1, 0, 0, -1]
