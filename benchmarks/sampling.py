"""KernelSHAP and LIME for all rows at once against Captum's loop over rows, in turn in one process.

python benchmarks/sampling.py [--rows 1000] [--repeats 3]
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from captum.attr import KernelShap, Lime
from torch import nn

from cafexai.methods import METHODS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(13, 100), nn.ReLU(), nn.Linear(100, 2)).eval(), torch.randn(given.rows, 13)
    target = model(x).argmax(1)
    for name, captum in (("kernel_shap", KernelShap), ("lime", Lime)):
        ways: dict[str, Callable[[], object]] = {
            "cafexai": lambda name=name: METHODS[name](model, x, target=target),
            "Captum": lambda captum=captum: captum(model).attribute(x, target=target),
        }
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(given.repeats):
            for way, run in ways.items():
                start = time.perf_counter()
                run()
                times[way].append(time.perf_counter() - start)
        ours, theirs = (statistics.median(times[way]) for way in ways)
        print(f"{name}, {given.rows} rows, 13-100-2: {ours:.3f} s, Captum {theirs:.2f} s, {theirs / ours:.0f} times as long")


if __name__ == "__main__":
    main()
