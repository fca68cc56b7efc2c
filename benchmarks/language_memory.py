"""Peak memory and time of a causal language model with random weights: a gradient, ``attribute`` and ``explain``.

``python benchmarks/language_memory.py 128 512`` prints a table for these numbers of tokens; every cell runs in a process of its
own. Linux only: peaks come from /proc.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CALLS = ("gradient", "attribute", "explain")
SIZE = {"n_layer": 12, "n_embd": 256, "n_head": 4, "vocab_size": 2000, "n_positions": 4096}


def run(call: str, model: Any, ids: Any) -> None:
    """One call for the first token as the next one, after all others."""
    import torch

    from cafexai import CAFE

    if call == "gradient":
        x = model.get_input_embeddings()(ids).detach().requires_grad_()
        torch.autograd.grad(model(inputs_embeds=x, use_cache=False).logits[0, -1, 0], x)
    else:
        getattr(CAFE(model), call)(ids, target=(-1, 0))


def peak() -> float:
    """The largest memory of this process since the last reset, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def measure(call: str, tokens: int) -> None:
    """Print MB above those of the loaded model, and seconds."""
    import torch
    import transformers

    torch.manual_seed(0)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZE, **ends)).eval().requires_grad_(False)
    run(call, model, torch.randint(SIZE["vocab_size"], (1, 8)))  # what is loaded at the first call
    Path("/proc/self/clear_refs").write_text("5")
    before, start = peak(), time.process_time()
    run(call, model, torch.randint(SIZE["vocab_size"], (1, tokens)))
    print(peak() - before, time.process_time() - start)


def main() -> None:
    """The table."""
    if len(sys.argv) == 4 and sys.argv[1] == "--one":
        measure(sys.argv[2], int(sys.argv[3]))
        return
    heads = [f"{call}, MB | {call}, s" for call in CALLS]
    print(f"| tokens | {' | '.join(heads)} |")
    print("|" + " --- |" * (1 + 2 * len(CALLS)))
    for tokens in map(int, sys.argv[1:]):
        cells = [str(tokens)]
        for call in CALLS:
            command = [sys.executable, __file__, "--one", call, str(tokens)]
            found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            memory, seconds = map(float, found[-2:])
            cells += [f"{memory:.0f}", f"{seconds:.2f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
