"""Time and peak memory of models of usual sizes with random weights, as a table for docs/scale.md.

    python benchmarks/sizes.py [--only TEXT]

Every cell runs in a process of its own: once to warm up, then once measured. The backward pass goes to the input. Memory is
the peak above the loaded model; time is seconds of the processor. Integrated Gradients runs 10 of its 50 steps, and its time
is multiplied by 5. Linux only: peaks come from /proc.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from torch import Tensor, nn

from beside_deeplift import CASES as BESIDE
from beside_deeplift import NextToken
from cafexai import CAFE
from language_memory import peak
from memory import ALLOCATOR
from ways import BASE, DEEPLIFT, input_gradient
from workloads import Case, Encoder

STEPS, SHARE = 10, 5  # of Integrated Gradients that are run; the part of all 50 that they are
IG = "IG, 50 steps (Captum)"
WAYS = (BASE, "attribute", "explain", DEEPLIFT, IG)
TOKENS = [
    Case(f"{name}, {tokens} tokens", build, (1, tokens, 768))
    for name, build in (("BERT-base", Encoder), ("GPT-2 small", NextToken))
    for tokens in (128, 512)
]
CASES = (*TOKENS, *(case for case in BESIDE if "1 image" in case.name))


def way_of(name: str, model: nn.Module, x: Tensor, target: Tensor) -> Callable[[], object]:
    """One way to run."""
    from captum.attr import DeepLift, IntegratedGradients

    cafe = CAFE(model)
    found: dict[str, Callable[[], object]] = {
        BASE: lambda: input_gradient(model, x, target),
        "attribute": lambda: cafe.attribute(x, target=target),
        "explain": lambda: cafe.explain(x, target=target),
        DEEPLIFT: lambda: DeepLift(model).attribute(x, target=target),
        IG: lambda: IntegratedGradients(model).attribute(x, target=target, n_steps=STEPS, internal_batch_size=1),
    }
    return found[name]


def measure(case: Case, name: str) -> None:
    """Print MB above the loaded model, and seconds."""
    warnings.simplefilter("ignore")
    model, x, target = case.make()
    way = way_of(name, model.requires_grad_(False), x, target)
    way()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before, start = peak(), time.process_time()
    way()
    print(peak() - before, (time.process_time() - start) * (SHARE if name == IG else 1))


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)  # a case and a way, in this process
    options = parser.parse_args()
    if options.one:
        measure(next(case for case in CASES if case.name == options.one[0]), options.one[1])
        return
    print(f"| model | {' | '.join(f'{way}, MB | s' for way in WAYS)} |")
    print("|" + " --- |" * (1 + 2 * len(WAYS)))
    for case in (case for case in CASES if options.only in case.name):
        cells = [case.name]
        for way in WAYS:
            command = [sys.executable, __file__, "--one", case.name, way]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **ALLOCATOR})
            if done.returncode:
                print(f"{case.name}, {way}: {done.stderr.splitlines()[-1][:200]}", file=sys.stderr, flush=True)
                cells += ["fails", ""]
                continue
            memory, seconds = map(float, done.stdout.split()[-2:])
            cells += [f"{memory:.0f}", f"{seconds:.2f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
