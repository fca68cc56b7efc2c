"""Does explain_blocks want another c than explain? Tables by their number of features, and images in cells.

    python benchmarks/block_constants.py [--rows 12] [--seeds 3] [--out benchmarks/results/block_constants.txt]

Networks and truths are those of ``block_sizes.py``. Every number is the mean over seeds of a mean over rows: Pearson's
correlation of ``if_missing`` with removing single features, and of ``combined`` with Shapley values; in brackets the mean and
the standard error of the difference to c = 0.5, over seeds. Images are left out if the data are not there.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from block_sizes import picture, table, truths
from cafexai import CAFE
from cafexai.datasets import DataNotFound
from cafexai.metrics.occlusion import correlation

CONSTANTS = (0.5, 0.25, 0.0)
TABLES, SIDE = (4, 8, 16, 32), 7  # features; side of the cells of 28 x 28 pixels
MEASURES = ("if_missing: removal", "combined: Shapley", "explain: Shapley")
Made = tuple[nn.Module, Tensor, Tensor]


def measured(model: nn.Module, x: Tensor, groups: Tensor) -> dict[tuple[str, float], float]:
    """The correlations of one network, by measure and c."""
    with torch.no_grad():
        target = model(x).argmax(1)
    found = [truths(model, row, groups, int(one)) for row, one in zip(x, target, strict=True)]
    alone, shapley = (torch.stack([one[place] for one in found]).double() for place in (0, 1))
    result = {}
    for c in CONSTANTS:
        cafe = CAFE(model, c)
        blocks = cafe.explain_blocks(x, target=target, feature_groups=groups)
        plain = cafe.explain(x, target=target, feature_groups=groups, conflict="net")
        pairs = ((blocks.if_missing, alone), (blocks.combined, shapley), (plain.combined, shapley))
        for name, (own, truth) in zip(MEASURES, pairs, strict=True):
            result[name, c] = correlation(own.flatten(1).double(), truth).mean().item()
    return result


def line_of(measure: str, runs: list[dict[tuple[str, float], float]]) -> str:
    """Every c with its mean, and how far it is from c = 0.5."""
    cells = []
    for c in CONSTANTS:
        apart = [run[measure, c] - run[measure, CONSTANTS[0]] for run in runs]
        error = statistics.stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
        beside = "" if c == CONSTANTS[0] else f" ({statistics.mean(apart):+.4f} ± {error:.4f})"
        cells.append(f"c = {c:g} {statistics.mean(run[measure, c] for run in runs):.4f}{beside}")
    return f"  {measure:20s} {', '.join(cells)}"


def networks() -> Iterator[tuple[str, Callable[[int, int], Made]]]:
    """What is explained, by seed and rows."""
    for features in TABLES:
        yield f"table, {features} features", lambda seed, rows, size=features: table(size, seed, rows)
    yield f"images, {(28 // SIDE) ** 2} cells", lambda seed, rows: picture(SIDE, seed, rows // 2)


def main() -> None:
    """A block of lines for every kind of network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "block_constants.txt")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for name, make in networks():
        try:
            runs = [measured(*make(seed, chosen.rows)) for seed in range(chosen.seeds)]
        except DataNotFound as error:
            print(f"left out: {str(error).splitlines()[0]}")
            continue
        lines += [name, *(line_of(measure, runs) for measure in MEASURES)]
        print("\n".join(lines[-1 - len(MEASURES) :]), flush=True)
    chosen.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
