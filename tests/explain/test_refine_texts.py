"""Corrections of scores of words and tokens, and blocks of words."""

import pytest
import torch

from cafexai import CAFE, Background, Refine

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
WORDS = ["[UNK]", "[MASK]", "[PAD]", "the", "film", "was", "not", "bad", "at", "all", "ever"]


def make_tokenizer(**special):
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]", **special)


def bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, pad_token_id=2
    )
    return transformers.BertForSequenceClassification(config).eval().double()


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(WORDS), n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=2, eos_token_id=2
    )
    return transformers.GPT2LMHeadModel(config).eval().double()


TEXTS = ["the film was not bad", "not bad at all"]


@pytest.mark.parametrize("words", [True, False])
def test_words_are_refined_by_setting_them_to_the_mask_token(words):
    cafe = CAFE(bert(), tokenizer=make_tokenizer(mask_token="[MASK]"), words=words)
    e = cafe.explain(TEXTS, target=1)
    refined = cafe.refine(e, 60)
    assert refined.refined.shape == e.combined.shape
    torch.testing.assert_close(refined.refinement.correction.sum(1), torch.zeros(2, dtype=torch.float64), atol=1e-9, rtol=0)
    assert (refined.refinement.refined_error <= refined.refinement.combined_error * 1.2).all()
    alone = cafe.refine(cafe.explain(TEXTS[1], target=1), 60)
    torch.testing.assert_close(alone.refined[0], cafe.refine(e[1], 60).refined[0, :4], rtol=1e-4, atol=1e-6)


def test_the_corrections_are_right_for_two_words():
    model = bert()
    cafe = CAFE(model, tokenizer=make_tokenizer(mask_token="[MASK]"))
    e = cafe.explain("not bad", target=1)
    refined = cafe.refine(e, Refine(40, ridge=1e-9))
    with torch.no_grad():
        outputs = [model(input_ids=torch.tensor([ids])).logits[0, 1] for ids in ([6, 7], [1, 7], [6, 1], [1, 1])]
    both, no_first, no_second, none = outputs
    lost = torch.stack([both - no_first, both - no_second])
    rest = both - none - lost.sum()  # what only removing both does: each has half of it
    torch.testing.assert_close(refined.refined[0], lost + rest / 2, rtol=1e-3, atol=1e-5)


def test_tokens_without_a_mask_token_are_refined_at_zero_embeddings():
    model = gpt2()
    cafe = CAFE(model, tokenizer=make_tokenizer(eos_token="[PAD]"))
    e = cafe.explain(TEXTS[0], target=-1)
    assert cafe.refine(e).refined.shape == e.combined.shape
    ids = torch.tensor([[3, 4, 5, 6, 7]])
    plain = CAFE(model).explain(ids, target=-1)
    torch.testing.assert_close(CAFE(model).refine(plain).refined, cafe.refine(e).refined)
    with pytest.raises(ValueError, match="it perturbs tokens, and the scores are of words"):
        cafe.refine(e, Refine(20, perturb=lambda rows, generator: rows))


def test_blocks_of_words_need_a_code():
    cafe = CAFE(gpt2(), tokenizer=make_tokenizer(eos_token="[PAD]"))
    with pytest.raises(ValueError, match=r"else an id, such as baselines=tokenizer\.eos_token_id"):
        cafe.explain_blocks(TEXTS[0], target=-1)
    e = cafe.explain_blocks(TEXTS[0], target=-1, baselines=cafe.tokenizer.eos_token_id)
    assert list(e.names()) == TEXTS[0].split()
    torch.testing.assert_close(e.combined.sum(1), e.output - e.baseline_output)
    masked = CAFE(bert(), tokenizer=make_tokenizer(mask_token="[MASK]")).explain_blocks(TEXTS[0], target=1)
    assert list(masked.names()) == TEXTS[0].split()


def test_scores_over_several_baselines_are_refined_over_all_of_them():
    """In a model that adds up over tokens the scores are exact, so that there is nothing to correct."""
    torch.manual_seed(0)
    embedding, head = torch.nn.Embedding(20, 6).double(), torch.nn.Linear(6, 3).double()

    class Sum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = embedding, head

        def forward(self, ids):
            return self.head(torch.tanh(self.embedding(ids)).mean(1))

    cafe = CAFE(Sum().eval())
    ids, typical = torch.randint(1, 20, (1, 6)), torch.randint(0, 20, (4, 6))
    e = cafe.explain(ids, target=1, baselines=Background(typical, k=4))
    assert torch.allclose(cafe.refine(e, 60).refined, e.combined, atol=1e-6)
