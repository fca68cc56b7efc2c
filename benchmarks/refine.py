"""Infidelity of refined scores, and what they cost, relative to Integrated Gradients with 50 steps.

    python benchmarks/refine.py

The metric draws other perturbations than the fit did, of three other sizes: the paper's small and large ones, and half of the
data's own noise. The four networks of OpenXAI are used where their files are (CAFEXAI_DATA); the others are trained here.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import time
from collections.abc import Iterator
from typing import Any

import torch
from sklearn.datasets import load_breast_cancer, make_friedman1
from torch import Tensor, nn

from cafexai.datasets import DataNotFound, load, openxai_weights
from cafexai.methods import METHODS
from cafexai.metrics import TabularPerturbation, infidelity
from cafexai.models import openxai_mlp

METHODS_HERE: dict[str, Any] = {
    "integrated_gradients": METHODS["integrated_gradients"],
    "cafe": METHODS["cafe"],
    "cafe_published": METHODS["cafe_published"],
    "deeplift_rescale": METHODS["deeplift_rescale"],
    "lime": METHODS["lime"],
    "kernel_shap": METHODS["kernel_shap"],
    **{f"refine={n}": functools.partial(METHODS["cafe_refined"], refine=n) for n in (10, 20, 50)},
    "refine=20, c=0": functools.partial(METHODS["cafe_refined"], c=0.0),
}


def trained(x: Tensor, y: Tensor, depth: int, width: int = 64, steps: int = 300) -> nn.Module:
    """A network with ReLU for classes (integers) or numbers."""
    torch.manual_seed(depth)
    sizes = [x.shape[1], *[width] * depth]
    layers = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(width, 1 if y.is_floating_point() else 2)).to(x)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        some = torch.randint(len(x), (256,))
        out = model(x[some])
        loss = (
            nn.functional.mse_loss(out[:, 0], y[some]) if y.is_floating_point() else nn.functional.cross_entropy(out, y[some])
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def networks(rows: int) -> Iterator[tuple[str, nn.Module, Tensor, Tensor, list[list[int]]]]:
    """Name, model, background, rows to explain, and columns of each category."""
    for name in ("compas", "heloc", "adult", "german"):
        try:
            data = load(name)
            model = openxai_mlp(openxai_weights(name)).eval()
        except DataNotFound:
            continue
        yield name, model, data.x_train.double(), data.x_test.double()[:rows], [list(c) for c in data.categories.values()]
    x, y = (torch.tensor(part) for part in load_breast_cancer(return_X_y=True))
    x2, y2 = (torch.tensor(part) for part in make_friedman1(3000, 10, noise=1.0, random_state=0))
    for name, (values, labels) in {"cancer": (x, y), "friedman": (x2, (y2 - y2.mean()) / y2.std())}.items():
        values = (values - values.mean(0)) / values.std(0)
        for depth in (2, 4):
            yield f"{name} {depth} x 64", trained(values[rows:], labels[rows:], depth), values[rows:], values[:rows], []


def measured(model: nn.Module, data: Tensor, x: Tensor, blocks: list[list[int]]) -> dict[str, list[float]]:
    """Method -> normalised and plain infidelity at each size, and seconds, all relative to Integrated Gradients."""
    with torch.no_grad():
        output = model(x)
    target = output.argmax(1) if output.shape[1] > 1 else torch.zeros(len(x), dtype=torch.long)
    groups = torch.arange(x.shape[1])
    for block in blocks:
        groups[block] = block[0]
    scores, seconds = {}, {}
    for name, method in METHODS_HERE.items():
        options = {"background": data} if name.startswith("refine") else {}
        run = functools.partial(method, model, target=target, feature_groups=groups, **options)
        run(x)
        seconds[name] = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            scores[name] = run(x).detach()
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    found: dict[str, list[float]] = {name: [] for name in scores}
    sizes = [
        TabularPerturbation.small(data, blocks),
        TabularPerturbation.large(data, blocks),
        TabularPerturbation.small(data, blocks, scale=data.std(0)),
    ]
    for perturb in sizes:
        for normalize in (True, False):
            values = infidelity(model, x, scores, perturb, target=target, n_samples=50, normalize=normalize, seed=12345)
            for name, value in values.items():
                found[name].append((value.mean() / values["integrated_gradients"].mean()).item())
    for name in found:
        found[name].append(seconds[name] / seconds["integrated_gradients"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200)
    rows = parser.parse_args().rows
    torch.set_num_threads(1)  # many small systems are solved; threads that wait for each other would be measured
    columns = ("small: norm.", "as is", "large: norm.", "as is", "own: norm.", "as is", "time")
    everything: dict[str, list[list[float]]] = {}
    for name, *network in networks(rows):
        print(f"\n{name:24}" + "".join(f"{column:>13}" for column in columns))
        for method, values in measured(*network).items():
            everything.setdefault(method, []).append(values)
            print(f"{method:24}" + "".join(f"{value:13.2f}" for value in values), flush=True)
    print(f"\n{'mean of all':24}" + "".join(f"{column:>13}" for column in columns))
    for method, many in everything.items():
        print(f"{method:24}" + "".join(f"{value:13.2f}" for value in torch.tensor(many).mean(0).tolist()))


if __name__ == "__main__":
    main()
