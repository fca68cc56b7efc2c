"""Infidelity of refined scores, and what they cost, relative to Integrated Gradients with 50 steps.

    python benchmarks/refine.py [--rows 60] [--seeds 3] [--times]

On the data sets of the paper, with its networks where their weights are given and networks of its shapes trained here where not
(briefly: see the code), FT-Transformers, and deeper networks. The metric draws other perturbations than the fit did, of three
sizes: the paper's small and large ones, and half of the data's own noise. All methods see the same rows and draws; ``lowest``
says which other methods have lower infidelity. Data are those of CAFEXAI_DATA; what is missing is left out and said.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from cafexai.datasets import DataNotFound, Dataset, load, openxai_weights
from cafexai.methods import METHODS
from cafexai.metrics import TabularPerturbation, infidelity
from cafexai.models import FTTransformer, Recipe, mlp, openxai_mlp, residual_mlp, seeded, train

RIVAL, OURS = "integrated_gradients", "refine=20"
GIVEN = ("compas", "heloc", "adult", "german")
OPTIONS: dict[str, dict[str, Any]] = {"mimic": {"demo": True}}
SHAPES: dict[str, Any] = {  # data set -> the paper's MLP
    "titanic": lambda d, c: mlp(d, 256, 256, c),
    "covertype": lambda d, c: mlp(d, *[256] * 4, c, activation=nn.GELU),
    "mimic": lambda d, c: mlp(d, 32, 32, c),
}
LONG = {
    "lime",
    "kernel_shap",
    "shapley_value_sampling",
    "cafe_refined",
}  # once; the others five times, the fastest counts (seconds of the processor)


def networks() -> Iterator[tuple[str, nn.Module, Dataset]]:
    """Name, model and data; what cannot be had is said."""
    for name in (*GIVEN, *SHAPES):
        try:
            data = load(name, **OPTIONS.get(name, {})).to(torch.float32)
            weights = openxai_weights(name) if name in GIVEN else None
        except DataNotFound as error:
            print(f"left out: {str(error).splitlines()[0]}")
            continue
        classes = int(data.y_train.max()) + 1
        yield name, openxai_mlp(weights) if weights is not None else trained(data, SHAPES[name], classes), data
        yield f"{name}, FT-Transformer", transformer(data, classes), data
        if name in ("heloc", "covertype"):
            yield f"{name}, residual", trained(data, lambda d, c: residual_mlp(d, 64, 6, c), classes), data


def trained(data: Dataset, make: Any, classes: int, rows: int = 8000) -> nn.Module:
    """Twenty epochs over at most so many rows."""
    model = seeded(42, lambda: make(data.x_train.shape[1], classes))
    return train(model, data.x_train[:rows], data.y_train[:rows].long(), Recipe(20, 128, seed=42, shuffle=True)).model


def transformer(data: Dataset, classes: int) -> nn.Module:
    """Two blocks, as in the paper, but narrower and trained on fewer rows."""
    return trained(data, lambda _, outputs: FTTransformer(data.layout, outputs, width=32, heads=4), classes, 2000)


def methods(data: Dataset, seeds: int) -> dict[str, Any]:
    """All methods; refined scores by several draws."""
    refined = functools.partial(METHODS["cafe_refined"], background=data.x_train)
    own = {name: run for name, run in METHODS.items() if name != "cafe_refined"}
    return own | {f"{OURS} seed {seed}": functools.partial(refined, seed=seed) for seed in range(seeds)}


def measured(model: nn.Module, data: Dataset, rows: int, seeds: int) -> dict[str, list[float]]:
    """Infidelity, three sizes, normalised and as is, and seconds of the processor, relative to the rival."""
    x = data.x_test[:rows]
    with torch.no_grad():
        target = model(x).argmax(1)
    scores, seconds = {}, {}
    for name, method in methods(data, seeds).items():
        run = functools.partial(method, model, target=target, feature_groups=data.feature_mask[0])
        try:
            scores[name] = run(x).detach()
        except (ValueError, NotImplementedError) as error:
            print(f"  {name} left out: {str(error).splitlines()[0][:90]}")
            continue
        seconds[name] = float("inf")
        for _ in range(1 if name in LONG else 5):
            start = time.process_time()
            run(x)
            seconds[name] = min(seconds[name], time.process_time() - start)
    found: dict[str, list[float]] = {name: [] for name in scores}
    blocks = [list(columns) for columns in data.categories.values()]
    for perturb in (
        TabularPerturbation.small(data.x_test, blocks),
        TabularPerturbation.large(data.x_test, blocks),
        TabularPerturbation.small(data.x_test, blocks, scale=data.x_test.std(0)),
    ):
        for normalize in (True, False):
            values = infidelity(model, x, scores, perturb, target=target, n_samples=50, normalize=normalize, seed=12345)
            for name, value in values.items():
                found[name].append((value.mean() / values[RIVAL].mean()).item())
    return {name: [*numbers, seconds[name] / seconds[RIVAL]] for name, numbers in found.items()}


def times(model: nn.Module, data: Dataset, rows: int = 200) -> float:
    """Seconds of the processor for refined scores beside those of the rival, in turns, the fastest of three each."""
    x = data.x_test[:rows]
    with torch.no_grad():
        target = model(x).argmax(1)
    asked = {"target": target, "feature_groups": data.feature_mask[0]}
    refined = functools.partial(METHODS["cafe_refined"], background=data.x_train)
    best = {RIVAL: float("inf"), OURS: float("inf")}
    for _ in range(3):
        for name, method in ((RIVAL, METHODS[RIVAL]), (OURS, refined)):
            start = time.process_time()
            method(model, x, **asked)
            best[name] = min(best[name], time.process_time() - start)
    return best[OURS] / best[RIVAL]


def merged(found: dict[str, list[float]]) -> dict[str, list[float]]:
    """The draws of refined scores as one line: their mean."""
    ours = [numbers for name, numbers in found.items() if name.startswith(OURS)]
    rest = {name: numbers for name, numbers in found.items() if not name.startswith(OURS)}
    return rest | {OURS: torch.tensor(ours).mean(0).tolist()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3, help="draws of the refined scores, averaged over")
    parser.add_argument("--times", action="store_true", help="only time, for 200 rows")
    parser.add_argument("--only", default="", help="networks whose name begins with this")
    given = parser.parse_args()
    torch.set_num_threads(1)  # many small systems are solved; threads that wait for each other would be measured
    columns = ("small: norm.", "as is", "large: norm.", "as is", "own: norm.", "as is", "time")
    everything: dict[str, list[list[float]]] = {}
    for name, model, data in networks():
        if not name.startswith(given.only):
            continue
        exact, model = data.to(torch.float64), model.double().eval().requires_grad_(False)
        if given.times:
            rows = min(200, len(exact.x_test))
            print(f"{name:24} {OURS} takes {times(model, exact):.2f} of the time of {RIVAL}, {rows} rows", flush=True)
            continue
        print(f"\n{name:24}" + "".join(f"{column:>13}" for column in columns))
        found = merged(measured(model, exact, given.rows, given.seeds))
        for method, values in found.items():
            everything.setdefault(method, []).append(values)
            print(f"{method:24}" + "".join(f"{value:13.3f}" for value in values), flush=True)
        for place, column in enumerate(columns[:-1]):
            lower = [other for other, values in found.items() if other != OURS and values[place] < found[OURS][place]]
            size = ("small", "large", "own")[place // 2]
            print(
                f"  {size}, {'normalised' if column.endswith('norm.') else 'as is'}: "
                + ("lower: " + ", ".join(lower) if lower else "lowest")
            )
    if given.times:
        return
    print(f"\n{'mean of all':24}" + "".join(f"{column:>13}" for column in columns))
    for method, many in everything.items():
        print(f"{method:24}" + "".join(f"{value:13.3f}" for value in torch.tensor(many).mean(0).tolist()))


if __name__ == "__main__":
    main()
