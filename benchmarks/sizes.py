"""Time and peak memory of models of usual sizes with random weights: the table of docs/scale.md.

    python benchmarks/sizes.py [--only TEXT] [--repeats 3] [--output FILE]

Every model has a process of its own. After one round to warm up, all ways run in turn, in several rounds; a number is the
median over rounds. The backward pass goes to the input. Time is seconds of the processor. Memory is the peak above what was
there before, with an allocator that gives freed memory back at once. Integrated Gradients runs 5 of its 50 steps, and its time
is multiplied by 10. Models that are measured anew replace their lines in FILE. Linux only: peaks come from /proc.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from beside_deeplift import CASES as BESIDE
from beside_deeplift import RESULTS, NextToken
from cafexai import CAFE
from language_memory import peak
from machine import machine
from memory import ALLOCATOR
from ways import BASE, DEEPLIFT, input_gradient
from workloads import Case, Encoder

STEPS, SHARE = 5, 10  # of Integrated Gradients that are run; the part of all 50 that they are
IG = "IG, 50 steps (Captum)"
WAYS = (BASE, "attribute", "explain", DEEPLIFT, IG)
TOKENS = [
    Case(f"{name}, {tokens} tokens", build, (1, tokens, 768))
    for name, build in (("BERT-base", Encoder), ("GPT-2 small", NextToken))
    for tokens in (128, 512)
]
CASES = (*TOKENS, *(case for case in BESIDE if "1 image" in case.name))


def ways(model: nn.Module, x: Tensor, target: Tensor) -> dict[str, Callable[[], object]]:
    """What is compared."""
    from captum.attr import DeepLift, IntegratedGradients

    cafe = CAFE(model)
    return {
        BASE: lambda: input_gradient(model, x, target),
        "attribute": lambda: cafe.attribute(x, target=target),
        "explain": lambda: cafe.explain(x, target=target),
        DEEPLIFT: lambda: DeepLift(model).attribute(x, target=target),
        IG: lambda: IntegratedGradients(model).attribute(x, target=target, n_steps=STEPS, internal_batch_size=1),
    }


def once(way: Callable[[], object]) -> tuple[float, float]:
    """MB at the peak above what was there before, and seconds of the processor."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before, start = peak(), time.process_time()
    way()
    return peak() - before, time.process_time() - start


def measure(case: Case, repeats: int) -> dict[str, dict[str, float]]:
    """Medians of every way, in this process."""
    model, x, target = case.make()
    compared = ways(model.requires_grad_(False), x, target)
    for name, way in compared.items():
        if name != IG:  # these are gradients
            way()
    rounds = [{name: once(way) for name, way in compared.items()} for _ in range(repeats)]
    memory = {name: statistics.median(one[name][0] for one in rounds) for name in compared}
    seconds = {name: statistics.median(one[name][1] for one in rounds) for name in compared}
    return {"MB": memory, "seconds": {**seconds, IG: seconds[IG] * SHARE}}


def in_process(case: Case, repeats: int) -> dict[str, Any]:
    """The same in a new process."""
    command = [sys.executable, __file__, "--one", case.name, "--repeats", str(repeats)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **ALLOCATOR})
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(results: dict[str, Any]) -> str:
    """A line for each model."""
    lines = [f"| model | {' | '.join(f'{way}, MB | s' for way in WAYS)} |", "|" + " --- |" * (1 + 2 * len(WAYS))]
    for name in (case.name for case in CASES if case.name in results):
        found = results[name]
        cells = [f"{found['MB'][way]:,.0f} | {found['seconds'][way]:.2f}" for way in WAYS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, store and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models whose name holds this text")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS / "sizes.json")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a model, in this process
    options = parser.parse_args()
    if options.one:
        warnings.simplefilter("ignore")
        case = next(case for case in CASES if case.name == options.one)
        print(json.dumps(measure(case, options.repeats)))
        return
    results = json.loads(options.output.read_text())["models"] if options.output.exists() else {}
    for case in (case for case in CASES if options.only in case.name):
        results[case.name] = {**in_process(case, options.repeats), "repeats": options.repeats, "load": os.getloadavg()[0]}
        stored = {"machine": machine(), "models": results}
        options.output.write_text(json.dumps(stored, indent=1) + "\n")
        print(table({case.name: results[case.name]}), flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
