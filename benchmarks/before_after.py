"""Two trees of this project, measured in turn in one run, so that a noisy machine disturbs both alike.

Usage: python benchmarks/before_after.py OLD_TREE [--repeats 60] [--only TEXT]

Each tree runs in a process of its own, on equal models and rows; the two are asked in turn, in random order. Printed are the
median times, the median of the ratios of neighbours (new / old), and its noise: the same of old against old.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WARM = 5  # calls before the clock starts

WORKER = """
import sys, time, torch
torch.set_num_threads({threads})
sys.path.insert(0, {here!r})
from workloads import CASES
from cafexai import CAFE
cases = {{case.name: case for case in CASES}}
made = {{}}
print("ready", flush=True)
for line in sys.stdin:
    name, way, calls = line.rstrip("\\n").split("\\t")
    if name not in made:
        made[name] = cases[name].make()
    model, x, target = made[name]
    cafe = CAFE(model)
    run = getattr(cafe, way)
    start = time.perf_counter()
    for _ in range(int(calls)):
        run(x, target=target)
    print((time.perf_counter() - start) / int(calls), flush=True)
"""


class Tree:
    """A process that times calls of the package in a tree."""

    def __init__(self, root: Path, threads: int) -> None:
        environment = {**os.environ, "PYTHONPATH": str(root / "src"), "CAFEXAI_COMPILE": "never"}
        code = WORKER.format(here=str(HERE), threads=threads)
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
        self.process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], **pipes)
        assert self._read() == "ready"

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def seconds(self, name: str, way: str, calls: int) -> float:
        """The mean time of some calls."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{name}\t{way}\t{calls}\n")
        self.process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def compare(trees: dict[str, Tree], name: str, way: str, repeats: int) -> tuple[float, float, float, float]:
    """Median seconds before and after, the median ratio of neighbours, and that of before against before."""
    for tree in trees.values():
        first = max(tree.seconds(name, way, 1) for _ in range(WARM))
    calls = max(1, int(0.02 / first))  # so that a measurement takes a fiftieth of a second at least
    found: dict[str, list[float]] = {key: [] for key in trees}
    for _ in range(repeats):
        for key in random.sample(list(trees), len(trees)):
            found[key].append(trees[key].seconds(name, way, calls))

    def ratio(one: str, two: str) -> float:
        return statistics.median(a / b for a, b in zip(found[one], found[two], strict=True))

    return (
        statistics.median(found["before"]),
        statistics.median(found["after"]),
        ratio("after", "before"),
        ratio("again", "before"),
    )


def main() -> None:
    """Print one line per case and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    from workloads import CASES

    roots = {"before": options.old.resolve(), "after": HERE.parent, "again": options.old.resolve()}
    trees = {key: Tree(root, options.threads) for key, root in roots.items()}
    print("| case | way | before, ms | after, ms | after / before | before / before |\n|" + " --- |" * 6)
    for case in CASES:
        if options.only not in case.name:
            continue
        for way in ("attribute", "explain"):
            before, after, ratio, noise = compare(
                trees, case.name, way, options.repeats if case.quick else options.repeats // 6
            )
            print(f"| {case.name} | {way} | {before * 1e3:.3g} | {after * 1e3:.3g} | {ratio:.3f} | {noise:.3f} |", flush=True)
    for tree in trees.values():
        tree.close()


if __name__ == "__main__":
    main()
