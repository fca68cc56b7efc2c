"""Scores of image regions beside what the model loses without each region, on Fashion-MNIST.

    python benchmarks/regions.py [--rows 100] [--train 12000] [--epochs 3]

A network of three convolutions is trained here. Each cell of a grid is set to black, one at a time. Printed is the mean over
rows of Pearson's correlation with the scores, then what is left of the scores when the weights are shuffled. Data are those of
CAFEXAI_DATA.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor, nn

from cafexai import CAFE
from cafexai.datasets import load
from cafexai.methods import METHODS
from cafexai.metrics import randomised


def network() -> nn.Module:
    """Three convolutions, each with a ReLU and a max-pool."""
    layers: list[nn.Module] = []
    for before, after in ((1, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(288, 10))


def fit(model: nn.Module, x: Tensor, y: Tensor, epochs: int) -> nn.Module:
    """Adam, 64 rows at a time."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


def main() -> None:
    """Train, explain, remove, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--train", type=int, default=12000)
    parser.add_argument("--epochs", type=int, default=3)
    asked = parser.parse_args()
    torch.manual_seed(0)
    data = load("fashion_mnist")
    x, y, test, truth = (torch.as_tensor(part) for part in (data.x_train, data.y_train, data.x_test, data.y_test))
    black, white = x.min(), x.max()
    x, test = ((part.float() - black) / (white - black) for part in (x, test))
    model = fit(network(), x[: asked.train], y[: asked.train].long(), asked.epochs)
    with torch.no_grad():
        print(f"accuracy on {len(test)} test rows: {(model(test).argmax(1) == truth).double().mean():.3f}")
    cafe, rows = CAFE(model), test[: asked.rows]
    e = cafe.explain(rows)
    names = ("integrated_gradients", "gradient_x_input")
    others = {name: METHODS[name](model, rows, target=e.target[:, 0])[:, 0].double().numpy() for name in names}
    for cells in (4, 8):
        found: dict[str, list[float]] = {name: [] for name in ("cafe", *others)}
        for row in range(len(rows)):
            seen = cafe.occlude_regions(e, row, cells=cells)
            sums = {name: np.bincount(seen.index.ravel(), scores[row].ravel()) for name, scores in others.items()}
            for name, scores in {"cafe": seen.predicted, **sums}.items():
                found[name].append(float(np.corrcoef(scores, seen.observed)[0, 1]))
        print(f"{cells} x {cells} cells:", ", ".join(f"{name} {np.mean(each):.3f}" for name, each in found.items()))
    print(randomised(cafe, rows, show_progress=False))


if __name__ == "__main__":
    main()
