"""Open against frozen attention on a 6-layer encoder of sentences (384 wide, 12 heads), one row, random weights.

    python benchmarks/attention.py [--quick] [--times 28 128 512] [--memory 512 2048]

Prints the medians of interleaved repeats as multiples of forward + backward and of frozen attention, and the peak of resident
memory, each in a process of its own. Times are those of the processor, with one thread.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cafexai import CAFE, Variant
from memory import ALLOCATOR, Peak
from ways import BASE

WAYS = ("attribute", "explain")
REPEATS = {28: 40, 128: 15, 512: 7}  # by tokens
FROZEN, OPEN = "frozen", "open"


class Encoder(nn.Module):
    """A sentence encoder of the size of MiniLM, the mean of its states, and one output."""

    def __init__(self) -> None:
        super().__init__()
        import transformers

        config = transformers.BertConfig(
            hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, max_position_embeddings=2048
        )
        self.bert: Any = transformers.BertModel(config, add_pooling_layer=False)
        self.head = nn.Linear(384, 1)

    def forward(self, embedded: Tensor) -> Tensor:
        """(rows, tokens, 384) to (rows, 1)."""
        output: Tensor = self.head(self.bert(inputs_embeds=embedded).last_hidden_state.mean(1))
        return output


def calls(tokens: int) -> dict[str, Callable[[], object]]:
    """Gradients, and attribute and explain with either attention, of one row of so many tokens."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    model = Encoder().eval().requires_grad_(False)
    x, start = torch.randn(2, 1, tokens, 384)

    def gradients() -> Tensor:
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(model(leaf).sum(), leaf)[0]

    made: dict[str, Callable[[], object]] = {BASE: gradients}
    for attention in (FROZEN, OPEN):
        cafe = CAFE(model, variant=Variant(attention=attention))
        for way in WAYS:
            made[f"{way}, {attention}"] = functools.partial(getattr(cafe, way), x, start, target=0)
    return made


def once(call: Callable[[], object]) -> float:
    """Seconds of processor time, which other programs disturb less than the clock."""
    start = time.process_time()
    call()
    return time.process_time() - start


def price(tokens: int, repeats: int) -> dict[str, float]:
    """Median seconds of every call, taken in turn in random order."""
    made = calls(tokens)
    times: dict[str, list[float]] = {name: [] for name in made}
    for name in made:
        once(made[name])
    order, chance = list(made), random.Random(0)
    for _ in range(repeats):
        chance.shuffle(order)
        for name in order:
            times[name].append(once(made[name]))
    return {name: statistics.median(taken) for name, taken in times.items()}


def peak(tokens: int, name: str) -> int:
    """Bytes above the loaded model that a call needs, in this process."""
    once(calls(8)[name])
    call = calls(tokens)[name]
    gc.collect()
    with Peak() as watched:
        call()
    return watched.highest - watched.start


def peaks(tokens: int) -> dict[str, int]:
    """The peak of every call, each in a process of its own."""
    found = {}
    for name in (BASE, *(f"{way}, {attention}" for way in WAYS for attention in (FROZEN, OPEN))):
        command = [sys.executable, str(Path(__file__)), "--peak", str(tokens), name]
        run = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **ALLOCATOR})
        found[name] = int(json.loads(run.stdout.splitlines()[-1]))
    return found


def show(title: str, found: dict[str, Any], unit: float, name: str) -> None:
    """One line for every way: frozen, open, and both as multiples."""
    print(f"{title}: {BASE} {found[BASE] / unit:.3g} {name}")
    for way in WAYS:
        frozen, opened = found[f"{way}, {FROZEN}"], found[f"{way}, {OPEN}"]
        base = found[BASE]
        print(f"  {way:10s} frozen {frozen / base:5.2f} x, open {opened / base:5.2f} x, open / frozen {opened / frozen:.3f}")


def main() -> None:
    """All of it, or one peak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats and no long texts")
    parser.add_argument("--times", nargs="*", type=int, default=list(REPEATS), help="tokens whose time is measured")
    parser.add_argument("--memory", nargs="*", type=int, default=[512, 2048], help="tokens whose memory is measured")
    parser.add_argument("--peak", nargs=2, metavar=("TOKENS", "CALL"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.peak:
        print(json.dumps(peak(int(chosen.peak[0]), chosen.peak[1])))
        return
    for tokens in chosen.times:
        repeats = REPEATS.get(tokens, 7)
        show(f"time, {tokens} tokens", price(tokens, max(3, repeats // (5 if chosen.quick else 1))), 1, "s")
    for tokens in chosen.memory:
        if tokens <= 512 or not chosen.quick:
            show(f"peak memory, {tokens} tokens", peaks(tokens), 2**20, "MB")


if __name__ == "__main__":
    main()
