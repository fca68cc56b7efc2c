"""What the measured conflict and background baselines cost, in one run.

    python benchmarks/conflict.py [--repeats 9] [--measured-only]

``explain`` with the measured conflict and with ``conflict="net"``, and against one baseline and 50 background rows, in turn on
the tables of the benchmark. Seconds of the processor, medians; the ratio is that of medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from cafexai import CAFE, Background
from workloads import CASES

BASELINES = 50


def in_turn(ways: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of the processor of each way."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats + 1):
        for name, way in ways.items():
            begin = time.process_time()
            way()
            if turn:  # the first run is for warming up
                taken[name].append(time.process_time() - begin)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def main() -> None:
    """Print one line per table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--measured-only", action="store_true", help="leave the price of 50 background rows out")
    options = parser.parse_args()
    repeats = options.repeats
    torch.set_num_threads(1)
    print(f"{'table':<44}{'rows':>6}{'net, s':>10}{'measured':>10}{'ratio':>8}{'50 rows / one':>15}{'one row: 50 / one':>19}")
    for case in CASES:
        if len(case.shape) != 2:
            continue
        model, x, target = case.make()
        cafe, drawn = CAFE(model), Background(torch.randn(500, x.shape[1]), BASELINES)
        both = in_turn(
            {
                "net": lambda: cafe.explain(x, target=target, conflict="net"),
                "measured": lambda: cafe.explain(x, target=target),
            },
            repeats,
        )
        begin = f"{case.name:<44}{len(x):>6}{both['net']:>10.4f}{both['measured']:>10.4f}{both['measured'] / both['net']:>8.2f}"
        if options.measured_only:
            print(begin, flush=True)
            continue
        few, single = x[:100], x[:1]
        price = in_turn(
            {
                "one": lambda: cafe.explain(few, target=target[:100]),
                "many": lambda: cafe.explain(few, drawn, target=target[:100]),
                "one, one row": lambda: cafe.explain(single, target=target[:1]),
                "many, one row": lambda: cafe.explain(single, drawn, target=target[:1]),
            },
            2,
        )
        print(
            f"{begin}{price['many'] / price['one']:>15.1f}{price['many, one row'] / price['one, one row']:>19.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
