"""What importing costs on top of torch, and the first explanation of a small model; each in a process of its own."""

from __future__ import annotations

import statistics
import subprocess
import sys

_IMPORT = """
import time, torch, numpy
start = time.perf_counter()
from cafexai import CAFE
print(time.perf_counter() - start)
"""
_FIRST = """
import time, torch
from cafexai import CAFE
model = torch.nn.Sequential(torch.nn.Linear(7, 100), torch.nn.{activation}(), torch.nn.Linear(100, 2)).eval()
x = torch.randn(100, 7)
model(x)
start = time.perf_counter()
CAFE(model).explain(x)
print(time.perf_counter() - start)
"""


def _median(code: str, repeats: int) -> float:
    def once() -> float:
        return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)

    return statistics.median(once() for _ in range(repeats))


def startup(repeats: int) -> dict[str, float]:
    """Seconds, medians."""
    return {
        "import on top of torch": _median(_IMPORT, repeats),
        "first explanation, 7-100-2 ReLU": _median(_FIRST.format(activation="ReLU"), repeats),
        "first explanation, 7-100-2 GELU": _median(_FIRST.format(activation="GELU"), repeats),
    }
