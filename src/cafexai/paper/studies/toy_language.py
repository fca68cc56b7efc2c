"""A small language in which person, verb and "not" decide on the next word, and language models trained on it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..._extras import needs
from ..models import seeded

NAMES = "anna ben carla dan emma finn greta hugo ida jonas karla leo".split()
VERBS, ADVERBS = "takes paints sells".split(), "often never today gladly slowly".split()
THINGS = "cup ball book hat lamp coat boat ring chair drum kite spoon".split()
UNKNOWN, NOT, THE, NOTHING, END = "<unk>", "not", "the", "nothing", "."
WORDS = (UNKNOWN, NOT, THE, NOTHING, END, *NAMES, *VERBS, *ADVERBS, *THINGS)
IDS = {word: number for number, word in enumerate(WORDS)}
FAMILIES, BEFORE = 4, 2  # kinds of people; sentences before the question


def write_sentence(draw: random.Random) -> list[str]:
    """ "anna often takes the cup .": kind of person and verb say which thing; after "not" it is nothing."""
    name, verb = draw.randrange(len(NAMES)), draw.randrange(len(VERBS))
    denied = draw.random() < 0.25
    thing = NOTHING if denied else THINGS[name % FAMILIES * len(VERBS) + verb]
    adverbs = [draw.choice(ADVERBS)] if draw.random() < 0.5 else []
    return [NAMES[name], *adverbs, *([NOT] if denied else []), VERBS[verb], THE, thing, END]


def write_text(draw: random.Random) -> list[str]:
    """A few sentences."""
    return [word for _ in range(BEFORE + 1) for word in write_sentence(draw)]


def write_question(draw: random.Random) -> tuple[list[str], str]:
    """Sentences without the last thing, and this thing."""
    words = write_text(draw)
    return words[:-2], words[-2]


def encode(words: Sequence[str]) -> list[int]:
    """Words as ids."""
    return [IDS[word] for word in words]


def make_tokenizer() -> Any:
    """A tokenizer of transformers that splits at spaces."""
    tokenizers = needs("tokenizers", "truth")
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel(IDS, unk_token=UNKNOWN))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return needs("transformers", "truth").PreTrainedTokenizerFast(tokenizer_object=raw, unk_token=UNKNOWN)


def build(kind: str, seed: int, width: int, layers: int) -> Any:
    """A GPT-2 kind, or a Llama kind with grouped queries: two heads of keys and values for four of queries."""
    transformers = needs("transformers", "truth")
    shared: dict[str, Any] = {"vocab_size": len(WORDS), "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    if kind == "gpt2":
        config = transformers.GPT2Config(
            n_embd=width, n_layer=layers, n_head=4, n_positions=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **shared
        )
        return seeded(seed, lambda: transformers.GPT2LMHeadModel(config))
    config = transformers.LlamaConfig(
        hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, **shared,
    )  # fmt: skip
    return seeded(seed, lambda: transformers.LlamaForCausalLM(config))


def train(model: Any, seed: int, steps: int, rows: int, rate: float) -> float:
    """Train on drawn texts; the share of held-out questions that the model then answers."""
    draw = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        texts = [encode(write_text(draw)) for _ in range(rows)]
        short = min(map(len, texts))
        ids = torch.tensor([text[:short] for text in texts])
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval().requires_grad_(False)
    held = random.Random(10_000 + seed)
    answers = [(int(next_logits(model, torch.tensor([encode(words)]))[0].argmax()), IDS[thing]) for words, thing in
               (write_question(held) for _ in range(200))]  # fmt: skip
    return sum(found == right for found, right in answers) / len(answers)


def next_logits(model: Any, ids: Tensor) -> Tensor:
    """The logits of the next token, (rows, words)."""
    with torch.no_grad():
        logits: Tensor = model(input_ids=ids, use_cache=False).logits[:, -1]
    return logits
