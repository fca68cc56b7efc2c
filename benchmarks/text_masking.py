"""Scores of MiniLM beside masking single tokens, on many more sentences than the study ``truth-text`` can afford.

    python benchmarks/text_masking.py FOLDER [--kinds linear mlp tuned] [--rows 30] [--seeds 5] [--tuned-seeds 1]

Trains the models of ``truth-text``, or finds them in FOLDER, and takes held-out sentences that the study does not mask. Only
cheap methods: open attention, the default, beside frozen attention, c = 0.25, and ``if_missing`` of ``explain_blocks``. Appends
a line for each model to FOLDER/masking.jsonl, goes on where it stopped, and prints the table. It needs the extra ``truth``.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cafexai import CAFE
from cafexai.metrics.occlusion import correlation
from cafexai.paper.datasets import movie_snippets
from cafexai.paper.studies.record import Workplace
from cafexai.paper.studies.truth_text import TEXT, TUNED, Encoder, train_on_texts

USED = 50  # the sentences that truth-text masks come first
OPEN, FROZEN, QUARTER = "open attention", "frozen attention", "open attention, c = 0.25"
MISSING, MISSING_QUARTER = "if_missing", "if_missing, c = 0.25"
METHODS = (OPEN, FROZEN, QUARTER, MISSING, MISSING_QUARTER)
Level = tuple[float, float]  # mean and standard error


def scores_of(model: nn.Module, x: Tensor, baseline: Tensor, groups: Tensor) -> dict[str, Tensor]:
    """Scores of the words of sentences with equally many tokens, (sentences, words)."""
    numbers = groups.unique(return_inverse=True)[1]  # the first and the last token, which stay, are group 0
    found = {
        OPEN: CAFE(model).attribute(x, baseline, 0),
        FROZEN: CAFE(model, variant="default", attention="frozen").attribute(x, baseline, 0),
        QUARTER: CAFE(model, 0.25).attribute(x, baseline, 0),
    }
    words = {name: own.sum(2)[:, 1:-1] for name, own in found.items()}
    for name, c in ((MISSING, 0.5), (MISSING_QUARTER, 0.25)):
        words[name] = CAFE(model, c).explain_blocks(x, baseline, 0, feature_groups=numbers).if_missing[:, 1:]
    return words


def effects_of(model: nn.Module, x: Tensor, baseline: Tensor) -> Tensor:
    """What masking each word alone takes from the output, (sentences, words)."""
    words = x.shape[1] - 2
    alone = nn.functional.pad(torch.eye(words, dtype=torch.bool), (1, 1))[..., None]
    with torch.no_grad():
        rows = [model(torch.where(alone, start, row))[:, 0] for row, start in zip(x, baseline, strict=True)]
        return model(x) - torch.stack(rows)


def measured(model: nn.Module, encoder: Encoder, texts: Sequence[str]) -> dict[str, list[float]]:
    """The correlation of each sentence, by method; sentences with equally many tokens are explained together."""
    by_length: dict[int, list[str]] = {}
    for text in texts:
        by_length.setdefault(len(encoder.tokens(text)), []).append(text)
    found: dict[str, list[float]] = {name: [] for name in METHODS}
    for some in by_length.values():
        sentences = [encoder.sentence(text) for text in some]
        x, baseline = (torch.cat([sentence[place] for sentence in sentences]) for place in (0, 1))
        effects = effects_of(model, x, baseline).double()
        for name, own in scores_of(model, x, baseline, sentences[0][2]).items():
            found[name] += correlation(own.double(), effects).tolist()
    return found


def level(values: Sequence[float]) -> Level:
    """Mean and standard error."""
    return statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def over_models(models: Sequence[dict[str, Any]], name: str, apart: str | None = None) -> str:
    """Over the models of one kind; with one model over its sentences."""
    rows = [[a - b for a, b in zip(one[name], one[apart] if apart else [0.0] * len(one[name]), strict=True)] for one in models]
    mean, error = level([statistics.mean(own) for own in rows]) if len(rows) > 1 else level(rows[0])
    return f"{mean:+.3f} ± {error:.3f}" if apart else f"{mean:.3f} ± {error:.3f}"


def table(done: Iterable[dict[str, Any]]) -> str:
    """One line for each method, one column for each kind of model."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for one in done:
        kinds.setdefault(one["kind"], []).append(one)
    sizes = [f"{kind} ({len(own)} x {len(own[0][OPEN])} sentences)" for kind, own in kinds.items()]
    lines = [["", *sizes], *([name, *(over_models(own, name) for own in kinds.values())] for name in METHODS)]
    for name, apart in ((OPEN, FROZEN), (QUARTER, OPEN), (MISSING_QUARTER, MISSING)):
        lines.append([f"{name} minus {apart}", *(over_models(own, name, apart) for own in kinds.values())])
    return "\n".join(
        "".join(f"{cell:52s}" if at == 0 else f"{cell:30s}" for at, cell in enumerate(line)).rstrip() for line in lines
    )


def main() -> None:
    """What is not done yet, and the table of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kinds", nargs="+", default=["linear", "mlp", TUNED])
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tuned-seeds", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    settings, place, snippets = TEXT.presets["full"], Workplace(chosen.folder / "models", show_progress=False), movie_snippets()
    held = snippets.texts[settings["train_rows"] + settings["valid_rows"] + USED :]
    path = chosen.folder / "masking.jsonl"
    for at, seed in enumerate(settings["seeds"][: chosen.seeds]):
        for kind in chosen.kinds:
            known = {(one["kind"], one["seed"]) for one in _lines(path)}
            if (kind, seed) in known or (kind == TUNED and at >= chosen.tuned_seeds):
                continue
            model, encoder, _ = train_on_texts(kind, seed, snippets, settings, place)
            found = measured(model, encoder, held[at * chosen.rows : (at + 1) * chosen.rows])
            with path.open("a") as file:
                file.write(json.dumps({"kind": kind, "seed": seed, **found}) + "\n")
    print(table(sorted(_lines(path), key=lambda one: one["kind"])))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
