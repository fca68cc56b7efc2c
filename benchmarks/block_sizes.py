"""Which scores are better by the number of features: explain, explain_blocks or refine, for tables, and images by cells.

    python benchmarks/block_sizes.py [--rows 6] [--seeds 2] [--out benchmarks/results/block_sizes.txt]

Tables: an MLP with two hidden layers, fitted to a random function of 4 to 64 standardised features with products of two of
them; the baseline is the mean row. Images: a small convolutional network on Fashion-MNIST, square cells, the baseline is black
(left out if the data are not there). Truth: the change of the output when a single feature is replaced by its baseline, and
Shapley values, exact for up to 8 features, else from 100 pairs of orders. Every number is the mean over rows of Pearson's
correlation, then over seeds, with the standard error over seeds. The spread is the standard deviation of a score over ten
random cuts into blocks, as a multiple of that between features.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cafexai import CAFE, Refine
from cafexai._inputs.perturbations import Masks
from cafexai.datasets import DataNotFound, load
from cafexai.metrics.occlusion import correlation
from cafexai.models import Recipe, mlp, seeded, small_cnn, train
from cafexai.paper.studies.truth_shapley import estimate_by_pairs, exact, subsets

EXACT, PAIRS, CUTS = 8, 100, 10
TABLES, CELLS = (4, 8, 16, 32, 64), (14, 7, 4)  # features; sides of cells of 28 x 28 pixels


def table(features: int, seed: int, rows: int) -> tuple[nn.Module, Tensor, Tensor]:
    """A trained network, rows to explain, and the group of each feature."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4000, features, generator=generator)
    weights = torch.randn(features, generator=generator)
    pairs = torch.randint(features, (2, features), generator=generator)
    y = (x * weights).sin().sum(1) + (x[:, pairs[0]] * x[:, pairs[1]]).sum(1) * 0.5
    model = seeded(seed, lambda: mlp(features, 128, 128, 2))
    train(model, x, (y > y.median()).long(), Recipe(15, 128, seed=seed, shuffle=True))
    return model.eval(), torch.randn(rows, features, generator=generator), torch.arange(features)


def picture(side: int, seed: int, rows: int) -> tuple[nn.Module, Tensor, Tensor]:
    """The same for pictures and cells."""
    data = load("fashion_mnist").to(torch.float32)
    model = seeded(seed, lambda: small_cnn(1, 28, 10, widths=(8, 16)))
    train(model, data.x_train[:4000], data.y_train[:4000].long(), Recipe(4, 128, seed=seed, shuffle=True))
    place = torch.arange(28) // side
    return model.eval(), data.x_test[:rows], (place[:, None] * (28 // side) + place)[None]


def truths(model: nn.Module, row: Tensor, groups: Tensor, target: int) -> tuple[Tensor, Tensor]:
    """The change by each group alone, and the Shapley values, (groups,) each."""
    count = int(groups.max()) + 1

    def value(present: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([model(row * some[:, groups])[:, target] for some in present.split(512)])

    alone = value(torch.cat([torch.ones(1, count, dtype=torch.bool), ~torch.eye(count, dtype=torch.bool)]))
    shapley = exact(value(subsets(count))) if count <= EXACT else estimate_by_pairs(value, count, PAIRS)
    return alone[0] - alone[1:], shapley


def spread(cafe: CAFE, x: Tensor, words: dict[str, Any]) -> dict[str, float]:
    """How much scores of a few rows depend on which features share a block."""
    count, generator = int(words["feature_groups"].max()) + 1, torch.Generator().manual_seed(0)
    few = {"target": words["target"][:4], "feature_groups": words["feature_groups"]}
    cuts = [torch.rand(count, generator=generator).argsort() < count // 2 for _ in range(CUTS)]
    found = [cafe.explain_blocks(x[:4], **few, blocks=cut) for cut in cuts]
    result = {}
    for name in ("combined", "if_missing"):
        scores = torch.stack([getattr(e, name).flatten(1) for e in found])
        result[f"{name}: spread"] = (scores.std(0).mean(1) / scores.mean(0).std(1)).mean().item()
    return result


def measured(model: nn.Module, x: Tensor, groups: Tensor) -> dict[str, float]:
    """Correlations with both truths, by method."""
    with torch.no_grad():
        target = model(x).argmax(1)
    cafe, words = CAFE(model), {"target": target, "feature_groups": groups}
    plain = cafe.explain(x, **words, conflict="net")
    blocks = cafe.explain_blocks(x, **words)
    refined = cafe.refine(plain, Refine(20, Masks(0.0, groups)))
    scores = {
        "explain": plain.combined,
        "combined": blocks.combined,
        "if_missing": blocks.if_missing,
        "refine": refined.refined,
    }
    found = [truths(model, row, groups, int(one)) for row, one in zip(x, target, strict=True)]
    alone, shapley = (torch.stack([one[place] for one in found]).double() for place in (0, 1))
    result = {f"{name}: removal": correlation(own.flatten(1).double(), alone).mean().item() for name, own in scores.items()}
    for name, own in scores.items():
        result[f"{name}: Shapley"] = correlation(own.flatten(1).double(), shapley).mean().item()
    return result | spread(cafe, x, words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "block_sizes.txt")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    chosen.out.write_text("")
    for make, sizes in ((table, TABLES), (picture, CELLS)):
        for size in sizes:
            try:
                runs = [measured(*make(size, seed, chosen.rows)) for seed in range(chosen.seeds)]
            except DataNotFound as error:
                print(f"left out: {str(error).splitlines()[0]}")
                break
            name = f"table, {size} features" if make is table else f"pictures, {(28 // size) ** 2} cells"
            line = f"{name} { {key: _mean([run[key] for run in runs]) for key in runs[0]} }"
            print(line, flush=True)
            with chosen.out.open("a") as file:
                file.write(line + "\n")


def _mean(values: list[float]) -> str:
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.3f} ± {error:.3f}"


if __name__ == "__main__":
    main()
