"""Do scores of tokens say what a small language model loses without them? GPT-2 and Llama kinds, trained here."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ..._extras import needs
from ...cafe import CAFE
from ...methods import METHODS
from ...metrics.occlusion import correlation
from .photos import is_installed
from .published_numbers import METHOD_TITLES
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace, round_numbers
from .toy_language import IDS, UNKNOWN, WORDS, build, encode, make_tokenizer, next_logits, train, write_question

KINDS = {"gpt2": "GPT-2 kind", "llama": "Llama kind, grouped queries"}
OURS, RIVAL, CAPTUM = "cafe c=0.5", "integrated_gradients", "LLMAttribution (Captum, FeatureAblation)"
GRADIENTS = (RIVAL, "gradient_x_input", "attn_lrp")
METHODS_HERE = (OURS, *GRADIENTS, CAPTUM)
TRUTHS = {"deleted": "deleted", "zeroed": "set to a zero embedding", "replaced": "replaced by random words"}
REPLACEMENTS = 5


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per kind and seed; none without transformers."""
    if not is_installed("transformers", "tokenizers"):
        return
    for kind in settings["kinds"]:
        for seed in settings["seeds"]:

            def run(kind: str = kind, seed: int = seed) -> Any:
                return measure_model(kind, seed, settings)

            yield Task(f"{kind} {seed}", run)


def measure_model(kind: str, seed: int, settings: Settings) -> dict[str, Any]:
    """The accuracy of a trained model; of each method correlations with what tokens are worth, and seconds, by question."""
    model = build(kind, seed, settings["width"], settings["layers"])
    accuracy = train(model, seed, settings["steps"], settings["batch"], settings["rate"])
    draw = random.Random(20_000 + seed)
    found: dict[str, dict[str, list[float]]] = {name: {} for name in METHODS_HERE}
    for _ in range(settings["questions"]):
        words, _ = write_question(draw)
        ids = torch.tensor([encode(words)])
        target = int(next_logits(model, ids)[0].argmax())
        truths = measure_tokens(model, ids, target, draw)
        for name, score in score_methods(model, words, ids, target).items():
            begin = time.process_time()
            scores = score().double()
            found[name].setdefault("seconds", []).append(time.process_time() - begin)
            for truth, lost in truths.items():
                found[name].setdefault(truth, []).append(correlation(scores[None], lost[None]).item())
    return {"accuracy": accuracy, "methods": round_numbers(found)}


def contrast(logits: Tensor, target: int) -> Tensor:
    """The logit of the target minus the mean of all other logits, (rows,)."""
    own = logits[:, target]
    return own - (logits.sum(1) - own) / (logits.shape[1] - 1)


def measure_tokens(model: Any, ids: Tensor, target: int, draw: random.Random) -> dict[str, Tensor]:
    """What the contrast loses without each token, (tokens,), by the ways of taking it away."""
    count = ids.shape[1]
    here = torch.eye(count, dtype=torch.bool)
    embedded = model.get_input_embeddings()(ids).detach()
    whole = contrast(next_logits(model, ids), target)
    deleted = torch.stack([ids[0, ~one] for one in here])
    others = torch.stack([_other_words(ids[0], draw) for _ in range(REPLACEMENTS)])
    replaced = torch.where(here, others[:, None], ids[0]).flatten(0, 1)
    with torch.no_grad():
        zeroed = model(inputs_embeds=embedded * ~here[..., None], use_cache=False).logits[:, -1]
    lost = {
        "deleted": whole - contrast(next_logits(model, deleted), target),
        "zeroed": whole - contrast(zeroed, target),
        "replaced": whole - contrast(next_logits(model, replaced), target).view(REPLACEMENTS, count).mean(0),
    }
    return {name: values.double() for name, values in lost.items()}


def _other_words(ids: Tensor, draw: random.Random) -> Tensor:
    """Another word for each token."""
    return torch.tensor([draw.choice([word for word in range(1, len(WORDS)) if word != own]) for own in ids.tolist()])


def score_methods(model: Any, words: list[str], ids: Tensor, target: int) -> dict[str, Callable[[], Tensor]]:
    """The scores of each token by each method, (tokens,), all but the last of the contrast."""
    embedded = model.get_input_embeddings()(ids).detach()

    def of_ids(x: Tensor) -> Tensor:
        return contrast(model(input_ids=x, use_cache=False).logits[:, -1], target)[:, None]

    def of_embedded(x: Tensor) -> Tensor:
        return contrast(model(inputs_embeds=x, use_cache=False).logits[:, -1], target)[:, None]

    def by_gradient(name: str) -> Callable[[], Tensor]:
        return lambda: METHODS[name](of_embedded, embedded)[0].sum(-1)

    return {
        OURS: lambda: CAFE(of_ids).attribute(ids)[0],
        **{name: by_gradient(name) for name in GRADIENTS},
        CAPTUM: lambda: _llm_attribution(model, words, target),
    }


def _llm_attribution(model: Any, words: list[str], target: int) -> Tensor:
    """The log-probability of the target that each token is worth, when the unknown word takes its place."""
    captum, tokenizer = needs("captum.attr", "captum"), make_tokenizer()
    explainer = captum.LLMAttribution(captum.FeatureAblation(model), tokenizer)
    text = captum.TextTokenInput(" ".join(words), tokenizer, baselines=IDS[UNKNOWN])
    scores: Tensor = explainer.attribute(text, target=torch.tensor([target])).seq_attr
    return scores


def report(settings: Settings, results: Results) -> Report:
    """Mean correlations and seconds of each method, over the questions and then over the seeds."""
    rows, findings = [], []
    for kind in settings["kinds"]:
        runs = [results[f"{kind} {seed}"] for seed in settings["seeds"]]
        means = {name: {key: _mean(runs, name, key) for key in (*TRUTHS, "seconds")} for name in METHODS_HERE}
        for name in METHODS_HERE:
            *cells, (seconds, _) = means[name].values()
            shown = [f"{mean:.2f} ± {error:.2f}" for mean, error in cells]
            rows.append([f"{KINDS[kind]}, {METHOD_TITLES[name]}", *shown, f"{1000 * seconds:.0f}"])
        findings += _judge(kind, means)
        right = statistics.mean(one["accuracy"] for one in runs)
        findings.append(Finding(f"the models know the language ({KINDS[kind]})", right > 0.9, f"Right answers: {right:.1%}."))
    note = (
        "Explained: the logit of the predicted word minus the mean of all others. Pearson's correlation over the tokens of a "
        f"question with what this contrast loses without each token; mean and standard error over {len(settings['seeds'])} "
        f"seeds, {settings['questions']} questions each. LLMAttribution explains the log-probability, with the unknown word in "
        "place of a token. Time: processor milliseconds of one explanation, on a machine that did other work."
    )
    columns = ["", *(f"correlation, {title}" for title in TRUTHS.values()), "ms"]
    return Report(
        [Table("language", "Scores of tokens beside what the model loses without them", columns, rows, note)], findings
    )


def _mean(runs: list[Any], name: str, key: str) -> tuple[float, float]:
    """Mean over the questions, then mean and standard error over the seeds."""
    each = [statistics.mean(one["methods"][name][key]) for one in runs]
    return statistics.mean(each), (statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else 0.0)


def _judge(kind: str, means: dict[str, dict[str, tuple[float, float]]]) -> list[Finding]:
    found = []
    for truth, title in TRUTHS.items():
        ours, theirs = means[OURS][truth], means[RIVAL][truth]
        apart = abs(ours[0] - theirs[0]) > 2 * (ours[1] ** 2 + theirs[1] ** 2) ** 0.5
        numbers = ", ".join(f"{METHOD_TITLES[name]} {means[name][truth][0]:.2f}" for name in METHODS_HERE)
        claim = f"scores of tokens say more than Integrated Gradients of what is lost when a token is {title} ({KINDS[kind]})"
        found.append(Finding(claim, ours[0] > theirs[0] if apart else None, f"{numbers}."))
    own, other = (1000 * means[name]["seconds"][0] for name in (OURS, RIVAL))
    claim = f"an explanation takes less time than Integrated Gradients with 50 steps ({KINDS[kind]})"
    return [*found, Finding(claim, own < other, f"{own:.0f} ms beside {other:.0f} ms of a processor.")]


COMMON = {"kinds": list(KINDS), "width": 64, "layers": 2, "batch": 32, "rate": 3e-3}
LANGUAGE = Study(
    "language",
    "do scores of tokens say what a language model loses without them? Small GPT-2 and Llama kinds, trained here (ours)",
    "no data; the packages transformers and captum",
    {
        "toy": COMMON | {"width": 16, "layers": 1, "batch": 2, "steps": 2, "seeds": [0], "questions": 2},
        "quick": COMMON | {"steps": 700, "seeds": [0, 1, 2, 3, 4], "questions": 12},
        "full": COMMON | {"layers": 4, "steps": 4000, "seeds": [0, 1, 2, 3, 4], "questions": 100},
    },
    {"toy": "0.1", "quick": "12", "full": "90"},
    tasks,
    report,
)
