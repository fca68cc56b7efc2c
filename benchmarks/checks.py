"""What it costs to check that rows can be cut into chunks, beside the call: python benchmarks/checks.py [--repeats 15]

The first two chunks are also computed together. Calls with and without this check are made in turn, in one process and
thread, on a 54-256x4-7 network: with ``batch_size=256``, and with chunks that CAFE chooses. Time is that of the processor,
which other programs disturb little. Printed is the median of the ratios of neighbours (with / without), and the same of calls
without against calls without, which is the noise.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Iterator
from unittest import mock

import torch
from torch import nn

from cafexai import CAFE
from cafexai._engine import batches

CHUNKS = (2, 10, 40)
GIVEN = 256  # rows of a chunk, with batch_size


def network() -> nn.Module:
    """54-256x4-7."""
    layers: list[nn.Module] = [nn.Linear(54, 256), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Linear(256, 256), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(256, 7)).eval()


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Rows are cut as they are otherwise, and nothing is compared."""
    with (
        mock.patch.object(batches, "settle", lambda job, _: (job, {})),
        mock.patch.object(batches, "_compare_chunks", lambda plain, *_: plain),
    ):
        yield


def chosen_rows(cafe: CAFE) -> int:
    """Rows of a chunk if CAFE chooses it."""
    found: list[int] = []
    inner = batches._rows_at_a_time

    def remember(job: batches.Job) -> int:
        found.append(inner(job))
        return found[-1]

    with mock.patch.object(batches, "_rows_at_a_time", remember):
        cafe.explain(torch.randn(20_000, 54), target=0)
    return found[0]


def seconds(cafe: CAFE, x: torch.Tensor, batch_size: int | None, check: bool) -> float:
    """Of one call, in seconds of the processor."""
    with contextlib.nullcontext() if check else unchecked():
        start = time.process_time()
        cafe.explain(x, target=0, batch_size=batch_size, show_progress=False)
        return time.process_time() - start


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    torch.manual_seed(0)
    cafe = CAFE(network())
    print("| chunks | rows of each | with / without the check | noise |\n| --- | --- | --- | --- |")
    for batch_size in (GIVEN, None):
        rows = batch_size or chosen_rows(cafe)
        for count in CHUNKS:
            x = torch.randn(count * rows, 54)
            found, noise = [], []
            seconds(cafe, x, batch_size, True)
            for _ in range(repeats if count * rows < 20_000 else max(3, repeats // 3)):
                before = seconds(cafe, x, batch_size, False)
                found.append(seconds(cafe, x, batch_size, True) / before)
                noise.append(seconds(cafe, x, batch_size, False) / before)
            how = f"{rows} (batch_size)" if batch_size else f"{rows} (chosen)"
            print(f"| {count} | {how} | {statistics.median(found):.3f} | {statistics.median(noise):.3f} |", flush=True)


if __name__ == "__main__":
    main()
