"""Padded rows of causal language models: what is explained is what ``generate`` would use, or it is refused."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")
import transformers

from cafexai import CAFE

# Tolerances are those of float32: rotary angles are.
TOKENS = [[5, 9, 3], [7, 2, 8, 4, 6, 1]]


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=20, n_positions=16, n_embd=16, n_layer=2, n_head=2, use_cache=False, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config).double().eval()
    with torch.no_grad():  # positions that matter
        model.transformer.wpe.weight.mul_(20)
    return model


def llama():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        use_cache=False,
        max_position_embeddings=32,
    )
    return transformers.LlamaForCausalLM(config).double().eval()


def padded(side):
    width = max(map(len, TOKENS))
    ids, mask = torch.zeros(len(TOKENS), width, dtype=torch.long), torch.zeros(len(TOKENS), width, dtype=torch.long)
    for row, tokens in enumerate(TOKENS):
        where = slice(width - len(tokens), width) if side == "left" else slice(0, len(tokens))
        ids[row, where], mask[row, where] = torch.tensor(tokens), 1
    return ids, mask


@pytest.mark.parametrize("make", [gpt2, llama])
def test_left_padding_does_not_move_positions(make):
    model, (ids, mask) = make(), padded("left")
    e = CAFE(model).explain(ids, additional_forward_args={"attention_mask": mask}, target=(-1, 3))
    alone = [model(torch.tensor([tokens])).logits[0, -1, 3] for tokens in TOKENS]  # what generate uses
    torch.testing.assert_close(e.output, torch.stack(alone).to(e.output.dtype), rtol=1e-6, atol=1e-8)
    assert any("position_ids were added" in note for note in e.notes)
    one = CAFE(model).explain(torch.tensor(TOKENS[:1]), target=(-1, 3))
    torch.testing.assert_close(e.combined[0, -3:], one.combined[0], rtol=1e-5, atol=1e-8)
    assert e.combined[0, :-3].abs().max() < 1e-12
    same = CAFE(model).explain(
        ids,
        additional_forward_args={"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp_min(0)},
        target=(-1, 3),
    )
    torch.testing.assert_close(same.combined, e.combined)
    assert not any("position_ids" in note for note in same.notes)


def test_what_generate_makes_is_what_is_added():
    model, (ids, mask) = gpt2(), padded("left")
    seen = []
    model.transformer.register_forward_pre_hook(lambda *given: seen.append(given[2].get("position_ids")), with_kwargs=True)
    model.generate(ids, attention_mask=mask, max_new_tokens=1, do_sample=False, pad_token_id=0)
    made = seen[0]
    seen.clear()
    CAFE(model).explain(ids, additional_forward_args={"attention_mask": mask}, target=(-1, 3))
    assert made[mask == 1].equal(torch.as_tensor(seen[0])[mask == 1])


@pytest.mark.parametrize("make", [gpt2, llama])
def test_a_target_at_padding_is_refused(make):
    model, (ids, mask) = make(), padded("right")
    options = {"additional_forward_args": {"attention_mask": mask}}
    for target in ((4, 3), [(4, 3), (4, 3)], torch.tensor([[4, 3], [4, 3]]), (4, [3, 3])):
        with pytest.raises(ValueError, match=r"of row 0 is padding.*Its last token is at 2"):
            CAFE(model).explain(ids, target=target, **options)
    with pytest.raises(ValueError, match=r"output=\.\.\.\): position -1 of row 0 is padding"):
        CAFE(model).explain(ids, output="logits[:, -1]", target=3, **options)
    with pytest.raises(ValueError, match="4 positions for 6 tokens"):
        CAFE(model).explain(ids, target=(-1, 3), output=lambda out: out.logits[:, 2:], **options)
    alone = [model(torch.tensor([tokens])).logits[0, -1, 3] for tokens in TOKENS]
    last = [(-1, 3), [(-1, 3), (-1, 3)], torch.tensor([[-1, 3], [-1, 3]]), (-1, [3, 3]), (torch.tensor([-1, -1]), 3)]
    for target in ([(2, 3), (5, 3)], *last):  # -1 is the last real token
        e = CAFE(model).explain(ids, target=target, **options)
        torch.testing.assert_close(e.output, torch.stack(alone).to(e.output.dtype), rtol=1e-6, atol=1e-8)


def test_arguments_by_position_are_refused_where_positions_are_missing():
    class Own(transformers.LlamaForCausalLM):
        def forward(self, input_ids, attention_mask=None, position_ids=None):
            return super().forward(input_ids, attention_mask=attention_mask, position_ids=position_ids)

    model, (ids, mask) = Own(llama().config).double().eval(), padded("left")
    with pytest.raises(ValueError, match="Give the arguments by name"):
        CAFE(model).explain(ids, additional_forward_args=(mask,), target=(-1, 3))


def test_other_models_and_rows_without_padding_are_left_alone():
    model = gpt2()
    ids = torch.tensor([TOKENS[1]])
    e = CAFE(model).explain(ids, additional_forward_args={"attention_mask": torch.ones_like(ids)}, target=(-1, 3))
    assert not any("position_ids" in note for note in e.notes)


@pytest.mark.parametrize("make", [gpt2, llama])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_without_a_mask_is_refused(make, side):
    model, (ids, mask) = make(), padded(side)
    pad = 0 if model.config.pad_token_id is None else model.config.pad_token_id
    ids[mask == 0] = pad
    model.config.eos_token_id = model.generation_config.eos_token_id = pad  # no padding token: people pad with the end
    for options in ({"target": -1}, {"target": (-1, 3)}, {"output": "logits[:, -1]", "target": 3}):
        with pytest.raises(
            ValueError, match=f"row 0 {'begins' if side == 'left' else 'ends'} with '0'.*'attention_mask': mask"
        ):
            CAFE(model).explain(ids, **options)
    with pytest.raises(ValueError, match="there is no attention mask"):
        CAFE(model).attribute(ids, target=(-1, 3))
    said = {"additional_forward_args": {"attention_mask": torch.ones_like(ids)}}  # the user says that all are real
    assert CAFE(model).explain(ids, target=(-1, 3), **said).combined.shape == ids.shape


def test_a_text_that_begins_with_its_end_token_is_no_padding():
    model = gpt2()  # its bos and eos are 0
    ids = torch.tensor([[0, 5, 9], [0, 7, 2]])
    assert len(CAFE(model).explain(ids, target=-1)) == 2
    for row in ([0, 0, 9], [0, 5, 0]):
        with pytest.raises(ValueError, match="may be padding"):
            CAFE(model).explain(torch.tensor([row]), target=-1)
    assert len(CAFE(model).explain(torch.tensor([[5, 9, 0]]), target=(1, 3))) == 1  # padding behind it is not read
