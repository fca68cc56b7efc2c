"""Peak memory of our methods and of gradients on one case, in a process of its own.

What is measured is the growth of the resident memory above the loaded model, after a first run on one row. The allocator is
told to give freed memory back at once, so that what is measured is in use and not merely kept for later.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

from ways import BASE, input_gradient, ours, training_step
from workloads import CASES, Case, growth

LONG = 0.2  # seconds to watch at least
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


def resident() -> int:
    """Bytes in memory now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class Peak:
    """Watches the resident memory from another thread."""

    def __enter__(self) -> Peak:
        self.start = self.highest = resident()
        self.running = True
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while self.running:
            self.highest = max(self.highest, resident())
            time.sleep(0.0005)

    def __exit__(self, *error: object) -> None:
        self.running = False
        self.thread.join()


def measure(case: Case) -> dict[str, int]:
    """Bytes that each way needs at its peak; the gradient of the input alone has no gradients of parameters to keep."""
    warnings.simplefilter("ignore")
    model, x, target = case.make()

    def run(way: str, rows: int) -> None:
        model.requires_grad_(way == BASE)
        if way == BASE:
            training_step(model, x[:rows], target[:rows])
            model.zero_grad()
        elif way == "input gradient":
            input_gradient(model, x[:rows], target[:rows])
        else:
            ours(model, x[:rows], target[:rows], compiled=False)[way]()

    def peak(way: str) -> int:
        run(way, 1)
        gc.collect()
        with Peak() as watched:
            end = time.perf_counter() + LONG
            run(way, len(x))
            while time.perf_counter() < end:  # the peak of a short run is easily missed
                run(way, len(x))
        return watched.highest - watched.start

    return {way: peak(way) for way in (BASE, "input gradient", "attribute", "explain")}


def peaks(name: str) -> dict[str, int]:
    """The peak of every way on the case of this name."""
    command = [sys.executable, str(Path(__file__)), name]
    out = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **ALLOCATOR}).stdout
    found: dict[str, int] = json.loads(out.splitlines()[-1])
    return found


if __name__ == "__main__":
    grown = [case for cases in growth(False).values() for _, case in cases]
    print(json.dumps(measure(next(case for case in (*CASES, *grown) if case.name == sys.argv[1]))))
