"""How true are explanations in two blocks on MiniLM: masked words, exact Shapley values, and the spread over other blocks.

``python benchmarks/blocks.py FOLDER`` trains the models of the study ``truth-text``, or finds them in FOLDER, takes its
held-out sentences, appends one line per model to FOLDER/blocks.jsonl and prints the means. It needs the extra ``truth``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from cafexai import CAFE, Refine, metrics
from cafexai._inputs.perturbations import Masks
from cafexai.paper.datasets import movie_snippets
from cafexai.paper.studies.record import Workplace
from cafexai.paper.studies.truth_shapley import exact
from cafexai.paper.studies.truth_text import TEXT, train_on_texts

SPLITS = 10  # random blocks whose spread is measured


class Clock:
    """Seconds of processor time by name."""

    def __init__(self):
        self.seconds = {}

    def __call__(self, name, run):
        start = time.process_time()
        result = run()
        self.seconds[name] = self.seconds.get(name, 0) + time.process_time() - start
        return result


def gradient(model, x):
    point = x.clone().requires_grad_()
    return torch.autograd.grad(model(point).sum(), point)


def scores_of(model, x, baseline, groups, clock):
    """Scores of the words of one sentence, (1, words), by name."""
    numbers = groups.unique(return_inverse=True)[1]  # the first and the last token, which stay, are group 0
    found = {}
    for c in (0.5, 0.25):
        cafe = CAFE(model, c)
        plain = clock(f"cafe c={c}", lambda: cafe.explain(x, baseline, 0, feature_groups=numbers, conflict="net"))
        both = clock(f"blocks c={c}", lambda: cafe.explain_blocks(x, baseline, 0, feature_groups=numbers))
        found |= {f"cafe c={c}": plain.combined, f"blocks c={c}": both.combined, f"if_missing c={c}": both.if_missing}
    cafe, how = CAFE(model), Refine(20, Masks(baseline[0], groups))
    plain = cafe.explain(x, baseline, 0, feature_groups=numbers, conflict="net")
    found["refine=20"] = clock("refine=20", lambda: cafe.refine(plain, how)).refined
    clock("gradient", lambda: gradient(model, x))
    return {name: own[:, 1:] for name, own in found.items()}


def spread_of(model, x, baseline, groups, truth, seed):
    """Over random blocks: correlation with masking, and the standard deviation of scores beside that over words."""
    numbers = groups.unique(return_inverse=True)[1]
    generator = torch.Generator().manual_seed(seed)
    count = int(numbers.max()) + 1
    missing, combined, right = [], [], []
    for _ in range(SPLITS):
        inside = torch.rand(count, generator=generator) < 0.5
        e = CAFE(model).explain_blocks(x, baseline, 0, feature_groups=numbers, blocks=inside)
        missing.append(e.if_missing[0, 1:])
        combined.append(e.combined[0, 1:])
        right.append(truth(e.if_missing[:, 1:]))
    relative = [(torch.stack(some).std(0).mean() / torch.stack(some).mean(0).std()).item() for some in (missing, combined)]
    return {
        "mask r": statistics.mean(right),
        "its sd": statistics.stdev(right),
        "if_missing": relative[0],
        "combined": relative[1],
    }


def measured(kind, seed, settings, place, most):
    """Means over held-out sentences of one model."""
    snippets = movie_snippets(folder=place.data)
    model, encoder, accuracy = train_on_texts(kind, seed, snippets, settings, place)
    held = snippets.texts[settings["train_rows"] + settings["valid_rows"] :]
    at, rows, few = settings["seeds"].index(seed), settings["rows"], settings["short_rows"]
    short = [t for t in held[len(settings["seeds"]) * rows :] if len(encoder.tokens(t)) - 2 <= settings["short_tokens"]]
    clock, masked, shapley, spread = Clock(), {}, {}, []
    for number, text in enumerate(held[at * rows : (at + 1) * rows][:most]):
        x, baseline, groups = encoder.sentence(text)

        def truth(scores, x=x, baseline=baseline, groups=groups):
            return metrics.occlusion_correlation(model, x, scores, target=0, baselines=baseline, feature_groups=groups).item()

        for name, own in scores_of(model, x, baseline, groups, clock).items():
            masked.setdefault(name, []).append(truth(own))
        if number < 3:
            spread.append(spread_of(model, x, baseline, groups, truth, number))
    for text in short[at * few : (at + 1) * few][:most]:
        x, baseline, groups = encoder.sentence(text)
        with torch.no_grad():
            values = exact(model.head(encoder.masked_means(text, None if kind == "tuned" else place.models))[:, 0])
        for name, own in scores_of(model, x, baseline, groups, Clock()).items():
            both = torch.stack([own[0].double(), values])
            pair = torch.corrcoef(both)[0, 1].item(), (both[0] - both[1]).square().mean().sqrt().item()
            shapley.setdefault(name, []).append(pair)
    return {
        "kind": kind, "seed": seed, "accuracy": accuracy, "rows": len(masked["refine=20"]), "short": len(shapley["refine=20"]),
        "mask r": {name: statistics.mean(own) for name, own in masked.items()},
        "shapley r": {name: statistics.mean(r for r, _ in own) for name, own in shapley.items()},
        "shapley rmse": {name: statistics.mean(e for _, e in own) for name, own in shapley.items()},
        "seconds": clock.seconds,
        "spread": {key: statistics.mean(one[key] for one in spread) for key in spread[0]},
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kinds", nargs="+", default=["linear", "mlp", "tuned"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tuned-seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20, help="sentences of each model at most")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    settings, place = TEXT.presets["full"], Workplace(asked.folder / "models", show_progress=False)
    results = asked.folder / "blocks.jsonl"
    done = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    for at, seed in enumerate(settings["seeds"][: asked.seeds]):
        for kind in asked.kinds:
            known = any((one["kind"], one["seed"]) == (kind, seed) for one in done)
            if known or (kind == "tuned" and at >= asked.tuned_seeds):
                continue
            done.append(measured(kind, seed, settings, place, asked.rows))
            with results.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
    for kind in asked.kinds:
        own = [one for one in done if one["kind"] == kind]
        for measure in ("mask r", "shapley r", "shapley rmse", "seconds", "spread"):
            line = {name: [one[measure][name] for one in own] for name in own[0][measure]}
            shown = (f"{n} {statistics.mean(v):.3f} +- {statistics.stdev(v) if len(v) > 1 else 0:.3f}" for n, v in line.items())
            print(kind, measure, "|", "; ".join(shown), flush=True)


if __name__ == "__main__":
    main()
