"""What a row costs, by features, parameters and the way of explaining: a model fitted to measurements, and how far it is off.

    python benchmarks/cost.py [--seconds 1.0]

Seconds of one processor with one thread, kernels not compiled. A row costs a * parameters + b * hidden units, and with
netting="feature" that for each feature. "deep" is what CAFE(model) does for networks of more than two hidden layers, "path"
what it does for others.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
import torch
from torch import nn

from cafexai import CAFE

os.environ["CAFEXAI_COMPILE"] = "never"
SHAPES = [(10, 64, 2), (10, 256, 4), (54, 64, 4), (54, 256, 2), (54, 256, 4), (54, 1024, 3), (200, 256, 3), (200, 1024, 2)]
LARGE = (512, 4096, 7)  # 102 million parameters; held out of the fit
WAYS = {
    "path": {"netting": "path"},
    "deep": {"netting": "unit", "flows": "mean", "biases": "reference", "norms": "open"},
    "feature": {"netting": "feature"},
}
FEW = (10, 54)  # features up to which netting by feature is measured


def network(features, width, depth):
    torch.manual_seed(0)
    layers = [nn.Linear(features, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 7)).eval()


def seconds_per_row(model, features, way, budget, rows=64):
    """The smallest of some, as others use the machine, too."""
    cafe = CAFE(model, variant="published", **WAYS[way])
    cafe.explain(torch.randn(rows, features))  # the first call of all takes longest, and would end the search for enough rows
    while True:
        x = torch.randn(rows, features)
        begin = time.process_time()
        cafe.explain(x)
        if (spent := time.process_time() - begin) > budget / 8 or rows >= 1 << 17:
            break
        rows *= 2
    found = [spent / rows]
    until = time.process_time() + budget
    while time.process_time() < until:
        begin = time.process_time()
        cafe.explain(x)
        found.append((time.process_time() - begin) / rows)
    return min(found)


def size(features, width, depth):
    return features * width + (depth - 1) * width * width + 7 * width, depth * width


def fitted(lines):
    """a and b with the least relative error, none below 0."""
    table = np.array([(parameters, units, spent) for parameters, units, spent in lines])
    scaled = table[:, :2] / table[:, 2:]
    best = np.linalg.lstsq(scaled, np.ones(len(table)), rcond=None)[0]
    if (best < 0).any():
        keep = int(best.argmax())
        best = np.zeros(2)
        best[keep] = scaled[:, keep].sum() / (scaled[:, keep] ** 2).sum()
    return best, scaled @ best - 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    given = parser.parse_args()
    budget = given.seconds
    torch.set_num_threads(1)
    for way in given.ways:
        lines = []
        for shape in SHAPES:
            if way == "feature" and shape[0] not in FEW:
                continue
            parameters, units = size(*shape)
            each = shape[0] + 1 if way == "feature" else 1
            spent = seconds_per_row(network(*shape), shape[0], way, budget) / each
            lines.append((parameters, units, spent))
            print(f"{way:8} {shape[0]:4}-{shape[1]}x{shape[2]}-7: {spent * each * 1e6:9.1f} us a row", flush=True)
        (a, b), off = fitted(lines)
        each = " for each feature" if way == "feature" else ""
        print(f"{way}: {a * 1e9:.3f} ns * parameters + {b * 1e9:.2f} ns * hidden units{each}; off by {abs(off).max():.0%}")
        if way != "feature":
            parameters, units = size(*LARGE)
            spent = seconds_per_row(network(*LARGE), LARGE[0], way, budget, 512)
            told = a * parameters + b * units
            size_of_it = f"{parameters / 1e6:.0f} million parameters"
            print(f"{way}, held out, {size_of_it}: {spent * 1e3:.2f} ms a row, {told * 1e3:.2f} ms foretold", flush=True)


if __name__ == "__main__":
    main()
