"""Do scores of layers say what patching them does? Outputs of attention and MLP of MiniLM, swapped between two sentences."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...cafe import CAFE
from ...methods.transformers import layer_coefficients
from ...metrics.occlusion import correlation
from ..datasets import movie_snippets
from .photos import is_installed
from .published_numbers import METHOD_TITLES
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace
from .truth_text import PACKAGES, Encoder, train_on_texts

GRADIENT = "gradient x change"
OURS, RULES = ("cafe c=0.5", "cafe c=0.25"), ("cp_lrp", "attn_lrp", "gim")
METHODS = (*OURS, GRADIENT, *RULES)
PARTS = {"attention": "bert.encoder.layer.{}.attention.output.dense", "MLP": "bert.encoder.layer.{}.output.dense"}


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per head and seed; none if the packages are not installed."""
    if not is_installed(*PACKAGES[: 1 if settings["encoder"] == "toy" else None]):
        return
    for kind in settings["kinds"]:
        for seed in settings["seeds"]:

            def run(kind: str = kind, seed: int = seed) -> Any:
                return measure_network(kind, seed, settings, place)

            yield Task(f"{kind} {seed}", run)


def measure_network(kind: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """For every layer and part: effects of patching single positions, and what each method foretells of them."""
    snippets = movie_snippets(folder=place.data)
    model, encoder, _ = train_on_texts(kind, seed, snippets, settings, place)
    held = snippets.texts[settings["train_rows"] + settings["valid_rows"] :]
    found: dict[str, list[dict[str, list[float]]]] = {}
    pairs = _pairs(encoder, held[settings["seeds"].index(seed) * settings["texts"] :][: settings["texts"]], settings["pairs"])
    for clean, other in pairs:
        for layer in range(encoder.bert.config.num_hidden_layers):
            for part, path in PARTS.items():
                effects = _of_pair(model, clean, other, path.format(layer))
                found.setdefault(f"{part} {layer}", []).append({name: own.tolist() for name, own in effects.items()})
    return {"pairs": len(pairs), "effects": found}


def _pairs(encoder: Encoder, texts: Sequence[str], most: int) -> list[tuple[Tensor, Tensor]]:
    """Word embeddings of two sentences with equally many tokens, each used once."""
    waiting: dict[int, Tensor] = {}
    found: list[tuple[Tensor, Tensor]] = []
    for text in texts:
        x = encoder.sentence(text)[0]
        if x.shape[1] in waiting:
            found.append((waiting.pop(x.shape[1]), x))
        else:
            waiting[x.shape[1]] = x
    return found[:most]


def _of_pair(model: nn.Module, clean: Tensor, other: Tensor, path: str) -> dict[str, Tensor]:
    """What patching does at each position, and what is foretold, (positions,)."""
    here, there = (_value(model, x, path) for x in (clean, other))
    change = here - there
    found = {"patching": patch(model, clean, path, there)}
    for name in OURS:
        cafe = CAFE(model, float(name.removeprefix("cafe c=")))
        e = cafe.explain_layer(clean, path, there, 0)
        assert isinstance(e.combined, Tensor)
        found[name] = e.combined[0].sum(-1)
    point = here.clone().requires_grad_()
    with _replace_output(model, path, point):
        (slope,) = torch.autograd.grad(model(clean)[:, 0].sum(), point)
    found[GRADIENT] = (slope * change)[0].sum(-1)
    for name in RULES:
        found[name] = (layer_coefficients(name, model, clean, path, 0) * change)[0].sum(-1)
    return {name: own.detach().double() for name, own in found.items()}


def patch(model: nn.Module, x: Tensor, path: str, other: Tensor) -> Tensor:
    """f(x) minus the output with the value of a module replaced by another one at a single position, (positions,)."""
    here = _value(model, x, path)
    count = here.shape[1]
    one = torch.eye(count, dtype=torch.bool)[..., None]
    with torch.no_grad():
        whole = model(x)[0, 0]
        with _replace_output(model, path, torch.where(one, other, here)):
            return whole - model(x.expand(count, -1, -1))[:, 0]


def _value(model: nn.Module, x: Tensor, path: str) -> Tensor:
    """The output of a module, (1, positions, width)."""
    kept: list[Tensor] = []
    handle = model.get_submodule(path).register_forward_hook(lambda _, __, output: kept.append(output.detach()))
    try:
        with torch.no_grad():
            model(x)
    finally:
        handle.remove()
    return kept[0]


@contextlib.contextmanager
def _replace_output(model: nn.Module, path: str, value: Tensor) -> Iterator[None]:
    """Have a module give this value."""
    handle = model.get_submodule(path).register_forward_hook(lambda _, __, output: value)
    try:
        yield
    finally:
        handle.remove()


def report(settings: Settings, results: Results) -> Report:
    """The correlation over all positions of all pairs, for each layer and part, and for each head over the pairs."""
    rows, summary, findings = [], [], []
    for kind in settings["kinds"]:
        runs = [results[f"{kind} {seed}"] for seed in settings["seeds"]]
        places = list(runs[0]["effects"])
        pooled = {name: [_pool([r["effects"][place] for r in runs], name) for place in places] for name in METHODS}
        for number, place in enumerate(places):
            rows.append([f"{kind}, {place}", *(pooled[name][number] for name in METHODS)])
        line = {name: sum(pooled[name]) / len(places) for name in METHODS}
        low = {name: min(pooled[name]) for name in METHODS}
        errors = {name: _over_pairs(runs, name) for name in METHODS}
        summary.append([f"{kind}, mean", *line.values()])
        summary.append([f"{kind}, lowest", *low.values()])
        summary.append([f"{kind}, of one pair: mean, standard error", *(f"{m:.3f} ± {s:.3f}" for m, s in errors.values())])
        best = max((name for name in METHODS if name not in OURS), key=lambda name: line[name])
        findings.append(
            Finding(
                f"scores of layers foretell patching better than the gradient does ({kind})",
                line[OURS[0]] > line[GRADIENT],
                f"Mean correlation {line[OURS[0]]:.3f}, gradient {line[GRADIENT]:.3f}; the best other method is "
                f"{METHOD_TITLES[best]} with {line[best]:.3f}.",
            )
        )
    columns = ["", *(METHOD_TITLES[name] for name in METHODS)]
    note = (
        "Pearson's correlation with activation patching: the output of one module at one position is replaced by that of "
        "another sentence with as many tokens; over all positions and pairs."
    )
    tables = [
        Table("summary", "Correlation with patching, by head", columns, summary, note),
        Table("layers", "Correlation with patching, by layer", columns, rows, note),
    ]
    return Report(tables, findings)


def _pool(runs: Sequence[Sequence[dict[str, list[float]]]], name: str) -> float:
    pairs = [pair for run in runs for pair in run]
    own, truth = (torch.tensor([v for pair in pairs for v in pair[key]], dtype=torch.float64) for key in (name, "patching"))
    return correlation(own[None], truth[None]).item()


def _over_pairs(runs: Sequence[dict[str, Any]], name: str) -> tuple[float, float]:
    """Of each pair, over all modules and positions: mean and standard error."""
    found = []
    for run in runs:
        for number in range(run["pairs"]):
            pairs = [of_place[number] for of_place in run["effects"].values()]
            found.append(_pool([pairs], name))
    values = torch.tensor(found, dtype=torch.float64)
    return values.mean().item(), (values.std().item() / math.sqrt(len(values)) if len(values) > 1 else 0.0)


COMMON = {
    "encoder": "minilm", "kinds": ["linear"], "train_rows": 1500, "valid_rows": 300, "epochs": 60, "tuned_epochs": 2,
    "texts": 60,
}  # fmt: skip
PATCHING = Study(
    "patching",
    "do scores of layers say what patching them does, on MiniLM? (ours)",
    "movie_snippets; the extra `truth`",
    {
        "toy": COMMON | {"encoder": "toy", "train_rows": 4, "valid_rows": 2, "epochs": 2, "seeds": [42], "pairs": 2},
        "quick": COMMON | {"seeds": [42], "pairs": 6},
        "full": COMMON | {"kinds": ["linear", "mlp"], "seeds": [42, 43], "pairs": 10},
    },
    {"toy": "0.1", "quick": "2", "full": "15"},
    tasks,
    report,
)
