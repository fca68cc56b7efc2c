"""Texts and pictures as people have them: strings, encodings, words, PIL images."""

import numpy as np
import pytest
import torch
from torch import nn

from cafexai import CAFE, Explanation, Refine

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
TEXTS = ["The film was unbelievably superb!", "Not good", "A café in Łódź, don't ask..."]


def word_pieces():
    pieces = (
        "[PAD] [UNK] [CLS] [SEP] the film was un ##believ ##ably super ##b ! not good a cafe in lodz , don ' t ask .".split()
    )
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=32, **special)


def trained(model, trainer, before, decoder):
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer, made.decoder = before, decoder
    made.train_from_iterator(TEXTS * 5, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>")


def byte_pairs():
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=290, special_tokens=["<pad>"], initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()
    )
    level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return trained(tokenizers.models.BPE(), trainer, level, tokenizers.decoders.ByteLevel())


def sentence_pieces():
    trainer = tokenizers.trainers.UnigramTrainer(vocab_size=60, special_tokens=["<pad>", "<unk>"], unk_token="<unk>")
    return trained(tokenizers.models.Unigram(), trainer, tokenizers.pre_tokenizers.Metaspace(), tokenizers.decoders.Metaspace())


def bert(size=30):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=size, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=3
    )
    return transformers.BertForSequenceClassification(config).eval().double()


def test_strings_give_words(tmp_path):
    tokenizer, model = word_pieces(), bert()
    e = CAFE(model).explain(TEXTS[:2], target=1, tokenizer=tokenizer)
    assert e.names(0) == ("The", "film", "was", "unbelievably", "superb", "!", "(special: [CLS] [SEP])")
    assert e.names(1) == ("Not", "good", "(special: [CLS] [SEP])", "", "", "", "")
    assert (e.positive[1, 3:] == 0).all()
    assert e.kind == "text"
    assert e.values() is None
    tokens = CAFE(model).explain(TEXTS[:2], target=1, tokenizer=tokenizer, words=False)
    assert tokens.names(1)[:4] == ("[CLS]", "not", "good", "[SEP]")
    first = tokens.names(0).index("un")
    for name in ("positive", "negative", "combined"):
        ours, theirs = getattr(e, name), getattr(tokens, name)
        torch.testing.assert_close(ours[0, 3], theirs[0, first : first + 3].sum())
        torch.testing.assert_close(ours[0, 6], theirs[0, 0] + theirs[0, -1])
        torch.testing.assert_close(ours[1, 2], theirs[1, 0] + theirs[1, 3:].sum())
        torch.testing.assert_close(ours.sum(1), theirs.sum(1))
    e.save(tmp_path / "e.safetensors")
    again = Explanation.load(tmp_path / "e.safetensors")
    assert again.names(1) == e.names(1)
    assert again[1].names() == e.names(1)
    frame = e.to_frame()
    assert frame[frame.row == 1].feature.tolist() == ["Not", "good", "(special: [CLS] [SEP])", "(bias)"]
    assert set(e.top(1, 5).feature) == {"Not", "good", "(special: [CLS] [SEP])"}
    assert e.to_shap().data[1].tolist() == list(e.names(1))
    text = e.ledger(0)
    assert "unbelievably" in text
    assert not any(str(number) in text.split() for number in tokenizer(TEXTS[0])["input_ids"][1:-1] if number > 9)


def test_encodings_go_straight_in():
    tokenizer, model = word_pieces(), bert()
    strings = CAFE(model).explain(TEXTS[:2], target=1, tokenizer=tokenizer)
    encoding = tokenizer(TEXTS[:2], padding=True, return_tensors="pt")
    ids, mask = encoding["input_ids"], encoding["attention_mask"]
    for inputs in (encoding, dict(encoding), tokenizer(TEXTS[:2], padding=True), {**encoding, "length": torch.tensor([1, 2])}):
        e = CAFE(model).explain(inputs, target=1, tokenizer=tokenizer)
        assert torch.equal(e.positive, strings.positive)
        assert [name.lower() for name in e.names(1)] == [name.lower() for name in strings.names(1)]
    by_hand = CAFE(model).explain(ids, target=1, additional_forward_args={"attention_mask": mask}, tokenizer=tokenizer)
    torch.testing.assert_close(by_hand.positive, strings.positive)
    plain = CAFE(model).explain(encoding, target=1)
    assert plain.positive.shape == ids.shape
    parts = CAFE(model).explain(TEXTS[:2], target=1, tokenizer=tokenizer, batch_size=1)
    torch.testing.assert_close(parts.positive, strings.positive)
    single = CAFE(model).explain(TEXTS[1], target=1, tokenizer=tokenizer)
    torch.testing.assert_close(single.combined[0, :2], strings.combined[1, :2])


@pytest.mark.parametrize("netting", ["path", "feature"])
def test_words_for_all_classes_and_differences(netting):
    tokenizer, model = word_pieces(), bert()
    cafe = CAFE(model, variant="published", netting=netting, class_names=["a", "b", "c"], probability="softmax")
    every = cafe.explain(TEXTS[:2], target="all", tokenizer=tokenizer)
    e = cafe.explain(TEXTS[:2], target="c", against="a", tokenizer=tokenizer)
    torch.testing.assert_close(e.combined, every[2].combined - every[0].combined)
    assert e[1].target_name() == "logit of 'c' rather than 'a'"


def test_pairs_of_words_are_sums_of_pairs_of_tokens():
    tokenizer, model = word_pieces(), bert()
    cafe = CAFE(model, variant="published", netting="feature")
    e = cafe.explain(TEXTS[:2], target=1, tokenizer=tokenizer, pairs=True)
    tokens = cafe.explain(TEXTS[:2], target=1, tokenizer=tokenizer, pairs=True, words=False)
    torch.testing.assert_close(e.conflict_pairs.sum((1, 2)), tokens.conflict_pairs.sum((1, 2)))
    at = tokens.names(0).index("un")
    torch.testing.assert_close(e.conflict_pairs[0, 3, 0], tokens.conflict_pairs[0, at : at + 3, 1].sum())
    torch.testing.assert_close(e.conflict_pairs[0, 0, -1], tokens.conflict_pairs[0, 1, -1])
    assert all(up and down for up, down, _ in e.pairs(1))


@pytest.mark.parametrize("make", [byte_pairs, sentence_pieces])
def test_words_of_other_tokenizers(make):
    tokenizer = make()
    e = CAFE(bert(len(tokenizer))).explain(TEXTS, target=0, tokenizer=tokenizer)
    read = ["".join(e.names(row)).replace("(special: <pad>)", "") for row in range(3)]
    assert read == [text.replace(" ", "") for text in TEXTS]
    assert e.names(1)[:2] == ("Not", "good")
    assert "café" in e.names(2)
    assert "unbelievably" in e.names(0)


def test_groups_and_layers_take_tokens():
    tokenizer, model = word_pieces(), bert()
    e = CAFE(model).explain(TEXTS[:2], target=1, tokenizer=tokenizer, feature_groups={"begin": [0, 1]})
    assert e.names(0)[0] == "begin"
    assert e.kind == "table"
    hidden = CAFE(model).explain(TEXTS[:2], target=1, tokenizer=tokenizer, layer="bert.embeddings")
    assert hidden.tokens is None


def test_unknown_words_are_words():
    e = CAFE(bert()).explain(["a zebra"], target=1, tokenizer=word_pieces())
    assert e.names() == ("a", "zebra", "(special: [CLS] [SEP])")
    assert e.positive[0, 1] > 0


def test_short_rows_are_shown_without_what_fills_them_up():
    e = CAFE(bert()).explain(TEXTS[:2], target=1, tokenizer=word_pieces())
    assert [line.split()[0] for line in e.ledger(1).splitlines()[2:8]].count("0.000") == 0
    assert "others" not in e.ledger(1)


def test_texts_that_are_too_long_are_named():
    tokenizer = word_pieces()
    e = CAFE(bert()).explain([TEXTS[1], "good " * 40], target=1, tokenizer=tokenizer)
    assert any("Cut after 32 tokens" in note and "row 1" in note for note in e.notes)


def test_what_texts_need_is_said():
    model, tokenizer = bert(), word_pieces()
    with pytest.raises(ValueError, match=r"explain\(\['Not good'\], ...\): which tokenizer"):
        CAFE(model).explain("Not good")
    cafe = CAFE(model, tokenizer=tokenizer)
    e = cafe.explain(TEXTS[:1])
    with pytest.raises(ValueError, match="it perturbs tokens"):
        cafe.refine(e, Refine(20, perturb=lambda rows, generator: rows))
    with pytest.raises(ValueError, match="padding=True"):
        CAFE(model).explain(tokenizer(TEXTS), target=0)
    with pytest.raises(ValueError, match="by name, too"):
        CAFE(model).explain(tokenizer(TEXTS[0], return_tensors="pt"), target=0, additional_forward_args=(torch.ones(1, 9),))


# ---- pictures ----------------------------------------------------------------------------------------------------------


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2)).double().eval()


def prepared(picture):
    x = torch.tensor(np.array(picture)).permute(2, 0, 1) / 255
    return ((x - 0.5) / 0.2).double()


def test_pictures_through_the_preprocessing_of_the_model():
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
    expected = CAFE(network()).explain(torch.stack([prepared(one) for one in pixels]), target=1)
    pictures = [image.fromarray(one) for one in pixels]
    for inputs in (pictures, pixels, list(pixels), torch.tensor(pixels)):
        e = CAFE(network()).explain(inputs, target=1, preprocess=prepared)
        assert torch.equal(e.positive, expected.positive)
        torch.testing.assert_close(e.features.display, torch.tensor(pixels).permute(0, 3, 1, 2).double() / 255)  # as it was
    single = CAFE(network()).explain(pictures[1], target=1, preprocess=prepared)
    torch.testing.assert_close(single.positive[0], expected.positive[1])
    assert single.kind == "image"
    small = CAFE(network()).explain(
        [one.resize((16, 16)) for one in pictures], target=1, preprocess=lambda p: prepared(p.resize((8, 8)))
    )
    assert small.display is None  # of another size
    with pytest.raises(ValueError, match="preprocess="):
        CAFE(network()).explain(pictures)
    with pytest.raises(ValueError, match="it gives a list; a model takes tensors"):
        CAFE(network()).explain(pictures, preprocess=lambda p: [1])
    with pytest.raises(ValueError, match="different shapes"):
        CAFE(network()).explain([pictures[0], pictures[1].resize((4, 4))], preprocess=prepared)
    with pytest.raises(ValueError, match="give a function"):
        CAFE(network()).explain(pictures, preprocess="imagenet")


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["caf", "##é", "##s", "a"], ["cafés", "a"]),
        (["un", "do</w>", "it</w>"], ["undo", "it"]),
        (["▁un", "do", "▁it", ",", "▁a"], ["undo", "it", ",", "a"]),
        (["one", "two"], ["one", "two"]),
    ],
)
def test_marks_of_words(tokens, words):
    class Plain:
        def convert_ids_to_tokens(self, ids):
            return [tokens[i] for i in ids]

    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(4 * len(tokens), 1))
    e = CAFE(model).explain(torch.arange(len(tokens))[None], tokenizer=Plain())
    assert list(e.names()) == words


def with_mask():
    made = word_pieces()
    made.add_special_tokens({"mask_token": "[MASK]"})
    return made


def test_words_are_compared_with_the_mask_token():
    """None and "mask" are the ids by hand, "zero" is a zero embedding, other baselines stay what they are."""
    tokenizer, model = with_mask(), bert(40)
    e = CAFE(model).explain(TEXTS[:2], target=1, tokenizer=tokenizer)
    ids = tokenizer(TEXTS[:2], padding=True, return_tensors="pt")
    special = torch.isin(ids["input_ids"], torch.tensor([0, 2, 3]))
    by_hand = torch.where(special, ids["input_ids"], tokenizer.mask_token_id)
    expected = CAFE(model).explain(ids, by_hand, target=1, tokenizer=tokenizer)
    assert torch.equal(e.combined, expected.combined)
    assert torch.equal(e.combined, CAFE(model).explain(TEXTS[:2], "mask", target=1, tokenizer=tokenizer).combined)
    assert any("[MASK]" in note for note in e.notes)
    assert e.names(0)[-1] == ""  # special tokens stay: nothing to show
    assert e.combined[0, -1] == 0
    torch.testing.assert_close(e.baseline_output + e.combined.sum(1), e.output)
    plain = CAFE(model).explain(TEXTS[:2], target=1, tokenizer=word_pieces())  # it has none
    zero = CAFE(model).explain(TEXTS[:2], "zero", target=1, tokenizer=tokenizer)
    assert torch.equal(plain.combined, zero.combined)
    assert not any("mask token" in note for note in (*plain.notes, *zero.notes))
    one = CAFE(model).explain(TEXTS[:2], 1, target=1, tokenizer=tokenizer)
    assert torch.equal(one.combined, CAFE(model).explain(TEXTS[:2], 1, target=1, tokenizer=word_pieces()).combined)
    with pytest.raises(ValueError, match="no mask token"):
        CAFE(model).explain(TEXTS[:2], "mask", target=1, tokenizer=word_pieces())


def test_words_are_whole_in_blocks():
    tokenizer, model = word_pieces(), bert()
    cafe, mask = CAFE(model, tokenizer=tokenizer), tokenizer.unk_token_id
    e = cafe.explain_blocks(TEXTS[:2], mask, 1)
    assert e.names(0) == ("The", "film", "was", "unbelievably", "superb", "!", "(special: [CLS] [SEP])")
    assert e.blocks[0].tolist() == [True, False, True, False, True, False, True]
    assert e.if_missing_error.abs().max() < 1e-10
    encoding = tokenizer(TEXTS[:2], padding=True, return_tensors="pt")
    ids, padding = encoding["input_ids"], encoding["attention_mask"]
    # [CLS] the film was un ##believ ##ably super ##b ! [SEP]: every second word, and what is special, the seventh entry
    inside = torch.tensor([1, 1, 0, 1, 0, 0, 0, 1, 1, 0, 1]).bool()
    without = torch.where(inside, mask, ids[0])
    changed = model(input_ids=without[None], attention_mask=padding[:1]).logits
    torch.testing.assert_close(e.checks.lost[0, 0], (e.output[0] - changed[0, 1]).detach())
    with pytest.raises(ValueError, match='baselines="mask" if the tokenizer has'):
        cafe.explain_blocks(TEXTS[:2], "zero", 1)


def test_sentence_pairs_and_the_own_spelling():
    tokenizer, model = word_pieces(), bert()
    cafe = CAFE(model, tokenizer=tokenizer)
    pairs = [("The film", "was GOOD"), ("Not good", "the film was superb")]
    e = cafe.explain(pairs, target=1, baselines="zero")
    encoding = tokenizer(*map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt")
    by_hand = cafe.explain(encoding, target=1, baselines="zero")
    torch.testing.assert_close(e.combined, by_hand.combined)
    assert e.names(0)[:4] == ("The", "film", "was", "GOOD")
    assert e.names(0)[4].startswith("(special: [CLS] [SEP]")
    with pytest.raises(ValueError, match="alone, or in pairs"):
        cafe.explain([("a", "b", "c")], target=1)
    with pytest.raises(ValueError, match=r"cafe\.generation\(messages\)"):
        cafe.explain([{"role": "user", "content": "good"}], target=1)
    with pytest.raises(TypeError, match=r"cafe\.generation\(prompt, segments=\.\.\.\)"):
        cafe.explain("good", target=1, segments={"a": (0, 4)})


def test_words_with_an_apostrophe_are_one():
    e = CAFE(bert(), tokenizer=word_pieces()).explain("I can't, film", target=1, baselines="zero")
    assert e.names()[:4] == ("I", "can't", ",", "film")
