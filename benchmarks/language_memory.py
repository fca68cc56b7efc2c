"""Peak memory and time of a causal language model with random weights: a gradient, ``attribute`` and ``explain``.

    python benchmarks/language_memory.py 512 1024 [--before OLD_TREE] [--repeats 3] [--most 12] [--output FILE]

Prints a table for these numbers of tokens. Every measurement runs in a process of its own; all calls of a round come before
those of the next, and a cell is the median over rounds; "in float64" is said where ``explain`` notes that it recomputed scores
that did not add up in float32, which ``attribute`` does, too. With ``--before`` the same calls also run in another tree of this
project. Memory is the peak above the loaded model; time is seconds of the processor. Linux only: peaks come from /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from machine import machine

CALLS = ("gradient", "attribute", "explain")
BEFORE = " before"
SIZE = {"n_layer": 12, "n_embd": 256, "n_head": 4, "vocab_size": 2000, "n_positions": 4096}


def run(call: str, model: Any, ids: Any) -> bool:
    """One call for the first token as the next one, after all others; whether it notes that it was done again in float64."""
    import torch

    from cafexai import CAFE

    if call == "gradient":
        x = model.get_input_embeddings()(ids).detach().requires_grad_()
        torch.autograd.grad(model(inputs_embeds=x, use_cache=False).logits[0, -1, 0], x)
        return False
    found = getattr(CAFE(model), call)(ids, target=(-1, 0))
    return any("float64" in note for note in getattr(found, "notes", ()))


def peak() -> float:
    """The largest memory of this process since the last reset, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def measure(call: str, tokens: int) -> None:
    """Print MB above those of the loaded model, seconds, and whether scores were computed again in float64."""
    import torch
    import transformers

    torch.manual_seed(0)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZE, **ends)).eval().requires_grad_(False)
    run(call, model, torch.randint(SIZE["vocab_size"], (1, 8)))  # what is loaded at the first call
    Path("/proc/self/clear_refs").write_text("5")
    before, start = peak(), time.process_time()
    again = run(call, model, torch.randint(SIZE["vocab_size"], (1, tokens)))
    print(peak() - before, time.process_time() - start, int(again))


def in_process(call: str, tokens: int, tree: Path | None, most: float) -> tuple[float, ...] | None:
    """What ``measure`` prints, of one call in a new process; None if it needs more than ``most`` GB of addresses."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (int(most * 2**30), int(most * 2**30)))

    environment = dict(os.environ) if tree is None else {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, __file__, "--one", call, str(tokens)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, preexec_fn=limit, check=False)
    if done.returncode == 0:
        return tuple(map(float, done.stdout.split()[-3:]))
    if "allocate memory" in done.stderr or "MemoryError" in done.stderr:
        return None
    raise RuntimeError(done.stderr)


def measure_all(tokens: int, options: argparse.Namespace) -> dict[str, list[float] | None]:
    """Medians of every call, here and before; None for one that needs too much memory."""
    found: dict[str, list[tuple[float, ...]] | None] = {}
    for _ in range(options.repeats):
        for call in CALLS:
            trees = {call: None, call + BEFORE: options.before} if options.before and call != CALLS[0] else {call: None}
            for name, tree in trees.items():
                known = found.setdefault(name, [])
                if known is None:
                    continue
                one = in_process(call, tokens, tree, options.most)
                found[name] = None if one is None else [*known, one]
    return {name: some and [statistics.median(part) for part in zip(*some, strict=True)] for name, some in found.items()}


def cell(found: list[float] | None, most: float) -> str:
    """MB and seconds of one call, for the table."""
    if found is None:
        return f"over {most:.0f} GB | "
    memory, seconds, again = found
    return f"{memory:,.0f}{' (in float64)' if again else ''} | {seconds:.2f}"


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokens", nargs="*", type=int)
    parser.add_argument("--before", type=Path, help="a tree of this project to run beside")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--most", type=float, default=12, help="GB of addresses a call may take")
    parser.add_argument("--output", type=Path, help="a JSON file")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)  # a call and tokens, in this process
    options = parser.parse_args()
    if options.one:
        measure(options.one[0], int(options.one[1]))
        return
    results: dict[str, Any] = {}
    for tokens in options.tokens:
        results[str(tokens)] = found = measure_all(tokens, options)
        if len(results) == 1:
            print(f"| tokens | {' | '.join(f'{name}, MB | s' for name in found)} |")
            print("|" + " --- |" * (1 + 2 * len(found)))
        print(f"| {tokens:,} | {' | '.join(cell(one, options.most) for one in found.values())} |", flush=True)
        if options.output:
            stored = {"machine": machine(), "model": SIZE, "repeats": options.repeats, "MB and seconds": results}
            options.output.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
