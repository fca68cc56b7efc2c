"""Time of explaining against forward + backward, measured side by side in one process.

python benchmarks/speed.py [--repeats 25]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from captum.attr import DeepLift
from torch import Tensor, nn

from cafexai import CAFE


def mlp(*widths: int, activation: type[nn.Module]) -> nn.Module:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), activation()]
    return nn.Sequential(*layers[:-1]).eval()


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "7-100-2 ReLU, 1235 rows": (lambda: mlp(7, 100, 2, activation=nn.ReLU), (1235, 7)),
    "7-256x2-2 ReLU, 256 rows": (lambda: mlp(7, 256, 256, 2, activation=nn.ReLU), (256, 7)),
    "54-256x4-7 GELU, 1000 rows": (lambda: mlp(54, 256, 256, 256, 256, 7, activation=nn.GELU), (1000, 54)),
    "54-1024x4-7 ReLU, 1000 rows": (lambda: mlp(54, 1024, 1024, 1024, 1024, 7, activation=nn.ReLU), (1000, 54)),
}


def gradient(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    model(leaf)[torch.arange(len(x)), target].sum().backward()
    assert leaf.grad is not None
    return leaf.grad


def measure(model: nn.Module, x: Tensor, repeats: int) -> dict[str, float]:
    """The median seconds of each way, run in turn."""
    target = model(x).argmax(1)
    cafe = CAFE(model)
    ways: dict[str, Callable[[], object]] = {
        "forward + backward": lambda: gradient(model, x, target),
        "attribute": lambda: cafe.attribute(x, target=target),
        "explain": lambda: cafe.explain(x, target=target),
    }
    if not any(isinstance(module, nn.GELU) for module in model.modules()):  # Captum has no rule for GELU
        ways["Captum DeepLift"] = lambda: DeepLift(model).attribute(x, target=target)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 2):
        for name, run in ways.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[2:]) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=25)
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore")  # Captum's notes on hooks, ours on depth
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, median of {repeats} interleaved repeats")
    for name, (build, shape) in CASES.items():
        torch.manual_seed(0)
        medians = measure(build(), torch.randn(shape), repeats)
        base = medians["forward + backward"]
        print(f"\n{name}")
        for way, seconds in medians.items():
            print(f"  {way:20} {seconds * 1e3:8.2f} ms   {seconds / base:5.2f} x")


if __name__ == "__main__":
    main()
