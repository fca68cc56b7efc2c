"""Networks of the synthetic study trained as one group against one by one, measured in one run.

python benchmarks/group_training.py [--epochs 20] [--alone 3]

The group has 25 networks, five for each of five data sets, as in one column of the paper's table. A few of them are also
trained alone, with the same seeds, and the time of all 25 is reckoned from those. Both ways use one thread.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import torch
from torch import nn

from cafexai.datasets import TRAINED, synthetic_conflicts
from cafexai.models import conflict_setup, train, train_group


def measure(dimension: int, likelihood: float, activation: type[nn.Module], epochs: int, alone: int) -> list[str]:
    """One line of the table."""
    setup = conflict_setup(dimension, activation)
    recipe = replace(setup.recipe, epochs=epochs)
    sets = [synthetic_conflicts(dimension=dimension, likelihood=likelihood, seed=seed) for seed in range(42, 47)]
    parts = [torch.stack([getattr(s, part) for s in sets for _ in range(5)]) for part in ("x_train", "y_train")]
    build = [lambda i=i: setup.build(sets[0].layout, 101 + i) for i in range(25)]
    chosen = [round(i * 24 / max(alone - 1, 1)) for i in range(alone)]

    start = time.perf_counter()
    group = train_group([make() for make in build], *parts, recipe, progress=False)
    together = time.perf_counter() - start
    start = time.perf_counter()
    single = [train(build[i](), parts[0][i], parts[1][i], recipe, progress=False) for i in chosen]
    one_by_one = (time.perf_counter() - start) * 25 / alone
    gaps = [abs(group[i].losses[-1] / one.losses[-1] - 1) for i, one in zip(chosen, single, strict=True)]
    name = f"{2 * dimension}-{setup.hidden[0]}-{setup.hidden[1]}-1 {activation.__name__}"
    return [name, f"{one_by_one:.1f}", f"{together:.2f}", f"{one_by_one / together:.1f}", f"{max(gaps):.1e}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--alone", type=int, default=3, help="how many of the 25 networks to train alone")
    options = parser.parse_args()
    measure(*TRAINED[0], nn.ReLU, 1, 1)  # warm up
    print("| 25 networks | one by one, s | as a group, s | times faster | largest difference of final losses |")
    print("| --- | --- | --- | --- | --- |")
    for activation in (nn.ReLU, nn.GELU):
        for dimension, likelihood in TRAINED:
            print(
                "| " + " | ".join(measure(dimension, likelihood, activation, options.epochs, options.alone)) + " |", flush=True
            )


if __name__ == "__main__":
    main()
